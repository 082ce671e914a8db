"""What `headroom plan` reckons against what is: random models of OPT-125m's and OPT-1.3b's shapes, in bf16 and int8.

`.venv/bin/python -m tests.benchmarks.plan_arithmetic`; minutes, and up to 6 GB of memory and 3 of /tmp. Bytes: of the
weights, of what the process grows by as a model is loaded, and the most it grows by in passes under a mask and in
gradient passes (a small model stays below: what loads are refused by has 300 MB for any workspace). Seconds a question
of each shape are forecast from what the *other* one took, and of nothing else. They are processor time of one thread,
which other work on the machine lengthens least; the best of a few rounds.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import astuple
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any

from cache import open_store
from engine.architecture.opt_sizes import opt_config
from engine.checkpoints.model_config import ModelConfig, read_model_config
from engine.models.loading import Loaded, LoadSpec
from engine.models.masks import parse_mask
from engine.models.session import Session, Target
from engine.placement.allotment import Passes, allotted
from engine.placement.hardware import Device, Machine
from engine.placement.pass_memory import TokenCounts
from engine.questions.requests import Questions, TaskSpec, get_requests, select
from engine.timing import observed_timings as rates
from engine.timing.operations import forward, gradient
from engine.timing.throughput import Typical, throughput_of
from engine.timing.workload import characters, gradient_characters
from tests.benchmarks.measure import alone, opt_125m, peak_bytes, processor_flags, task_data

SIZES, PRECISIONS = ("125m", "1.3b"), ("bf16", "int8")
REAL = (TaskSpec("arc_easy", 0), TaskSpec("arc_easy", 5), TaskSpec("winogrande", 5), TaskSpec("boolq", 1))
EMBEDDED = (TaskSpec("demo_sort", 0), TaskSpec("demo_sort", 5), TaskSpec("demo_cloze", 5))
N_QUESTIONS, N_GRADIENTS, N_ROUNDS = 8, 6, 2
BAR, MOST = 0.3, "most growth, at most"
MODULE = "tests.benchmarks.plan_arithmetic"


def compare() -> bool:
    """Whether all is within the bar; prints a line for each comparison."""
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        folders = {size: str(Path(place) / size) for size in SIZES}
        for size, folder in folders.items():
            alone(MODULE, "make", folder, size)
        good = True
        for precision in PRECISIONS:
            found = {size: alone(MODULE, "measure", folder, precision) for size, folder in folders.items()}
            for size, other in (SIZES, SIZES[::-1]):
                named, model = f"OPT-{size} in {precision}", read_model_config(folders[size])
                lines = [*_bytes(model, precision, found[size]),
                         *_seconds(model, precision, found[size], folders[other], found[other])]  # fmt: skip
                for what, unit, expected, measured in lines:
                    ratio = expected / measured
                    good &= 1 - BAR <= ratio and (ratio <= 1 + BAR or what == MOST)
                    print(f"{named}, {what}: {ratio:.2f} ({expected:.4g} forecast, {measured:.4g} {unit} measured)")
    print(f"all within {BAR:.0%}" if good else f"NOT all within {BAR:.0%}")
    return good


Line = tuple[str, str, float, float]  # what, unit, forecast, measured


def _bytes(model: ModelConfig, precision: str, found: dict[str, Any]) -> list[Line]:
    passes = Passes(TokenCounts(*found["scoring"]), TokenCounts(*found["gradients"]))
    [share] = allotted(model, precision, Machine(1, Device("cpu", 10**12)), passes).shares
    weights, libraries = model.parts.n_bytes(precision), share.n_bytes["libraries"]
    return [("weights", "bytes", weights, found["weights"]), ("growth by loading", "bytes", weights, found["growth"]),
            (MOST, "bytes", share.total - libraries, found["most"])]  # fmt: skip


def _seconds(
    model: ModelConfig, precision: str, found: dict[str, Any], other: str, of_other: dict[str, Any]
) -> list[Line]:  # fmt: skip
    tasks = of_other["tasks"]
    names = ("characters", "seconds", "gradient_characters", "gradient_seconds", "passes")
    total = {name: sum(each[name] for each in tasks.values()) for name in names}
    read, gold = (reduce(add, (TokenCounts(*each[name]) for each in tasks.values())) for name in ("read", "gold"))
    back = partial(gradient, reading=gold, passes=total["passes"])
    typical = Typical(partial(forward, reading=read), total["characters"], back, total["gradient_characters"])
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(folder)
        target = Session(store).target(LoadSpec(other, precision))
        rates.learn(store, target, "forward", total["characters"], total["seconds"])
        rates.learn(store, target, "gradient", total["gradient_characters"], total["gradient_seconds"])
        pace = throughput_of(store, Device("cpu", 10**12), model, precision, typical)
        store.close()
    assert pace is not None and pace.is_measured
    lines: list[Line] = []
    for task, each in found["tasks"].items():
        scored, ranked = (
            forward(model, TokenCounts(*each["read"])),
            gradient(model, TokenCounts(*each["gold"]), each["passes"]),
        )
        for what, work, taken, n in (("scored", scored, each["seconds"], N_QUESTIONS),
                                     ("gradients", ranked, each["gradient_seconds"], N_GRADIENTS)):  # fmt: skip
            lines.append((f"{task}, {what}", "s a question", pace.seconds(work) / n, taken / n))
    return lines


def make(folder: str, size: str) -> None:
    """Writes a random model of that shape in 16 bits."""
    sizes = {name: value for name, value in opt_config(size).items() if name not in ("model_type", "vocab_size")}
    opt_125m(folder, **sizes, dtype="bfloat16")


def measure(folder: str, precision: str) -> dict[str, Any]:
    """What a model holds and takes, in a process of its own."""
    import psutil

    process = psutil.Process()
    with tempfile.TemporaryDirectory() as place:
        session = Session(open_store(place))
        session.models.get(LoadSpec("demo", precision))  # libraries, and what they set up with the first model
        questions = {task: _questions(task, session) for task in (REAL if task_data() else EMBEDDED)}
        session.models.unload()
        target, before = session.target(LoadSpec(folder, precision)), process.memory_info().rss
        loaded = session.models.get(target.spec)
        found: dict[str, Any] = {"weights": _held(loaded.model), "growth": process.memory_info().rss - before}
        found["tasks"] = {f"{task.name} {task.shots}": _taken(loaded, target, questions[task]) for task in questions}
        found["most"] = peak_bytes() - before
        for kind in ("scoring", "gradients"):
            found[kind] = max(each.pop(kind) for each in found["tasks"].values())
        session.store.close()
    return found


def _taken(loaded: Loaded, target: Target, questions: Questions) -> dict[str, Any]:
    """What passes over some questions read and take; then they are scored with half the heads as well."""
    from engine.accuracy.evaluation import encoded_chunk
    from engine.accuracy.scoring import score
    from engine.importance.gradients import gate_gradients
    from engine.importance.importance import GRADIENT_TOKENS, _groups
    from engine.models.slicing import applied, sliced
    from engine.questions.encoding import batches, joined, pack
    from engine.questions.lengths import reading_of

    chunk, n_heads = questions.order[:N_QUESTIONS], target.shape.n_heads
    encoded, some = encoded_chunk(loaded, target, questions, chunk), questions.at(chunk)
    rows = [row for choices in encoded for row in pack(choices)]
    rights = [choices[question.golds[0]] for choices, question in zip(encoded, some, strict=True)]
    golds = _groups([row for right in rights[:N_GRADIENTS] for row in pack([right])], GRADIENT_TOKENS)
    passes = [[row for group in groups for row in group] for groups in joined(batches(rows))]
    taken = {
        "characters": characters(some), "gradient_characters": gradient_characters(some[:N_GRADIENTS], False),
        "read": astuple(reading_of(rows)), "gold": astuple(reduce(add, map(reading_of, golds))),
        "passes": len(golds), "seconds": _best_s(lambda: list(score(loaded, encoded))),
        "gradient_seconds": _best_s(lambda: [gate_gradients(loaded, each) for each in golds]),
        "scoring": max(astuple(reading_of(each)) for each in passes),
        "gradients": max(astuple(reading_of(each)) for each in golds),
    }  # fmt: skip
    half = parse_mask(f"L*H0-{n_heads // 2 - 1}", target.shape)
    with applied(loaded, sliced(loaded, half)):
        list(score(loaded, encoded))
    return taken


def _questions(task: TaskSpec, session: Session) -> Questions:
    return select(get_requests(task, task_data(), session.store), N_QUESTIONS, "stratified")


def _best_s(run: Callable[[], Any]) -> float:
    """Processor seconds of the shortest of some rounds."""
    taken = []
    for _ in range(N_ROUNDS):
        began = time.process_time()
        run()
        taken.append(time.process_time() - began)
    return min(taken)


def _held(model: Any) -> int:
    """Bytes of parameters, buffers and the scales of int8 matrices, each once."""
    held = {each.data_ptr(): each.numel() * each.element_size() for each in (*model.parameters(), *model.buffers())}
    for module in model.modules():
        for kept in (getattr(module, "state", None), getattr(module, "weight", None)):
            if (scales := getattr(kept, "SCB", None)) is not None:
                held[scales.data_ptr()] = scales.numel() * scales.element_size()
    return sum(held.values())


def main(what: str = "", *arguments: str) -> int:
    """Exit code: 0 where all is within the bar. With arguments, what runs in a process of its own."""
    if what:
        found = {"make": make, "measure": measure}[what](*arguments)
        print(f"\n{json.dumps(found)}")
        return 0
    os.environ["OMP_NUM_THREADS"] = "1"
    print(f"one thread; {'AMX' if 'amx' in processor_flags() else 'no AMX'}")
    return 0 if compare() else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""What `headroom plan` says against what is: random models of OPT-125m's and OPT-1.3b's shapes, in bf16 and int8.

`.venv/bin/python -m tests.benchmarks.plan_arithmetic`; minutes, and up to 6 GB of memory and 3 of /tmp. Bytes: of the
weights, of what the process grows by when a model is loaded, and the most it grows by in passes under a mask and in
gradient passes. Seconds of each shape are scaled from what the *other* one took. They are processor time of one thread,
which other work on the machine lengthens least; the best of a few rounds.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cache import open_store
from engine.architecture.model_config import ModelConfig, opt_config
from engine.checkpoints.config_lookup import read_model_config
from engine.models.loading import Loaded, LoadSpec
from engine.models.masks import parse_mask
from engine.models.session import Session, Target
from engine.placement.devices import Device
from engine.placement.needs import study_needs
from engine.questions.requests import Questions, TaskSpec, get_requests, select
from engine.timing import observed_timings
from engine.timing.observed_timings import scaled_timing
from engine.timing.workload import characters, gradient_characters
from tests.benchmarks.measure import alone, in_turn, opt_125m, peak_bytes, processor_flags, task_data
from tests.engine.fixtures import held_bytes

SIZES, PRECISIONS = ("125m", "1.3b"), ("bf16", "int8")
REAL = (TaskSpec("arc_easy", 0), TaskSpec("arc_easy", 5), TaskSpec("winogrande", 5), TaskSpec("boolq", 1))
EMBEDDED = (TaskSpec("demo_sort", 0), TaskSpec("demo_sort", 5), TaskSpec("demo_cloze", 5))
N_QUESTIONS, N_GRADIENTS, N_ROUNDS = 8, 6, 2
KINDS = ("forward", "gradient")
Line = tuple[str, str, float, float]  # what, unit, forecast, measured


def compare() -> None:
    """Prints a line for each comparison."""
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        folders = {size: str(Path(place) / size) for size in SIZES}
        for size, folder in folders.items():
            alone(make, folder, size)
        for precision in PRECISIONS:
            found = {size: alone(measure, folder, precision) for size, folder in folders.items()}
            for size, other in (SIZES, SIZES[::-1]):
                model = read_model_config(folders[size])
                lines = [*_bytes(model, precision, found[size]),
                         *_seconds(model, precision, found[size], folders[other], found[other])]  # fmt: skip
                for what, unit, told, measured in lines:
                    print(f"OPT-{size} in {precision}, {what}: {told / measured:.2f} ({told:.4g} forecast, "
                          f"{measured:.4g} {unit} measured)")  # fmt: skip


def _bytes(model: ModelConfig, precision: str, found: dict[str, Any]) -> Iterator[Line]:
    needs, weights = study_needs(model, precision, "cpu", found["longest"]), model.parts.n_bytes(precision)
    yield "weights", "bytes", weights, found["weights"]
    yield "growth by loading", "bytes", weights, found["growth"]
    yield "most growth, at most", "bytes", needs.total - needs.running["libraries"], found["most"]


def _seconds(
    model: ModelConfig, precision: str, found: dict[str, Any], other: str, of_other: dict[str, Any]
) -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(folder)
        target = Session(store).target(LoadSpec(other, precision))
        for kind in KINDS:
            read, seconds = (sum(each[kind][at] for each in of_other["tasks"].values()) for at in (0, 1))
            observed_timings.learn(store, target, kind, read, seconds)
        timing = scaled_timing(store, model, precision, Device("cpu", 10**12))
        store.close()
    assert timing is not None
    for task, each in found["tasks"].items():
        for kind in KINDS:
            read, seconds = each[kind]
            yield f"{task}, {kind}", "s", timing.seconds({kind: read}), seconds


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
        found: dict[str, Any] = {"weights": held_bytes(loaded.model), "growth": process.memory_info().rss - before}
        found["tasks"] = {f"{task.name} {task.shots}": _taken(loaded, target, questions[task]) for task in questions}
        found["most"] = peak_bytes() - before
        found["longest"] = max(each.pop("longest") for each in found["tasks"].values())
        session.store.close()
    return found


def _taken(loaded: Loaded, target: Target, questions: Questions) -> dict[str, Any]:
    """(characters, seconds) of passes over some questions by kind; then they are scored with half the heads as well."""
    from engine.accuracy.evaluation import encoded_chunk
    from engine.accuracy.scoring import score
    from engine.importance.activity import gate_gradients
    from engine.importance.importance import GRADIENT_TOKENS, _groups
    from engine.models.slicing import applied, sliced
    from engine.questions.encoding import pack

    chunk, n_heads = questions.order[:N_QUESTIONS], target.shape.n_heads
    encoded, some = encoded_chunk(loaded, target, questions, chunk), questions.at(chunk)
    rights = [choices[question.golds[0]] for choices, question in zip(encoded, some, strict=True)]
    golds = _groups([row for right in rights[:N_GRADIENTS] for row in pack([right])], GRADIENT_TOKENS)
    forward_s = _best_s(lambda: list(score(loaded, encoded)))
    gradient_s = _best_s(lambda: [gate_gradients(loaded, each) for each in golds])
    half = parse_mask(f"L*H0-{n_heads // 2 - 1}", target.shape)
    with applied(loaded, sliced(loaded, half)):
        list(score(loaded, encoded))
    return {
        "forward": (characters(some), forward_s),
        "gradient": (gradient_characters(some[:N_GRADIENTS], False), gradient_s),
        "longest": max(len(row.tokens) for choices in encoded for row in pack(choices)),
    }


def _questions(task: TaskSpec, session: Session) -> Questions:
    return select(get_requests(task, task_data(), session.store), N_QUESTIONS, "stratified")


def _best_s(run: Callable[[], Any]) -> float:
    """Processor seconds of the shortest of some rounds."""
    return min(in_turn([run], N_ROUNDS, time.process_time)[0].seconds)


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    print(f"one thread; {'AMX' if 'amx' in processor_flags() else 'no AMX'}")
    compare()

"""Questions a second: packed scoring against lm-eval's HFLM at the best of its batch sizes, on the same questions.

Each side has its own copy of the model: ours as `engine.models.loading` loads it, HFLM's as transformers and
bitsandbytes do, both with the threads that `engine.models.loading` sets. A cell is a task and a number of shots; real
tasks where there are any (the embedded model has its own). HFLM's batch size is the fastest on a third of the
questions. A cell has 40 questions, or as many as keep it under `TOKENS` tokens of HFLM's; HEADROOM_BENCH_ALL=1 lifts
that, which takes a night. Quick is the embedded model alone, with half the tokens. Times are the processor's, which
other work in between does not lengthen; a cell is run twice, the two sides in turn, and the lesser time counts.

In front of them, on a model of OPT-125m's shape, 8 bits against 16 and 32, all of them ours and in turn: only where the
processor multiplies 8-bit numbers itself (VNNI) can they be expected to be faster.
"""

import gc
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from engine.accuracy.scoring import score
from engine.models.loading import LoadSpec, load
from engine.questions.encoding import encode_questions
from engine.questions.requests import CHUNK, Question, TaskSpec, get_requests
from engine.questions.tasks import embedded_tasks
from tests.benchmarks.measure import Comparison, as_transformers_loads, finished, opt_125m, processor_flags, task_data

FAMILY = "Questions a second, against lm-eval's HFLM"
N_QUESTIONS, BATCH_SIZES, N_ROUNDS = 40, (1, 8, 16, 32), 2
CELLS = (("piqa", 0), ("piqa", 1), ("arc_easy", 0), ("hellaswag", 0), ("boolq", 0), ("lambada_openai", 0),
         ("winogrande", 0), ("arc_challenge", 5), ("copa", 5), ("openbookqa", 5), ("rte", 1))  # fmt: skip
DEMO_CELLS = tuple((name, shots) for name in ("demo_outfit", "demo_translation") for shots in (0, 1, 5))
TOKENS = {"demo": {"fp32": 10_000, "bf16": 10_000, "int8": 10_000}, "": {"fp32": 1_500, "bf16": 2_500, "int8": 2_500}}
EVERYTHING = "HEADROOM_BENCH_ALL" in os.environ
QUICKER = 2
UNIT = "processor ms a question"
BARS = {"fp32": 2.4, "bf16": 2.3, "int8": 4.5}  # on a processor with bf16 and VNNI
PRECISIONS = "8 bits against 16 and 32"
AT_ONCE = 20, 3, {"bf16": 1.5, "fp32": 4.0}  # questions; rounds; bars on a processor with VNNI
LLAMA = os.environ.get("HEADROOM_BENCH_LLAMA")  # a model folder; left out without


def compare(quick: bool) -> Iterator[Comparison]:
    """One comparison for each model and precision, over the cells."""
    yield from _precisions(quick)
    with tempfile.TemporaryDirectory() as folder:
        models = {"embedded model": "demo"} if quick else {
            "embedded model": "demo", "OPT-125m shape": opt_125m(folder),
            **({Path(LLAMA).name: LLAMA} if LLAMA else {})}  # fmt: skip
        for title, model in models.items():
            for precision in ("fp32", "bf16", "int8"):
                yield _compared(title, LoadSpec(model, precision), quick)


def _precisions(quick: bool) -> Iterator[Comparison]:
    """int8 against bf16 and fp32 on one task of 0 shots: tokens scored, from encoded questions to log-likelihoods."""
    n_questions, n_rounds, bars = AT_ONCE
    task = "piqa" if task_data() else next(iter(embedded_tasks()))
    with tempfile.TemporaryDirectory() as folder:
        specs = {each: LoadSpec(opt_125m(folder), each) for each in ("int8", *bars)}
        models = {each: load(spec) for each, spec in specs.items()}
        questions = get_requests(TaskSpec(task, 0), task_data()).questions[: n_questions // (QUICKER if quick else 1)]
        encoded = _encoded(models["int8"], list(questions))
        n_tokens = sum(len(choice.inputs) for choices in encoded for choice in choices)
        taken: dict[str, list[float]] = {each: [] for each in models}
        for number in range(n_rounds + 1):
            for each, loaded in models.items():
                seconds, _ = _timed(lambda loaded=loaded: finished(score(loaded, encoded)))
                if number:  # all have run before
                    taken[each].append(1e6 * seconds / n_tokens)
        ways = models["int8"].products
    for each, bar in bars.items():
        yield Comparison(
            PRECISIONS, f"OPT-125m shape, int8 against {each}, {task}", "processor µs a token", tuple(taken["int8"]),
            tuple(taken[each]), f"{n_rounds} rounds", bar if "vnni" in processor_flags() else None,
            f"int8 by {ways.int8} products",
        )  # fmt: skip


def _compared(title: str, spec: LoadSpec, quick: bool) -> Comparison:
    ours = load(spec)
    plain = as_transformers_loads(ours.identity.folder, spec.precision)
    costs, differences = ([], []), []
    cells = CELLS if task_data() else DEMO_CELLS
    for name, shots in cells:
        questions = _questions(ours, name, shots, spec, quick)
        mine, usual, difference = _cell(ours, plain, questions)
        costs[0].append(1000 * mine / len(questions))
        costs[1].append(1000 * usual / len(questions))
        differences.append(difference)
        cell = f"{title}, {spec.precision}, {name}, {shots} shots, {len(questions)} questions"
        print(f"  {cell}: {usual / mine:.2f}", flush=True)
    del ours, plain
    gc.collect()
    return Comparison(
        FAMILY, f"{title}, {spec.precision}", UNIT, tuple(costs[0]), tuple(costs[1]), f"{len(cells)} cells",
        BARS[spec.precision], f"log-likelihoods differ by at most {max(differences):.1e} nats",
    )  # fmt: skip


def _questions(loaded: Any, name: str, shots: int, spec: LoadSpec, quick: bool) -> list[Question]:
    """The first questions, as many as the tokens allow."""
    questions = list(get_requests(TaskSpec(name, shots), task_data()).questions[:N_QUESTIONS])
    budget = TOKENS.get(spec.model, TOKENS[""])[spec.precision] // (QUICKER if quick else 1)
    encoded = _encoded(loaded, questions)
    n_tokens = np.cumsum([sum(len(choice.inputs) for choice in choices) for choices in encoded])
    few = N_QUESTIONS if EVERYTHING else max(2, int((n_tokens <= budget).sum()))
    return questions[:few]


def _encoded(loaded: Any, questions: list[Question]) -> Any:
    bos = loaded.identity.default_bos
    return encode_questions(questions, loaded.tokenizer, bos, loaded.identity.shape.n_ctx)


def _cell(ours: Any, plain: Any, questions: list[Question]) -> tuple[float, float, float]:
    """(seconds of ours, of HFLM, largest difference in nats)."""
    from lm_eval.models.huggingface import HFLM

    bos = ours.identity.default_bos
    harness = {
        size: HFLM(pretrained=plain, tokenizer=ours.tokenizer, add_bos_token=bos, batch_size=size)
        for size in BATCH_SIZES
    }
    some = questions[: max(2, len(questions) // 3)]
    tried = {size: _timed(_theirs, lm, some)[0] for size, lm in harness.items()}
    best = harness[min(tried, key=tried.__getitem__)]
    _ours(ours, some)  # both have run before
    rounds = [(_timed(_ours, ours, questions), _timed(_theirs, best, questions)) for _ in range(N_ROUNDS)]
    mine, usual = (min(each[side][0] for each in rounds) for side in (0, 1))
    (_, found), (_, expected) = rounds[0]
    flat = [value for question, row in zip(questions, found, strict=True) for value in row[: len(question.contexts)]]
    return mine, usual, max(abs(a - b) for a, b in zip(flat, expected, strict=True))


def _ours(loaded: Any, questions: list[Question]) -> Any:
    encoded = _encoded(loaded, questions)
    chunks = [encoded[start : start + CHUNK] for start in range(0, len(encoded), CHUNK)]  # as they are stored
    return [row for chunk in chunks for row in finished(score(loaded, chunk))[0]]


def _theirs(lm: Any, questions: list[Question]) -> list[float]:
    from lm_eval.api.instance import Instance

    pairs = [pair for each in questions for pair in zip(each.contexts, each.continuations, strict=True)]
    return [value for value, _ in lm.loglikelihood([Instance("loglikelihood", {}, pair, 0) for pair in pairs], True)]


def _timed(run: Any, *arguments: Any) -> tuple[float, Any]:
    started = time.process_time()
    found = run(*arguments)
    return time.process_time() - started, found

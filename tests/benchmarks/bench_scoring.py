"""Questions a second: packed scoring against lm-eval's HFLM at the best of its batch sizes, on the same questions.

Real tasks (the embedded model's own where there are none) at 0, 1 and 5 shots, in fp32, bf16 and int8, each side with
its own copy of the model: ours as `engine.models.loading` loads it, HFLM's as transformers does, both with the threads
that `engine.models.loading` sets. HFLM's batch size is the fastest on a third of the questions. A cell has 40
questions, or as many as keep it under `TOKENS` tokens of HFLM's; the large models have every fourth task.
HEADROOM_BENCH_ALL=1 lifts both, which takes a night; quick is the embedded model alone, with half the tokens. One
comparison is a model, precision and number of shots, over the tasks. Times are the processor's, which other work in
between does not lengthen.
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
from engine.questions.requests import Question, TaskSpec, get_requests
from engine.questions.tasks import embedded_tasks
from tests.benchmarks.measure import Comparison, as_transformers_loads, finished, opt_125m, task_data

FAMILY = "Questions a second, against lm-eval's HFLM"
N_QUESTIONS, BATCH_SIZES, SHOTS = 40, (1, 8, 16, 32), (0, 1, 5)
TOKENS = {"demo": {"fp32": 10_000, "bf16": 2_500, "int8": 5_000}, "": {"fp32": 3_000, "bf16": 500, "int8": 1_000}}
EVERYTHING = "HEADROOM_BENCH_ALL" in os.environ
QUICKER = 2
UNIT = "processor ms a question"
BARS = {"fp32": 6.0, "bf16": 6.0, "int8": 4.0}
LLAMA = os.environ.get("HEADROOM_BENCH_LLAMA")  # a model folder; left out without


def compare(quick: bool) -> Iterator[Comparison]:
    """One comparison for each model, precision and number of shots."""
    with tempfile.TemporaryDirectory() as folder:
        models = {"embedded model": "demo"} if quick else {
            "embedded model": "demo", "OPT-125m shape": opt_125m(folder),
            **({Path(LLAMA).name: LLAMA} if LLAMA else {})}  # fmt: skip
        for title, model in models.items():
            for precision in ("fp32", "bf16", "int8"):
                yield from _compared(title, LoadSpec(model, precision), quick)


def _compared(title: str, spec: LoadSpec, quick: bool) -> Iterator[Comparison]:
    ours = load(spec)
    plain = as_transformers_loads(ours.identity.folder, spec.precision)
    some = spec.model != "demo" and not EVERYTHING
    for k in SHOTS:
        costs, differences, cells = ([], []), [], _tasks()[:: 4 if some else 1]
        for name in cells:
            questions = _questions(ours, name, k, spec, quick)
            mine, usual, difference = _cell(ours, plain, questions)
            costs[0].append(1000 * mine / len(questions))
            costs[1].append(1000 * usual / len(questions))
            differences.append(difference)
            cell = f"{title}, {spec.precision}, {name}, {k} shots, {len(questions)} questions"
            print(f"  {cell}: {usual / mine:.2f}", flush=True)
        yield Comparison(
            FAMILY, f"{title}, {spec.precision}, {k} shots", UNIT, tuple(costs[0]), tuple(costs[1]),
            f"{len(cells)} tasks", BARS[spec.precision],
            f"log-likelihoods differ by at most {max(differences):.1e} nats",
        )  # fmt: skip
    del ours, plain
    gc.collect()


def _tasks() -> list[str]:
    folder = task_data()
    return sorted(each.name for each in Path(folder).iterdir() if each.is_dir()) if folder else list(embedded_tasks())


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
    usual, expected = _timed(_theirs, harness[min(tried, key=tried.__getitem__)], questions)
    _ours(ours, some)  # both have run before
    mine, found = _timed(_ours, ours, questions)
    flat = [value for question, row in zip(questions, found, strict=True) for value in row[: len(question.contexts)]]
    return mine, usual, max(abs(a - b) for a, b in zip(flat, expected, strict=True))


def _ours(loaded: Any, questions: list[Question]) -> Any:
    return finished(score(loaded, _encoded(loaded, questions)))[0]


def _theirs(lm: Any, questions: list[Question]) -> list[float]:
    from lm_eval.api.instance import Instance

    pairs = [pair for each in questions for pair in zip(each.contexts, each.continuations, strict=True)]
    return [value for value, _ in lm.loglikelihood([Instance("loglikelihood", {}, pair, 0) for pair in pairs], True)]


def _timed(run: Any, *arguments: Any) -> tuple[float, Any]:
    started = time.process_time()
    found = run(*arguments)
    return time.process_time() - started, found

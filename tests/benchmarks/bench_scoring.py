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
from engine.questions.rendering import CHUNK, Question, TaskSpec, render_questions
from engine.questions.tasks import embedded_tasks
from tests.benchmarks.measure import (
    Comparison,
    as_transformers_loads,
    encoded,
    finished,
    in_turn,
    opt_125m,
    processor_flags,
    task_data,
)

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
            for precision in BARS:
                yield _compared(title, LoadSpec(model, precision), quick)


def _precisions(quick: bool) -> Iterator[Comparison]:
    """int8 against bf16 and fp32 on one task of 0 shots: tokens scored, from encoded questions to log-likelihoods."""
    n_questions, n_rounds, bars = AT_ONCE
    task = "piqa" if task_data() else next(iter(embedded_tasks()))
    with tempfile.TemporaryDirectory() as folder:
        models = [load(LoadSpec(opt_125m(folder), each)) for each in ("int8", *bars)]
        questions = render_questions(TaskSpec(task, 0), task_data()).questions[
            : n_questions // (QUICKER if quick else 1)
        ]
        asked = encoded(models[0], questions)
        n_tokens = sum(len(choice.inputs) for choices in asked for choice in choices)
        ways = [lambda model=model: finished(score(model, asked)) for model in models]
        int8, *others = (each.per(n_tokens, 1e6) for each in in_turn(ways, n_rounds, time.process_time, warm_up=True))
    for (precision, bar), other in zip(bars.items(), others, strict=True):
        yield Comparison(
            PRECISIONS, f"OPT-125m shape, int8 against {precision}, {task}", "processor µs a token", int8, other,
            f"{n_rounds} rounds", bar if "vnni" in processor_flags() else None,
            f"int8 by {models[0].products.int8} products",
        )  # fmt: skip


def _compared(title: str, spec: LoadSpec, quick: bool) -> Comparison:
    ours = load(spec)
    plain = as_transformers_loads(ours.identity.folder, spec.precision)
    found = []
    for name, shots in CELLS if task_data() else DEMO_CELLS:
        questions = _questions(ours, name, shots, spec, quick)
        found.append(_cell(ours, plain, questions))
        mine, usual, _ = found[-1]
        cell = f"{title}, {spec.precision}, {name}, {shots} shots, {len(questions)} questions"
        print(f"  {cell}: {usual / mine:.2f}", flush=True)
    del ours, plain
    gc.collect()
    mine, usual, differences = zip(*found, strict=True)
    return Comparison(
        FAMILY, f"{title}, {spec.precision}", UNIT, mine, usual, f"{len(found)} cells", BARS[spec.precision],
        f"log-likelihoods differ by at most {max(differences):.1e} nats",
    )  # fmt: skip


def _questions(loaded: Any, name: str, shots: int, spec: LoadSpec, quick: bool) -> list[Question]:
    """The first questions, as many as the tokens allow."""
    questions = list(render_questions(TaskSpec(name, shots), task_data()).questions[:N_QUESTIONS])
    budget = TOKENS.get(spec.model, TOKENS[""])[spec.precision] // (QUICKER if quick else 1)
    n_tokens = np.cumsum([sum(len(choice.inputs) for choice in choices) for choices in encoded(loaded, questions)])
    few = N_QUESTIONS if EVERYTHING else max(2, int((n_tokens <= budget).sum()))
    return questions[:few]


def _cell(ours: Any, plain: Any, questions: list[Question]) -> tuple[float, float, float]:
    """(milliseconds a question of ours, of HFLM, largest difference in nats)."""
    from lm_eval.models.huggingface import HFLM

    bos, some = ours.identity.default_bos, questions[: max(2, len(questions) // 3)]
    harness = [
        HFLM(pretrained=plain, tokenizer=ours.tokenizer, add_bos_token=bos, batch_size=size) for size in BATCH_SIZES
    ]
    tried = in_turn([lambda lm=lm: _theirs(lm, some) for lm in harness], 1, time.process_time)
    best = harness[min(range(len(tried)), key=lambda at: tried[at].seconds)]
    _ours(ours, some)  # both have run before
    sides = [lambda: _ours(ours, questions), lambda: _theirs(best, questions)]
    mine, usual = in_turn(sides, N_ROUNDS, time.process_time)
    flat = [
        value for question, row in zip(questions, mine.found, strict=True) for value in row[: len(question.contexts)]
    ]
    apart = max(abs(a - b) for a, b in zip(flat, usual.found, strict=True))
    return *(min(each.per(len(questions), 1000)) for each in (mine, usual)), apart


def _ours(loaded: Any, questions: list[Question]) -> Any:
    asked = encoded(loaded, questions)
    chunks = [asked[start : start + CHUNK] for start in range(0, len(asked), CHUNK)]  # as they are stored
    return [row for chunk in chunks for row in finished(score(loaded, chunk))[0]]


def _theirs(lm: Any, questions: list[Question]) -> list[float]:
    from lm_eval.api.instance import Instance

    pairs = [pair for each in questions for pair in zip(each.contexts, each.continuations, strict=True)]
    return [value for value, _ in lm.loglikelihood([Instance("loglikelihood", {}, pair, 0) for pair in pairs], True)]

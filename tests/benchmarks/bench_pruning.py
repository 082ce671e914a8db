"""What not computing pruned parts, restarting in the middle and sharing examples each save: OPT-125m's shape, fp32.

Masked against sliced at 70 % of heads and 20 % of FFNs; one whole evaluation for each FFN against the oracle; examples
drawn anew for each question against the same for all. Sides run in turn in this process, on the embedded questions.
"""

import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from engine.accuracy.restarts import score_each
from engine.accuracy.scoring import score
from engine.importance.rankings import mask_at, random_order
from engine.models.loading import LoadSpec, load
from engine.models.masks import Mask, pruned, single_ablations
from engine.models.slicing import applied, sliced
from engine.questions.encoding import encode_questions
from engine.questions.requests import TaskSpec, get_requests
from tests.benchmarks.measure import Comparison, finished, in_turn, opt_125m

TASKS = (("demo_sort", 0), ("demo_outfit", 5), ("demo_question", 5))
N_QUESTIONS, N_ROUNDS = 8, 5
SLICED = "70 % of heads and 20 % of FFNs pruned: sliced against masked"
ORACLE = "FFN oracle: restarts against one evaluation an FFN"
SAME = "5 shots: the same examples for all questions against the harness's drawing"


def compare(quick: bool) -> Iterator[Comparison]:
    """Seconds of each, task by task."""
    n_rounds = 2 if quick else N_ROUNDS
    with tempfile.TemporaryDirectory() as folder:
        model = load(LoadSpec(opt_125m(folder), "fp32"))
        found = [list(_compared(model, name, shots, n_rounds)) for name, shots in (TASKS[:2] if quick else TASKS)]
    for family in (SLICED, ORACLE, SAME):
        yield from (each for task in found for each in task if each.family == family)


def _compared(model: Any, name: str, shots: int, n_rounds: int) -> Iterator[Comparison]:
    shape = model.identity.shape
    mask = mask_at(shape, random_order(shape.n_heads_total, 0), random_order(shape.n_layers, 0), 700, 200)
    every = [Mask.full(shape), *single_ablations(shape, "ffns")]
    encoded = _encoded(model, TaskSpec(name, shots))

    def smaller() -> Any:
        parts = sliced(model, mask)
        return finished(score(model, encoded), lambda: applied(model, parts))[0]

    yield _comparison(
        SLICED,
        name,
        shots,
        n_rounds,
        1.3,
        smaller,
        lambda: finished(score(model, encoded), lambda: pruned(model, mask))[0],
    )
    yield _comparison(
        ORACLE, name, shots, n_rounds, 1 / 0.6,
        lambda: [scored[0] for scored in finished(score_each(model, encoded, every))],
        lambda: [finished(score(model, encoded), lambda each=each: pruned(model, each))[0] for each in every],
    )  # fmt: skip
    if shots:
        shared = _encoded(model, TaskSpec(name, shots, same_examples=True))
        yield _comparison(
            SAME,
            name,
            shots,
            n_rounds,
            2.0,
            lambda: finished(score(model, shared)),
            lambda: finished(score(model, encoded)),
            comparable=False,
        )


def _encoded(model: Any, task: TaskSpec) -> Any:
    questions = get_requests(task).questions[:N_QUESTIONS]
    return encode_questions(questions, model.tokenizer, True, model.identity.shape.n_ctx)


def _comparison(
    family: str, name: str, shots: int, n_rounds: int, bar: float, ours: Any, usual: Any, comparable: bool = True
) -> Comparison:
    ours_s, usual_s, found, expected = in_turn(ours, usual, n_rounds)
    apart = float(np.nanmax(np.abs(np.subtract(found, expected)))) if comparable else 0.0
    same = f"log-likelihoods differ by at most {apart:.0e} nats" if comparable else "other examples, so other numbers"
    return Comparison(family, f"{name}, {shots} shots", "s", ours_s, usual_s, f"{n_rounds} rounds", bar, same)

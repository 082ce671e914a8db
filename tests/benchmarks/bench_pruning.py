"""What not computing pruned parts, restarting in the middle and sharing examples each save: OPT-125m's shape, fp32.

Masked against sliced at 70% of heads and 20% of FFNs; one whole evaluation for each FFN against the oracle; examples
drawn anew for each question against the same for all. Sides run in turn in this process, on the embedded questions.
"""

import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from engine.accuracy.restarts import score_each
from engine.accuracy.scoring import score
from engine.importance.orders import Orders
from engine.importance.rankings import random_order
from engine.models.loading import LoadSpec, load
from engine.models.masks import Mask, pruned, single_ablations
from engine.models.slicing import applied, sliced
from engine.questions.rendering import TaskSpec, render_questions
from tests.benchmarks.measure import Comparison, encoded, finished, in_turn, opt_125m

TASKS = (("demo_sort", 0), ("demo_outfit", 5), ("demo_question", 5))
N_QUESTIONS, N_ROUNDS = 8, 5
SLICED = "70% of heads and 20% of FFNs pruned: sliced against masked"
ORACLE = "FFN oracle: restarts against one evaluation an FFN"
SAME = "5 shots: the same examples for all questions against the harness's drawing"
BARS = {SLICED: 1.3, ORACLE: 1 / 0.6, SAME: 2.0}


def compare(quick: bool) -> Iterator[Comparison]:
    """Seconds of each, task by task."""
    n_rounds, tasks = (2, TASKS[:2]) if quick else (N_ROUNDS, TASKS)
    with tempfile.TemporaryDirectory() as folder:
        model = load(LoadSpec(opt_125m(folder), "fp32"))
        for family, bar in BARS.items():
            for name, shots in tasks:
                if not shots and family == SAME:
                    continue
                ours, usual = in_turn(sides(family, model, name, shots), n_rounds)
                apart = "other examples, so other numbers"
                if family != SAME:
                    nats = float(np.nanmax(np.abs(np.subtract(ours.found, usual.found))))
                    apart = f"log-likelihoods differ by at most {nats:.0e} nats"
                yield Comparison(family, f"{name}, {shots} shots", "s", ours.seconds, usual.seconds,
                                 f"{n_rounds} rounds", bar, apart)  # fmt: skip


def sides(family: str, model: Any, name: str, shots: int) -> tuple[Any, Any]:
    """Our way and the usual one."""
    shape = model.identity.shape
    questions, shared = (
        encoded(model, render_questions(TaskSpec(name, shots, same_examples=same)).questions[:N_QUESTIONS])
        for same in (False, True)
    )

    def masked(mask: Mask) -> Any:
        return finished(score(model, questions), lambda: pruned(model, mask))[0]

    if family == SAME:
        return lambda: finished(score(model, shared)), lambda: finished(score(model, questions))
    if family == ORACLE:
        every = [Mask.full(shape), *single_ablations(shape, "ffns")]
        each = lambda: [scored[0] for scored in finished(score_each(model, questions, every))]  # noqa: E731
        return each, lambda: [masked(mask) for mask in every]
    mask = Orders(shape, random_order(shape.n_heads_total, 0), random_order(shape.n_layers, 0)).mask(700, 200)

    def smaller() -> Any:
        parts = sliced(model, mask)
        return finished(score(model, questions), lambda: applied(model, parts))[0]

    return smaller, lambda: masked(mask)

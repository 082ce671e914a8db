"""What the Prune screen measures: an `Experiment`, its jobs (generators for the worker), and what is stored of it.

No streamlit here: the generators run in the worker thread, and everything can be tested as plain functions.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np

from engine.accuracy.evaluation import Answers, evaluate, recall, wilson
from engine.importance.rankings_of import NEEDS, Evidence, Orders, Ranking, compute_orders, orders_from, recall_evidence
from engine.jobs import Progress
from engine.models.checkpoints import Identity
from engine.models.loading import LoadSpec, Models
from engine.models.masks import Mask
from engine.questions.requests import Requests, Selection, TaskSpec, get_requests, select
from engine.statistics import MIN_QUESTIONS
from pages.ui.shared.closing import command_line

Axis = Literal["heads", "ffns"]
LEVELS_PERMILLE = range(0, 1001, 100)
RANKING_QUESTIONS = 64  # train questions behind a ranking: in int8 on a CPU their gradients take half a second each
SAMPLE = "stratified"  # so that the figure over the first few questions is a fair preview


class Levelled(Protocol):
    """What two levels of a ranking take to be set."""

    @property
    def spec(self) -> LoadSpec: ...
    @property
    def bos(self) -> bool | None: ...
    @property
    def data_dir(self) -> str | None: ...
    @property
    def identity(self) -> Identity: ...
    @property
    def task(self) -> TaskSpec: ...
    @property
    def ranked(self) -> Ranking: ...
    @property
    def heads_permille(self) -> int: ...
    @property
    def ffns_permille(self) -> int: ...


@dataclass(frozen=True)
class Measured:
    """Answers so far of the full and of the pruned model; None = not begun."""

    full: Answers | None
    pruned: Answers | None


@dataclass(frozen=True)
class Experiment:
    """One setting of all controls.

    `judged` are the questions accuracy is measured on (validation), `train` those importance is measured on (None until
    they are rendered); `typed` is the mask of the text field, pruned on top of the two levels. Measuring stops early
    where the accuracy's 95 % interval is within `width` points either way (0: never).
    """

    spec: LoadSpec
    bos: bool | None
    data_dir: str | None
    identity: Identity
    judged: Requests
    train: Requests | None
    limit: int
    ranking: str
    heads_permille: int
    ffns_permille: int
    typed: Mask
    width: int = 0

    @property
    def task(self) -> TaskSpec:
        return self.judged.task

    @property
    def selection(self) -> Selection:
        return select(self.judged, self.limit, SAMPLE)

    @property
    def ranked(self) -> Ranking:
        return Ranking(self.ranking, n_questions=RANKING_QUESTIONS)

    @property
    def base_key(self) -> str:
        """Changes with the model, its precision and the task; not with what is pruned."""
        return f"{self.spec} {self.identity.digest} bos={self.bos} {self.judged.task} {self.judged.source}"

    @property
    def key(self) -> str:
        """Changes with anything that changes what is measured."""
        levels = f"{self.ranking} {self.heads_permille} {self.ffns_permille}"
        return f"{self.base_key} {self.limit} {levels} {self.typed.key()} {self.width}"

    def curve_key(self, axis: Axis) -> str:
        """Changes with anything that changes the curve over one axis: not with that axis's own level."""
        return f"{axis} {self.at(axis, 0).key}"

    def takes(self, n_right: int, n: int) -> bool:
        """Whether n questions are enough: all of them, or as many as the chosen width takes."""
        if n >= self.selection.n:
            return True
        if not self.width or n < MIN_QUESTIONS:
            return False
        low, high = wilson(n_right, n)
        return 50 * (high - low) <= self.width

    def enough(self, answers: Answers | None) -> bool:
        """Whether these answers are enough."""
        return answers is not None and self.takes(int(answers.correct.sum()), len(answers))

    def settled(self, measured: Measured) -> bool:
        """Whether the pruned model has enough answers, and the full model has answered the same questions."""
        full, pruned = measured.full, measured.pruned
        return full is not None and pruned is not None and self.enough(pruned) and len(full) >= len(pruned)

    def n_taken(self, measured: Measured) -> int:
        """How many questions the accuracy is over, or will be."""
        return len(measured.pruned) if measured.pruned is not None and self.settled(measured) else self.selection.n

    def at(self, axis: Axis, permille: int) -> "Experiment":
        """The same experiment with the level of one axis changed."""
        return replace(self, **{f"{axis}_permille": permille})

    def level(self, axis: Axis) -> int:
        return self.heads_permille if axis == "heads" else self.ffns_permille

    def mask(self, known: Evidence) -> Mask | None:
        """The mask of the two levels and the typed one; None while a ranking it needs is not known."""
        if known.missing(self.ranking, self.heads_permille > 0, self.ffns_permille > 0):
            return None
        return self.mask_by(orders_from(self.identity.shape, self.ranked, known))

    def mask_by(self, orders: Orders) -> Mask:
        return orders.mask(self.identity, self.heads_permille, self.ffns_permille) | self.typed

    def order(self, axis: Axis, known: Evidence) -> np.ndarray | None:
        """Flat indices of heads or FFNs, first to go first; None while that is not known."""
        if known.missing(self.ranking, axis == "heads", axis == "ffns"):
            return None
        return getattr(orders_from(self.identity.shape, self.ranked, known), axis)


def prepare(task: TaskSpec, data_dir: str | None, store: Any) -> Iterator[Progress]:
    """Job: renders the questions of a task; its value is their `Requests`."""
    yield Progress(1, 1, get_requests(task, data_dir, store))


def measure(x: Experiment, mask: Mask | None, models: Models, store: Any) -> Iterator[Progress]:
    """Job: the full model, then the ranking where the mask is not known without it, then the pruned model; its value is
    a `Measured`. With a width both stop early, and the full model answers at least the questions of the pruned one."""
    full = pruned = None
    full_steps = _evaluated(x, Mask.full(x.identity.shape), "Full model", models, store)
    for step in full_steps:
        full = step.value if step.value is not None else full
        yield replace(step, value=Measured(full, None))
        if x.enough(full):
            break
    mask = x.mask_by((yield from ordered(x, models, store))) if mask is None else mask
    if mask.is_full:
        yield Progress(x.selection.n, x.selection.n, Measured(full, full))
        return
    for step in _evaluated(x, mask, "Pruned model", models, store):
        pruned = step.value if step.value is not None else pruned
        yield replace(step, value=Measured(full, pruned))
        if x.enough(pruned):
            break
    while full is not None and pruned is not None and len(full) < len(pruned):
        step = next(full_steps)
        full = step.value if step.value is not None else full
        yield replace(step, value=Measured(full, pruned))


def measure_importance(x: Experiment, models: Models, store: Any) -> Iterator[Progress]:
    """Job: scores of all heads and FFNs; they are read from the store afterwards."""
    ranking = replace(x.ranked, name="importance")
    for step in compute_orders(models, x.spec, x.task, ranking, x.bos, x.data_dir, store):
        yield replace(step, value=None)


def measure_curve(x: Experiment, axis: Axis, models: Models, store: Any) -> Iterator[Progress]:
    """Job: the accuracy at every level of one axis, the other as it is; read from the store afterwards."""
    orders = yield from ordered(x.at(axis, 1000), models, store)
    yield from measure_levels(x, axis, orders, LEVELS_PERMILLE, models, store)


def measure_levels(
    x: Experiment, axis: Axis, orders: Orders, levels: Sequence[int], models: Models, store: Any
) -> Iterator[Progress]:
    """Job: the accuracy at these levels of one axis, in this order; its value is how many of them are measured."""
    n = x.selection.n
    for number, permille in enumerate(levels):
        there = x.at(axis, permille)
        for step in _evaluated(there, there.mask_by(orders), f"Curve, {permille // 10} %", models, store):
            yield Progress(number * n + step.done, len(levels) * n, number, step.message)
            if there.enough(step.value):
                break
    yield Progress(len(levels) * n, len(levels) * n, len(levels))


def recall_known(x: Experiment, store: Any) -> Evidence:
    """The scores that are stored, importance in any case, as the screen shows it; computes nothing."""
    if x.train is None:
        return Evidence()
    wanted = {"heads", "ffns", *NEEDS[x.ranking]}
    return recall_evidence(x.identity, x.spec, x.train, x.ranked, wanted, x.bos, store)


def recall_measured(x: Experiment, mask: Mask | None, store: Any) -> Measured:
    """What is stored of this experiment; computes nothing."""
    full = recall_answers(x, Mask.full(x.identity.shape), store)
    if mask is None:
        return Measured(full, None)
    return Measured(full, full if mask.is_full else recall_answers(x, mask, store))


def recall_answers(x: Experiment, mask: Mask, store: Any) -> Answers:
    """The answers under one mask that are stored, which may be some of all or none."""
    return recall(x.identity, x.spec, x.judged, x.selection, mask, x.bos, store)


def command(x: Experiment, measured: Measured) -> str:
    """The shell command that measures the same and finds what is stored here."""
    n = x.n_taken(measured)
    words = ["--task", x.task.name, "--shots", x.task.shots, "--limit", n if n < x.selection.n else x.limit]
    words += ["--sample", SAMPLE]
    words += ["--same-examples"] if x.task.same_examples else []
    if x.heads_permille or x.ffns_permille:
        words += ["--prune-heads", f"{x.heads_permille / 10:g}", "--prune-ffns", f"{x.ffns_permille / 10:g}"]
        words += ["--ranking", x.ranking, "--ranking-questions", RANKING_QUESTIONS]
    words += [] if x.typed.is_full else ["--mask", x.typed.text()]
    return command_line("evaluate", x.spec, x.bos, x.data_dir, words)


def _evaluated(x: Experiment, mask: Mask, title: str, models: Models, store: Any) -> Iterator[Progress]:
    for step in evaluate(models, x.spec, x.judged, x.selection, mask, x.bos, store):
        yield replace(step, message=step.message or title)


def ordered(x: Levelled, models: Models, store: Any) -> Generator[Progress, None, Orders]:
    """Gives the orders that the two levels need, measuring what importance is missing."""
    orders = orders_from(x.identity.shape, x.ranked, Evidence())
    if x.heads_permille or x.ffns_permille:
        ffns_too = x.ffns_permille > 0
        for step in compute_orders(models, x.spec, x.task, x.ranked, x.bos, x.data_dir, store, ffns_too=ffns_too):
            orders = step.value if step.value is not None else orders
            yield replace(step, value=None, message=step.message or "Ranking")
    return orders

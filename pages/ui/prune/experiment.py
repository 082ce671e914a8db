"""What the Prune screen measures: an `Experiment`, its jobs (generators for the worker), and what is stored of it.

No streamlit here: the generators run in the worker thread, and everything can be tested as plain functions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cache import Store
from engine.accuracy.evaluation import Answers, answers_of, evaluation
from engine.importance.criteria import CRITERIA
from engine.importance.layers import n_passes
from engine.importance.rankings_of import NEEDS, Axis, Evidence, Orders, Pruning, evidence, orders_from, orders_of
from engine.models.masks import Mask
from engine.models.subject import Lab, Subject
from engine.progress import Progress, driven, last_value
from engine.questions.requests import Questions, Requests, TaskSpec, get_requests, select
from engine.shapes import ModelShape
from engine.statistics import MIN_QUESTIONS, wilson
from pages.ui.shared.commands import command_line
from pages.ui.shared.defaults import RANKING_QUESTIONS, SAMPLE
from pages.ui.shared.tables import level_percent

LEVELS_PERMILLE = range(0, 1001, 100)
FULL, PRUNED = "Full model", "Pruned model"  # the steps of a measurement


@dataclass(frozen=True)
class AnswersSoFar:
    """Answers so far of the full and of the pruned model, None = not begun; `mask` is the pruned model's, None = not
    known yet."""

    full: Answers | None
    pruned: Answers | None
    mask: Mask | None = None


@dataclass(frozen=True)
class Experiment:
    """One setting of all controls.

    `judged` are the questions accuracy is measured on (validation), `train` those importance is measured on (None until
    they are rendered). Measuring stops early where the accuracy's 95 % interval is within `width` points either way (0:
    never).
    """

    subject: Subject
    data_dir: str | None
    judged: Requests
    train: Requests | None
    limit: int
    pruning: Pruning
    width: int = 0

    @property
    def shape(self) -> ModelShape:
        return self.subject.shape

    @property
    def task(self) -> TaskSpec:
        return self.judged.task

    @property
    def questions(self) -> Questions:
        return select(self.judged, self.limit, SAMPLE)

    @property
    def criterion(self) -> str:
        """By what heads and FFNs are scored (engine.importance.criteria.CRITERIA): what the ranking goes by, or
        importance where it goes by none of them."""
        return self.pruning.ranking.name if self.pruning.ranking.name in CRITERIA else "importance"

    @property
    def base_key(self) -> str:
        """Changes with the model, its precision and the task; not with what is pruned."""
        return f"{self.subject} {self.judged.task} {self.judged.source}"

    @property
    def key(self) -> str:
        """Changes with anything that changes what is measured."""
        return f"{self.base_key} {self.limit} {self.pruning} {self.width}"

    def curve_key(self, axis: Axis) -> str:
        """Changes with anything that changes the curve over one axis: not with that axis's own level."""
        return f"{axis} {self.at(axis, 0).key}"

    def takes(self, n_right: int, n: int) -> bool:
        """Whether n questions are enough: all of them, or as many as the chosen width takes."""
        if n >= self.questions.n:
            return True
        if not self.width or n < MIN_QUESTIONS:
            return False
        low, high = wilson(n_right, n)
        return 50 * (high - low) <= self.width

    def enough(self, answers: Answers | None) -> bool:
        """Whether these answers are enough."""
        return answers is not None and self.takes(int(answers.correct.sum()), len(answers))

    def settled(self, found: AnswersSoFar) -> bool:
        """Whether the pruned model has enough answers, and the full model has answered the same questions."""
        full, pruned = found.full, found.pruned
        return full is not None and pruned is not None and self.enough(pruned) and len(full) >= len(pruned)

    def n_taken(self, found: AnswersSoFar) -> int:
        """How many questions the accuracy is over, or will be."""
        return len(found.pruned) if found.pruned is not None and self.settled(found) else self.questions.n

    def at(self, axis: Axis, permille: int) -> "Experiment":
        """The same experiment with the level of one axis changed."""
        return replace(self, pruning=self.pruning.at(axis, permille))

    def mask(self, known: Evidence) -> Mask | None:
        """The mask of the levels and the typed one; None while a ranking it needs is not known."""
        return self.pruning.known_mask(self.shape, known)

    def by_levels(self, known: Evidence) -> Mask:
        """What is pruned by the levels alone; nothing while a ranking they need is not known."""
        if self.pruning.missing(known):
            return Mask.full(self.shape)
        return self.pruning.by_levels(self.orders(known))

    def orders(self, known: Evidence) -> Orders:
        """The orders as far as they are known."""
        return orders_from(self.shape, self.pruning.ranking, known)

    def order(self, axis: Axis, known: Evidence) -> np.ndarray | None:
        """Flat indices of heads or FFNs, or layers, first to go first; None while that is not known."""
        if axis == "layers":
            return None if known.layers is None or len(known.layers) < self.shape.n_layers else known.layers
        if known.missing(self.pruning.ranking.name, axis == "heads", axis == "ffns"):
            return None
        return getattr(self.orders(known), axis)


def prepare(task: TaskSpec, data_dir: str | None, store: Store) -> Iterator[Progress[Requests]]:
    """Job: renders the questions of a task."""
    yield Progress(1, 1, get_requests(task, data_dir, store))


def measure(x: Experiment, mask: Mask | None, lab: Lab) -> Iterator[Progress[AnswersSoFar]]:
    """Job: the full model, then the ranking where the mask is not known without it, then the pruned model. With a width
    both stop early, and the full model answers at least the questions of the pruned one."""
    full = pruned = None
    n = x.questions.n
    at, gone = x.pruning, n_passes(x.shape, x.pruning.ranking.layers_by, x.pruning.n_layers_dropped) / 2
    passes = 2 * (at.heads_permille > 0) + x.shape.n_layers / 2 * (at.ffns_permille > 0) + gone  # of a question, about
    ranking = RANKING_QUESTIONS * passes if mask is None else 0.0
    total = n if mask is not None and mask.is_full else 2 * n + ranking
    full_steps = _evaluated(x, Mask.full(x.shape), FULL, lab)
    for step in full_steps:
        full = step.value if step.value is not None else full
        yield replace(_with(step, full, None, mask), share=n * step.part / total)
        if x.enough(full):
            break
    if mask is None:
        steps = last_value(orders_of(x.subject, x.pruning, x.data_dir).run(lab))
        orders = yield from driven(steps, lambda step: replace(step, share=(n + ranking * step.part) / total))
        mask = x.pruning.mask(orders)
    if mask.is_full:
        yield Progress(n, n, AnswersSoFar(full, full, mask), FULL)
        return
    yield Progress(0, n, AnswersSoFar(full, None, mask), PRUNED, share=1 - n / total)  # the first answers may take long
    for step in _evaluated(x, mask, PRUNED, lab):
        pruned = step.value if step.value is not None else pruned
        yield replace(_with(step, full, pruned, mask), share=1 - n * (1 - step.part) / total)
        if x.enough(pruned):
            break
    while full is not None and pruned is not None and len(full) < len(pruned):
        step = next(full_steps)
        full = step.value if step.value is not None else full
        yield _with(step, full, pruned, mask)


def measure_importance(x: Experiment, lab: Lab) -> Iterator[Progress[Orders]]:
    """Job: scores of all heads and FFNs by the criterion; they are read from the store afterwards."""
    of = replace(x.pruning.ranking, name=x.criterion)
    all_of_it = Pruning(x.task, of, 1000, 1000, x.pruning.typed)
    yield from orders_of(x.subject, all_of_it, x.data_dir).run(lab)


def measure_ranking(x: Experiment, axis: Axis, lab: Lab) -> Iterator[Progress[Orders]]:
    """Job: what the order of one axis is made from; it is read from the store afterwards."""
    there = replace(x.pruning, heads_permille=0, ffns_permille=0, layers_permille=0).at(axis, 1000)
    yield from orders_of(x.subject, there, x.data_dir).run(lab)


def measure_curve(x: Experiment, axis: Axis, lab: Lab) -> Iterator[Progress[int]]:
    """Job: the accuracy at every level of one axis, the other as it is; read from the store afterwards."""
    orders = yield from last_value(orders_of(x.subject, x.at(axis, 1000).pruning, x.data_dir).run(lab))
    yield from measure_levels(x, axis, orders, LEVELS_PERMILLE, lab)


def measure_levels(
    x: Experiment, axis: Axis, orders: Orders, levels: Sequence[int], lab: Lab
) -> Iterator[Progress[int]]:
    """Job: the accuracy at these levels of one axis, in this order; its value is how many of them are measured."""
    n = x.questions.n
    for number, permille in enumerate(levels):
        there = x.at(axis, permille)
        for step in _evaluated(there, there.pruning.mask(orders), f"Curve, {level_percent(permille)}", lab):
            yield Progress(number * n + step.done, len(levels) * n, number, step.message)
            if there.enough(step.value):
                break
    yield Progress(len(levels) * n, len(levels) * n, len(levels))


def recall_known(x: Experiment, lab: Lab) -> Evidence:
    """The scores that are stored, those of the criterion in any case, as the screen shows it; computes nothing."""
    if x.train is None:
        return Evidence()
    wanted = {"heads", "ffns", *NEEDS[x.pruning.ranking.name]}
    n_layers, requests = x.pruning.n_layers_dropped, x.train
    known = evidence(x.subject, x.task, x.pruning.ranking, wanted, n_layers, requests=requests).so_far(lab)
    return known or Evidence()


def recall_measured(x: Experiment, mask: Mask | None, lab: Lab) -> AnswersSoFar:
    """What is stored of this experiment; computes nothing."""
    full = recall_answers(x, Mask.full(x.shape), lab)
    if mask is None:
        return AnswersSoFar(full, None)
    return AnswersSoFar(full, full if mask.is_full else recall_answers(x, mask, lab), mask)


def recall_answers(x: Experiment, mask: Mask, lab: Lab) -> Answers:
    """The answers under one mask that are stored, which may be some of all or none."""
    found = evaluation(x.subject, x.questions, mask).so_far(lab)
    return answers_of(x.questions, []) if found is None else found


def command(x: Experiment, found: AnswersSoFar) -> str:
    """The shell command that measures the same and finds what is stored here."""
    n = x.n_taken(found)
    words = ["--task", x.task.name, "--shots", x.task.shots, "--limit", n if n < x.questions.n else x.limit]
    words += ["--sample", SAMPLE]
    words += ["--same-examples"] if x.task.same_examples else []
    return command_line("evaluate", x.subject, x.data_dir, [*words, *pruned_words(x)])


def pruned_words(x: Experiment) -> list[str | int]:
    """What is pruned, as options of a command."""
    words: list[str | int] = []
    pruning = x.pruning
    if pruning.by_level:
        levels = [f"{permille / 10:g}" for permille in (pruning.heads_permille, pruning.ffns_permille)]
        words += ["--prune-heads", levels[0], "--prune-ffns", levels[1]]
        if pruning.layers_permille:
            words += ["--prune-layers", f"{pruning.layers_permille / 10:g}", "--layers-by", pruning.ranking.layers_by]
        words += ["--ranking", pruning.ranking.name, "--ranking-questions", RANKING_QUESTIONS]
    typed = pruning.typed.text()
    return [*words, "--mask", typed] if typed else words


def _evaluated(x: Experiment, mask: Mask, title: str, lab: Lab) -> Iterator[Progress[Answers]]:
    for step in evaluation(x.subject, x.questions, mask).run(lab):
        yield replace(step, message=step.message or title)


def _with(
    step: Progress[Answers], full: Answers | None, pruned: Answers | None, mask: Mask | None
) -> Progress[AnswersSoFar]:
    return Progress(step.done, step.total, AnswersSoFar(full, pruned, mask), step.message, step.cached)

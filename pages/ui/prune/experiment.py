"""The settings of the Prune screen, an `Experiment`, and its measurements, also as work for the measuring thread.

Nothing is drawn here: everything can be tested as plain functions.
"""

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from engine.accuracy.evaluation import Answers, evaluation
from engine.composed import ComposedRun, composed
from engine.importance.layers import n_passes
from engine.importance.orders import PARTS, Axis, Orders, Pruning, evidence, orders_from, orders_of
from engine.importance.rules import RULES, Evidence
from engine.measurement import Measurement, Workload
from engine.models.masks import Mask
from engine.models.session import Session, Target
from engine.progress import Progress
from engine.questions.rendering import Questions, RenderedQuestions, TaskSpec, select
from engine.requests import Evaluate
from engine.shapes import ModelShape
from engine.timing.workload import all_characters, kept_share
from pages.ui.downloads.origin import of_model, of_pruning, of_task
from pages.ui.page.defaults import RANKING_QUESTIONS, SAMPLE
from pages.ui.page.tables import level_percent
from pages.ui.page.work import Work

ACCURACY, CURVE = "accuracy", "curve"  # slots
SECOND, SECOND_CURVE = "second model", "curve of the second model"  # the same of the second model
LEVELS_PERMILLE = range(0, 1001, 100)
Curve = dict[int, tuple[Mask, Answers]]  # by level, for the levels with enough answers


@dataclass(frozen=True)
class AnswersSoFar:
    """Answers so far of the full and of the pruned model, None = not begun; `mask` is the pruned model's, None = not
    known yet."""

    full: Answers | None = None
    pruned: Answers | None = None
    mask: Mask | None = None


@dataclass(frozen=True)
class Experiment:
    """One setting of all controls."""

    target: Target  # the model
    data_dir: str | None  # folder of task data
    validation: RenderedQuestions  # accuracy is measured on them
    train: RenderedQuestions | None  # importance is measured on them; None until they are rendered
    limit: int  # the most questions asked
    pruning: Pruning  # levels, order and mask

    @property
    def shape(self) -> ModelShape:
        return self.target.shape

    @property
    def task(self) -> TaskSpec:
        return self.validation.task

    @cached_property
    def questions(self) -> Questions:
        return select(self.validation, self.limit, SAMPLE)

    @property
    def base_key(self) -> str:
        """Returns a key that changes with the model, its precision and the task; not with the pruning."""
        return f"{self.target} {self.validation.task} {self.validation.source}"

    @property
    def key(self) -> str:
        """Returns a key that changes with anything that changes the measurement."""
        return f"{self.base_key} {self.limit} {self.pruning}"

    def curve_key(self, axis: Axis) -> str:
        """Returns a key that changes with anything that changes the curve over one axis, so not with its own level."""
        return f"{axis} {self.at(axis, 0).key}"

    def has_all(self, answers: Answers | None) -> bool:
        """Returns whether these are the answers to all questions."""
        return answers is not None and len(answers) >= self.questions.n

    def is_complete(self, found: AnswersSoFar) -> bool:
        """Returns whether the full and the pruned model have answered all questions."""
        return self.has_all(found.full) and self.has_all(found.pruned)

    def answers(self, mask: Mask) -> Measurement[Answers]:
        """Returns the measurement of the answers under a mask."""
        return evaluation(self.target, self.questions, mask)

    def workload(self, mask: Mask | None) -> Workload:
        """Returns the workload of all answers under a mask; of the full model if it is not known."""
        share = 1.0 if mask is None else kept_share(mask)
        return Workload({"forward": all_characters(self.questions) * share})

    def evidence(self, wanted: Collection[str], n_layers: int = 0) -> Measurement[Evidence]:
        """Returns the measurement of the `wanted` scores of the order (engine.importance.orders.RULES)."""
        ranking = self.pruning.ranking
        return evidence(self.target, self.task, ranking, wanted, n_layers, self.data_dir, self.train)

    @property
    def shown_evidence(self) -> Measurement[Evidence]:
        """Returns the measurement of the order's scores and those of the criterion, which the screen shows."""
        return self.evidence({*PARTS, *RULES[self.pruning.ranking.name].needs}, self.pruning.n_layers_dropped)

    def known(self, session: Session) -> Evidence:
        """Returns the stored scores; none until the train questions are rendered, which takes long."""
        return (None if self.train is None else self.shown_evidence.so_far(session)) or Evidence()

    def at(self, axis: Axis, permille: int) -> "Experiment":
        """Returns the same experiment with the level of one axis changed."""
        return replace(self, pruning=self.pruning.at(axis, permille))

    def mask(self, known: Evidence) -> Mask | None:
        """Returns the mask of the levels and the typed one; None while an order it needs is not known."""
        return self.pruning.known_mask(self.shape, known)

    def by_levels(self, known: Evidence) -> Mask:
        """Returns the mask of the levels alone; nothing pruned while an order they need is not known."""
        if self.pruning.missing(known):
            return Mask.full(self.shape)
        return self.pruning.by_levels(self.orders(known))

    def orders(self, known: Evidence) -> Orders:
        """Returns the orders as far as they are known."""
        return orders_from(self.shape, self.pruning.ranking, known)

    def order(self, axis: Axis, known: Evidence) -> np.ndarray | None:
        """Returns flat indices of heads or FFNs, or layers, first pruned first; None while unknown."""
        if axis == "layers":
            return None if known.layers is None or len(known.layers) < self.shape.n_layers else known.layers
        if known.missing(self.pruning.ranking.name, axis == "heads", axis == "ffns"):
            return None
        return getattr(self.orders(known), axis)


def accuracies(x: Experiment, mask: Mask | None, second: str = "") -> Measurement[AnswersSoFar]:
    """Returns the AnswersSoFar: the order if the `mask` is not known without it, then the pruned model's, then the full
    one's. `second`: the name of the model, if it is the second one."""
    n, full, at = x.questions.n, Mask.full(x.shape), x.pruning
    gone = n_passes(x.shape, at.ranking.layers_by, at.n_layers_dropped) / 2
    passes = 2 * (at.heads_permille > 0) + x.shape.n_layers / 2 * (at.ffns_permille > 0) + gone  # of a question, about
    n_ranked = 1 if at.ranking.name == "weight" else at.ranking.n_scored or RANKING_QUESTIONS
    ranking, of = 0 if mask is not None else round(n_ranked * passes), f"{second}, " if second else ""

    def body(run: ComposedRun) -> Generator[Progress[Any], None, AnswersSoFar]:
        found = AnswersSoFar(mask=mask)

        def answered(side: str, mask: Mask) -> Iterator[Progress[Any]]:
            nonlocal found
            title = f"{of}{'full' if mask == full else side} model"
            # the first answers may take long
            yield Progress(0, n, found, title, run.cached, share=run.done / run.total)
            for step in run.steps(x.answers(mask), n, title, counts=False):
                found = found if step.value is None else replace(found, **{side: step.value})
                yield replace(step, value=found)

        run.total = n if mask == full else 2 * n + ranking
        if mask is None and run.measures:
            wanted, label = orders_of(x.target, at, x.data_dir, x.train), f"{of}ranking" if second else ""
            orders = yield from run.part(wanted, ranking, label, counts=False)
            found = replace(found, mask=None if orders is None else at.mask(orders))
        if found.mask is None:
            run.expect(f"{of}pruned model", partial(x.workload, None))
        elif not found.mask.is_full:  # a larger model's full answers may take as long again
            yield from answered("pruned", found.mask)
        yield from answered("full", full)
        return replace(found, pruned=found.full) if found.mask is not None and found.mask.is_full else found

    return composed(x.target, ("accuracy", x.key), body)


def curve(x: Experiment, axis: Axis, known: Evidence, levels: Sequence[int] = LEVELS_PERMILLE) -> Measurement[Curve]:
    """Returns the Curve over one axis at these levels, in this order, the others unchanged; `known` is already read."""
    last = x.at(axis, 1000).pruning

    def body(run: ComposedRun) -> Generator[Progress[Any], None, Curve]:
        points, orders, n = Curve(), None, x.questions.n
        if last.missing(known) and (run.measures or x.train is not None):
            orders = yield from run.part(orders_of(x.target, last, x.data_dir, x.train), counts=False)
        run.done, run.total = 0, len(levels) * n
        for permille in levels:
            there, title = x.at(axis, permille), f"Curve, {level_percent(permille)}"
            mask = there.mask(known) if orders is None else there.pruning.mask(orders)
            answers = None
            if mask is not None and run.measures:
                answers = yield from run.part(x.answers(mask), n, title)
            elif mask is not None:
                answers = x.answers(mask).stored(run.session)
            if mask is not None and answers is not None:
                points = {**points, permille: (mask, answers)}
                yield run.so_far(points, title)
            else:
                run.expect(title, partial(x.workload, mask))
        return points

    return composed(x.target, ("curve", x.curve_key(axis)), body)


def accuracy_work(x: Experiment, mask: Mask | None, second: str = "") -> Work[AnswersSoFar]:
    """Returns the work that measures the experiment; of a `second` model, which this names, after the first one's."""
    slot, title, priority = (SECOND, f"Accuracy of {second}", 2) if second else (ACCURACY, "Accuracy", 0)
    return Work(slot, title, accuracies(x, mask, second), priority, while_seen=True, about=x.task.title)


def curve_work(x: Experiment, axis: Axis, known: Evidence, second: str = "") -> Work[Curve]:
    """Returns the work that measures every tenth of one level; `second`: the name of the model, if it is the second."""
    slot, title = (SECOND_CURVE, f"Curve of {second}") if second else (CURVE, "Curve")
    return Work(slot, title, curve(x, axis, known), 1, takes=forecast(x), about=x.task.title)


def forecast(x: Experiment) -> Callable[[], None] | None:
    """Returns the `takes` of work on train questions, unknown until they are rendered: a page must not wait for it."""
    return None if x.train is not None else lambda: None


def request(x: Experiment) -> Evaluate:
    """Returns the equivalent request, which finds the same stored results."""
    of = {**of_model(x.target), **of_task(x.task), **of_pruning(x.pruning)}
    return Evaluate(**of, task_data=x.data_dir, limit=x.limit, sample=SAMPLE)

"""Ablation of induction heads together, compared with equally many random heads.

Induction heads are redundant: ablating one often has no effect, because the others do the same. Their joint effect
shows when several are ablated.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.accuracy.evaluation import Answers, accuracy, evaluation
from engine.composed import ComposedRun, composed
from engine.heads.induction import InductionScores, induction
from engine.importance.rankings import order
from engine.measurement import Measurement
from engine.models.masks import Mask
from engine.models.session import Target
from engine.progress import Progress
from engine.questions.rendering import TaskSpec, render_questions, select
from engine.shapes import ModelShape
from engine.statistics import Paired, paired

N_DRAWS = 5


@dataclass(frozen=True)
class AccuracyWithout:
    """Accuracies, 0-1, of the full model and without some heads, on the same questions."""

    full: float
    pruned: float
    change: Paired

    @property
    def points(self) -> float:
        """The change of accuracy in percentage points; below 0 is a loss."""
        return 100 * (self.pruned - self.full)

    @property
    def is_loss(self) -> bool:
        """Whether it is clearly a loss."""
        return self.change.is_clear and self.change.lost > self.change.gained


@dataclass(frozen=True)
class Removal:
    """The results so far: `heads` by flat index, best first (empty: the model has no induction heads);
    accuracy without them (`removed`), and without equally many random heads (`draws`)."""

    heads: tuple[int, ...]
    removed: AccuracyWithout | None = None
    draws: tuple[AccuracyWithout, ...] = ()

    @property
    def at_random(self) -> tuple[float, float, float]:
        """(mean, lowest, highest) change over the draws, in points; nan without draws."""
        points = [line.points for line in self.draws] or [np.nan]
        return float(np.mean(points)), min(points), max(points)

    @property
    def holds(self) -> bool:
        """Whether ablating the heads is a clear loss, and at least twice the mean loss of the draws."""
        if self.removed is None or not self.draws:
            return False
        return self.removed.is_loss and self.removed.points <= 2 * self.at_random[0]


def induction_heads(scores: InductionScores) -> tuple[int, ...]:
    """Returns flat indices of the induction heads, best prefix matching first."""
    is_one = scores.is_induction_head.ravel()
    return tuple(int(head) for head in order(-np.nan_to_num(scores.mean["prefix_matching"])) if is_one[head])


def without(shape: ModelShape, heads: tuple[int, ...]) -> Mask:
    """Returns the mask that prunes these heads."""
    kept = np.ones(shape.n_heads_total, bool)
    kept[list(heads)] = False
    return Mask.from_arrays(kept.reshape(shape.n_layers, shape.n_heads), np.ones(shape.n_layers, bool))


def random_heads_mask(shape: ModelShape, heads: tuple[int, ...], seed: int) -> Mask:
    """Returns the mask that prunes equally many of the other heads, drawn at random, or all of them if there are
    fewer."""
    others = np.setdiff1d(np.arange(shape.n_heads_total), heads)
    return without(shape, drawn_heads(others, len(heads), seed))


def drawn_heads(among: np.ndarray, n: int, seed: int | tuple[int, ...]) -> tuple[int, ...]:
    """Returns n of these flat indices, drawn at random, or all of them if there are fewer."""
    return tuple(map(int, np.random.default_rng(seed).permutation(among)[:n]))


def found_heads(target: Target) -> Measurement[Removal]:
    """Returns the Removal with only its heads."""
    return induction(target).map(lambda scores: Removal(induction_heads(scores)))


def removal(target: Target, task: TaskSpec, n: int, data_dir: str | None = None) -> Measurement[Removal]:
    """Returns the Removal so far of the induction heads, on n questions of a task."""

    def body(run: ComposedRun) -> Generator[Progress[Any], None, Removal | None]:
        found = yield from run.part(found_heads(target), 1, "induction scores")
        if found is None or not found.heads:
            return found
        steps = run.steps(without_heads(target, task, found.heads, n, data_dir), (2 + N_DRAWS) * n, "questions")
        return (yield from steps).value or found

    return composed(target, ("removal", task, n, data_dir), body, 1 + (2 + N_DRAWS) * n)


def line_of(full: Answers, pruned: Answers) -> AccuracyWithout:
    """Returns the AccuracyWithout over the questions that the pruned model has answered."""
    n = len(pruned)
    return AccuracyWithout(float(full.correct[:n].mean()), accuracy(pruned).acc, paired(full.correct, pruned.correct))


def without_heads(
    target: Target, task: TaskSpec, heads: tuple[int, ...], n: int, data_dir: str | None = None
) -> Measurement[Removal]:
    """Returns the Removal so far of these heads (flat indices) and of random ones, on n questions of a task."""
    masks = [Mask.full(target.shape), without(target.shape, heads)]
    masks += [random_heads_mask(target.shape, heads, seed) for seed in range(N_DRAWS)]

    def body(run: ComposedRun) -> Generator[Progress[Any], None, Removal]:
        questions, answers = select(render_questions(task, data_dir, run.session.store), n, "stratified"), []
        run.total, found = len(masks) * questions.n, Removal(heads)
        for mask in masks:
            answers.append((yield from run.part(evaluation(target, questions, mask), questions.n, "questions")))
            found = _known(heads, answers)
            yield run.so_far(found, "questions")
        return found

    return composed(target, ("without heads", task, data_dir, n, heads), body)


def _known(heads: tuple[int, ...], answers: Sequence[Answers | None]) -> Removal:
    """Returns the accuracies that are known, of the answers in the order of measurement."""
    full, *rest = answers
    if full is None or not rest or rest[0] is None:
        return Removal(heads)
    removed, *others = [line_of(full, each) for each in rest if each is not None]
    return Removal(heads, removed=removed, draws=tuple(others))

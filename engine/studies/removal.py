"""Ablation of all induction heads together, compared with equally many random heads and with a task that needs no
examples.

Induction heads are redundant: ablating one has little effect. Their joint effect shows when all are ablated.
"""

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engine.accuracy.evaluation import Answers, accuracy, evaluation
from engine.composed import ComposedRun, composed
from engine.heads.induction import InductionScores, induction
from engine.importance.head_sets import HeadSet
from engine.importance.rankings_of import INDUCTION_FROM, INDUCTION_SEED
from engine.measurement import Measurement
from engine.models.masks import Mask
from engine.models.session import Target
from engine.progress import Progress
from engine.questions.requests import TaskSpec, get_requests, select
from engine.shapes import ModelShape
from engine.statistics import Paired, paired

SHARE_OF_BEST = 0.5  # share of the best head's prefix matching from which a head counts as an induction head
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
    """The results so far: `heads` by flat index, best first (empty: the model has no induction heads by this rule);
    accuracy without them (`removed`), without equally many random heads (`draws`), and without them on the task without
    examples (`control`)."""

    heads: tuple[int, ...]
    partner: int = 0  # flat index of the best previous-token head, which they read from
    removed: AccuracyWithout | None = None
    control: AccuracyWithout | None = None
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


def induction_heads(prefix_matching: np.ndarray) -> tuple[int, ...]:
    """Returns flat indices of the heads whose prefix matching (L, H) is at least half that of the best one, best first;
    empty if the best is below INDUCTION_FROM."""
    scores = np.nan_to_num(prefix_matching.ravel())
    if scores.max() < INDUCTION_FROM:
        return ()
    return tuple(
        int(head) for head in np.argsort(-scores, kind="stable") if scores[head] >= SHARE_OF_BEST * scores.max()
    )


def without(shape: ModelShape, heads: tuple[int, ...]) -> Mask:
    """Returns the mask that prunes these heads."""
    return HeadSet(heads).mask(shape)


def draw(shape: ModelShape, heads: tuple[int, ...], seed: int) -> Mask:
    """Returns the mask that prunes equally many of the other heads, drawn at random, or all of them if there are
    fewer."""
    others = np.setdiff1d(np.arange(shape.n_heads_total), heads)
    drawn = np.random.default_rng(seed).permutation(others)[: len(heads)]
    return without(shape, tuple(int(head) for head in drawn))


def found_heads(target: Target) -> Measurement[Removal]:
    """Returns the Removal with only its heads."""

    def found(scores: InductionScores) -> Removal:
        partner = int(np.nan_to_num(scores.mean["previous_token"]).argmax())
        return Removal(induction_heads(scores.mean["prefix_matching"]), partner)

    return induction(target, "olsson", INDUCTION_SEED).map(found)


def removal(
    target: Target, task: TaskSpec, control: TaskSpec, n: int, data_dir: str | None = None
) -> Measurement[Removal]:
    """Returns the Removal so far, on n questions of the task and of the control task without examples. The draws answer
    the same questions, so they share the full model as baseline."""

    def body(run: ComposedRun) -> Generator[Progress[Any], None, Removal | None]:
        yield Progress(0, 1, message="preparing the questions")
        questions, asked = (select(get_requests(each, data_dir, run.session.store), n, "stratified")
                            for each in (task, control))  # fmt: skip
        run.total = 1 + (2 + N_DRAWS) * questions.n + 2 * asked.n
        found = yield from run.part(found_heads(target), 1, "induction scores")
        if found is None or not found.heads:
            return found
        full, gone = Mask.full(target.shape), without(target.shape, found.heads)
        draws = [(questions, draw(target.shape, found.heads, seed)) for seed in range(N_DRAWS)]
        answers: list[Answers] = []
        for each, mask in [(questions, full), (questions, gone), (asked, full), (asked, gone), *draws]:
            answered = yield from run.part(evaluation(target, each, mask), each.n, "questions")
            if answered is None:
                break
            answers.append(answered)
            found = _so_far(found, answers)
            yield run.so_far(found, "questions")
        return found

    return composed(target, ("removal", task, control, n, data_dir), body)


def _so_far(found: Removal, answers: list[Answers]) -> Removal:
    """Returns a copy with the answers so far, given in the order of measurement."""
    removed = line_of(answers[0], answers[1]) if len(answers) > 1 else None
    control = line_of(answers[2], answers[3]) if len(answers) > 3 else None
    draws = tuple(line_of(answers[0], drawn) for drawn in answers[4:])
    return replace(found, removed=removed, control=control, draws=draws)


def line_of(full: Answers, pruned: Answers) -> AccuracyWithout:
    """Returns the AccuracyWithout over the questions that the pruned model has answered."""
    n = len(pruned)
    return AccuracyWithout(float(full.correct[:n].mean()), accuracy(pruned).acc, paired(full.correct, pruned.correct))

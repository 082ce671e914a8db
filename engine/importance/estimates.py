"""First-order estimates of the effect of pruning, without a forward pass.

log p(mask) = log p(full model) - sum over the pruned components of d log p / d gate: the Taylor expansion at gates of
1, evaluated at 0 for the pruned components. The gradients come from one backward pass per choice
(engine.importance.scores, `gate`); any number of masks is then one matrix product. A `Calibration` judges how
reliable the estimates are, by the levels measured along one line of them: without a measured level there is no
correction; with too few, the expected error is unknown and nothing is trusted.

An estimate is an `Estimate`, never an `Accuracy`: the two have no field in common.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise

import numpy as np

from engine.accuracy.evaluation import Answers, evaluation
from engine.composed import ComposedRun, composed
from engine.errors import UsageError
from engine.importance.scores import Scores, importance
from engine.measurement import Measurement
from engine.models.masks import Mask
from engine.models.session import Target
from engine.progress import Progress, driven
from engine.questions.rendering import Question, Questions

METRICS = ("acc", "acc_norm")
BLOCK = 2_000_000  # predicted log-likelihoods held at once: 16 MB
TRUSTED_ERROR = 0.05  # accuracy; an expected error up to this is trusted
MIN_LEVELS = 3  # measured levels needed for an expected error, which is the largest at this many of them
STEEP = 0.15  # accuracy; between measured levels that differ by more, nothing is estimated


@dataclass(frozen=True, eq=False)
class Gradients:
    """Gradients of the full model for n questions: `log_likelihood_nats` (n, choice), and signed d log-likelihood /
    d gate in nats, fp16, of `heads` (n, choice, L, H) and `ffns` (n, choice, L); nan for missing choices."""

    questions: tuple[Question, ...]
    log_likelihood_nats: np.ndarray
    heads: np.ndarray
    ffns: np.ndarray

    def __len__(self) -> int:
        return len(self.questions)

    @cached_property
    def by_component(self) -> np.ndarray:
        """(component, n * choice) float32, heads row by row and then FFNs; 0 for missing choices."""
        flat = [array.reshape(self.log_likelihood_nats.size, -1) for array in (self.heads, self.ffns)]
        return np.nan_to_num(np.concatenate(flat, axis=1).astype(np.float32).T)

    @cached_property
    def gold(self) -> np.ndarray:
        """(n, choice) bool: the choices that count as right."""
        return np.array([[choice in q.golds for choice in range(self.heads.shape[1])] for q in self.questions])

    @cached_property
    def n_chars(self) -> np.ndarray:
        """(n, choice) length of each choice, which acc_norm divides by; nan for missing choices."""
        width = self.heads.shape[1]
        return np.array([[*q.n_chars, *[np.nan] * (width - len(q.n_chars))] for q in self.questions], float)


@dataclass(frozen=True, eq=False)
class Estimate:
    """Estimated (not measured) accuracies under masks, 0-1; `estimated` has the masks' shape."""

    metric: str
    estimated: np.ndarray
    n_questions: int


def gradients(target: Target, questions: Questions) -> Measurement[Gradients]:
    """Returns the Gradients; the value so far covers the first questions.

    UsageError for a task judged by greedy decoding: the decoded text does not follow from the log-likelihood of one
    continuation, so it cannot be estimated.
    """
    if questions.rendered.greedy:
        raise UsageError(f"{questions.task.name} is judged by greedy decoding, which cannot be estimated from "
                         "log-likelihoods; measure it")  # fmt: skip
    full, scores = evaluation(target, questions, Mask.full(target.shape)), importance(target, questions, "gate")

    def body(run: ComposedRun) -> Generator[Progress[Gradients], None, Gradients | None]:
        answers = yield from run.part(full, questions.n)
        if answers is None:
            yield from run.part(scores, questions.n)
            return None
        each = run.steps(scores, questions.n)
        found = (yield from driven(each, lambda step: step.map(partial(_gradients, answers)))).value
        return None if found is None else _gradients(answers, found)

    return composed(target, ("gradients", questions), body, 2 * questions.n)


def pruned_by(masks: Mask | Sequence[Mask]) -> np.ndarray:
    """Returns bool (component,) for one mask, (masks, component) for several: True = pruned, heads row by row and then
    FFNs."""
    if isinstance(masks, Mask):
        return ~np.array([*(kept for row in masks.heads for kept in row), *masks.ffns])
    return np.array([pruned_by(mask) for mask in masks])


def predicted(gradients: Gradients, masks: Mask | Sequence[Mask] | np.ndarray) -> np.ndarray:
    """Returns (..., n, choice): predicted log-likelihoods in nats, nan for missing choices. `masks`: one Mask, several,
    or the result of `pruned_by`. First-order values may exceed 0. UsageError: masks of another model."""
    pruned = masks if isinstance(masks, np.ndarray) else pruned_by(masks)
    if pruned.shape[-1] != len(gradients.by_component):
        raise UsageError(f"masks are over {pruned.shape[-1]} heads and FFNs, the gradients over "
                         f"{len(gradients.by_component)}; take masks of this model")  # fmt: skip
    lost = pruned.astype(np.float32) @ gradients.by_component
    return gradients.log_likelihood_nats - lost.reshape(*pruned.shape[:-1], *gradients.log_likelihood_nats.shape)


def estimated_correct(gradients: Gradients, log_likelihood_nats: np.ndarray, metric: str = "acc") -> np.ndarray:
    """Returns (..., n) bool: the questions answered right; the choice is made as by `Answers`, the first of equals."""
    if metric not in METRICS:
        raise UsageError(f"metric {metric!r} is unknown; choose {' or '.join(METRICS)}")
    scores = log_likelihood_nats
    if metric == "acc_norm":
        with np.errstate(divide="ignore", invalid="ignore"):
            scores = scores / gradients.n_chars
    chosen = np.argmax(np.where(np.isnan(scores), -np.inf, scores), axis=-1)
    return gradients.gold[np.arange(len(gradients)), chosen]


def estimate(
    gradients: Gradients, masks: Mask | Sequence[Mask] | np.ndarray, metric: str = "acc", n: int | None = None
) -> Estimate:
    """Returns the estimated accuracy of each mask over all questions, or over the first `n`; not calibrated."""
    pruned = masks if isinstance(masks, np.ndarray) else pruned_by(masks)
    rows = pruned.reshape(-1, pruned.shape[-1])
    block = max(1, BLOCK // max(1, gradients.log_likelihood_nats.size))
    n = len(gradients) if n is None else min(n, len(gradients))
    found = [estimated_correct(gradients, predicted(gradients, rows[at : at + block]), metric)[:, :n].mean(1)
             for at in range(0, len(rows), block)]  # fmt: skip
    values = np.concatenate(found).reshape(pruned.shape[:-1]) if found else np.zeros(pruned.shape[:-1])
    return Estimate(metric, values, n)


def _gradients(answers: Answers, scores: Scores) -> Gradients:
    """Returns the Gradients by d log p / d gate = - tokens x dLoss / d gate: `scores` has gradients of the mean loss
    over the tokens."""
    assert scores.gate_heads is not None and scores.gate_ffns is not None and scores.n_targets is not None
    n, width = scores.gate_heads.shape[:2]
    times = -scores.n_targets.astype(np.float32)
    heads = (times[..., None, None] * scores.gate_heads).astype(np.float16)
    ffns = (times[..., None] * scores.gate_ffns).astype(np.float16)
    return Gradients(answers.questions[:n], answers.log_likelihood_nats[:n, :width], heads, ffns)


@dataclass(frozen=True)
class Check:
    """An estimate and the accuracy measured on the same `n` questions, 0-1, with `n_pruned` components pruned."""

    n_pruned: int
    estimated: float
    measured: float
    n: int

    @property
    def off(self) -> float:
        """The absolute error of the uncorrected estimate, 0-1."""
        return abs(self.estimated - self.measured)


@dataclass(frozen=True, eq=False)
class Calibration:
    """The uncorrected estimates along one line, and the levels measured on it.

    A line is one order of components with everything else fixed, so each mask on it prunes everything that the masks
    before it prune; measurements under other masks do not apply. `n_pruned` (place,): components pruned, ascending;
    `estimated` (place,), 0-1; `checks`: for the measured places.
    """

    n_pruned: np.ndarray
    estimated: np.ndarray
    checks: tuple[Check, ...]

    @cached_property
    def levels(self) -> tuple[Check, ...]:
        """The measured places, ascending, without the full model, whose estimate is exact."""
        return tuple(check for check in self._rising if check.n_pruned)

    @cached_property
    def corrected(self) -> np.ndarray:
        """(place,) estimates corrected by the measured places, 0-1.

        Each is shifted by measured - estimated, interpolated linearly over the measured places and constant beyond the
        outermost. At a measured place it equals the measured value. Between two measured places it is monotonic and
        stays between their values.
        """
        if not self.checks:
            return self.estimated
        at, measured = np.array([(check.n_pruned, check.measured) for check in self._rising]).T
        shift = np.interp(self.n_pruned, at, [check.measured - check.estimated for check in self._rising])
        line = np.clip(self.estimated + shift, 0.0, 1.0)
        for left, right, start, end in zip(at, at[1:], measured, measured[1:], strict=False):
            between = (self.n_pruned > left) & (self.n_pruned < right)
            line[between] = _from_to(start, end, line[between])
        line[np.searchsorted(self.n_pruned, at)] = measured
        return line

    @cached_property
    def errors_left_out(self) -> tuple[float, ...]:
        """For each of `levels`: |corrected - measured|, corrected only by all other checks."""
        errors = []
        for left_out in self.levels:
            others = replace(self, checks=tuple(check for check in self.checks if check is not left_out))
            place = np.searchsorted(self.n_pruned, left_out.n_pruned)
            errors.append(abs(float(others.corrected[place]) - left_out.measured))
        return tuple(errors)

    @cached_property
    def expected_error(self) -> np.ndarray:
        """(place,) expected absolute error of the corrected estimate: the largest of `errors_left_out` at the 3 nearest
        measured levels. nan = unknown: with fewer than 3 measured levels, or outside the measured range."""
        unknown = np.full(self.n_pruned.shape, np.nan)
        if len(self.levels) < MIN_LEVELS:
            return unknown
        away = np.abs(self.n_pruned[:, None] - [check.n_pruned for check in self.levels])
        nearest = np.argsort(away, axis=1, kind="stable")[:, :MIN_LEVELS]
        ends = self._rising[0].n_pruned, self._rising[-1].n_pruned
        inside = (self.n_pruned >= ends[0]) & (self.n_pruned <= ends[1])
        return np.where(inside, np.array(self.errors_left_out)[nearest].max(1), unknown)

    @cached_property
    def is_steep(self) -> np.ndarray:
        """(place,) whether it is between measured levels that differ by more than 15 accuracy points (STEEP): what lies
        between a plateau and a cliff is anyone's guess."""
        steep = np.zeros(self.n_pruned.shape, bool)
        for left, right in pairwise(self._rising):
            if abs(right.measured - left.measured) > STEEP:
                steep |= (self.n_pruned > left.n_pruned) & (self.n_pruned < right.n_pruned)
        return steep

    @cached_property
    def is_trusted(self) -> np.ndarray:
        """(place,) whether the expected error is known and at most 5 accuracy points (TRUSTED_ERROR); not if steep."""
        return (self.expected_error <= TRUSTED_ERROR) & ~self.is_steep

    @cached_property
    def contradiction(self) -> Check | None:
        """The check with the largest error of the uncorrected estimate, if above 5 accuracy points (TRUSTED_ERROR)."""
        worst = max(self.checks, key=lambda check: check.off, default=None)
        return worst if worst is not None and worst.off > TRUSTED_ERROR else None

    @cached_property
    def is_shown(self) -> np.ndarray:
        """(place,) whether an estimate may be shown: it is trusted, or its error is unknown and no check on the line
        contradicts it."""
        unchecked = np.isnan(self.expected_error) & (self.contradiction is None) & ~self.is_steep
        return self.is_trusted | unchecked

    @cached_property
    def _rising(self) -> list[Check]:
        return sorted(self.checks, key=lambda check: check.n_pruned)


def check(answers: Answers | None, gradients: Gradients, mask: Mask, metric: str = "acc") -> Check | None:
    """Returns the Check of a mask from the answers known under it, or None if there are none. If they cover only some
    of the questions, the estimate covers the same ones."""
    if answers is None or not (n := min(len(answers), len(gradients))):
        return None
    correct = answers.correct if metric == "acc" else answers.correct_norm
    estimated = float(estimate(gradients, mask, metric, n).estimated)
    return Check(mask.n_heads_pruned + mask.n_ffns_pruned, estimated, float(correct[:n].mean()), n)


def _from_to(start: float, end: float, values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Returns the values made monotonic between `start` and `end`: halfway between the nearest monotonic line above
    them and the nearest below. Values that are monotonic already stay unchanged."""
    sign = 1.0 if end >= start else -1.0
    inside = sign * np.clip(values, min(start, end), max(start, end))
    above, below = np.maximum.accumulate(inside), np.minimum.accumulate(inside[::-1])[::-1]
    return sign * (above + below) / 2

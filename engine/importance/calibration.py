"""How reliable the estimates of engine.importance.estimates are, judged by the levels measured along one line of them.

Without a measured level there is no correction; with too few, the expected error is unknown and nothing is trusted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from engine.accuracy.evaluation import Answers
from engine.importance.estimates import Gradients, estimate
from engine.models.masks import Mask

TRUSTED_ERROR = 0.05  # accuracy; an expected error up to this is trusted
MIN_LEVELS = 3  # measured levels needed for an expected error, which is the mean over this many of them


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
        """(place,) expected absolute error of the corrected estimate: the mean of `errors_left_out` at the 3 nearest
        measured levels. nan = unknown: with fewer than 3 measured levels, or outside the measured range."""
        unknown = np.full(self.n_pruned.shape, np.nan)
        if len(self.levels) < MIN_LEVELS:
            return unknown
        away = np.abs(self.n_pruned[:, None] - [check.n_pruned for check in self.levels])
        nearest = np.argsort(away, axis=1, kind="stable")[:, :MIN_LEVELS]
        ends = self._rising[0].n_pruned, self._rising[-1].n_pruned
        inside = (self.n_pruned >= ends[0]) & (self.n_pruned <= ends[1])
        return np.where(inside, np.array(self.errors_left_out)[nearest].mean(1), unknown)

    @cached_property
    def is_trusted(self) -> np.ndarray:
        """(place,) whether the expected error is known and at most 5 accuracy points (TRUSTED_ERROR)."""
        return self.expected_error <= TRUSTED_ERROR

    @cached_property
    def contradiction(self) -> Check | None:
        """The check with the largest error of the uncorrected estimate, if above 5 accuracy points (TRUSTED_ERROR)."""
        worst = max(self.checks, key=lambda check: check.off, default=None)
        return worst if worst is not None and worst.off > TRUSTED_ERROR else None

    @cached_property
    def is_shown(self) -> np.ndarray:
        """(place,) whether an estimate may be shown: it is trusted, or its error is unknown and no check on the line
        contradicts it."""
        unchecked = np.isnan(self.expected_error) & (self.contradiction is None)
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

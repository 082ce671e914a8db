"""How far estimates of engine.importance.estimates can be trusted: what the levels measured along one line of them say.

Nothing here is a guess: with no measured level there is no correction, with few no error to expect, and no trust.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from engine.accuracy.evaluation import Answers
from engine.importance.estimates import Gradients, estimate
from engine.models.masks import Mask

TRUSTED_ERROR = 0.05  # accuracy; an expected error up to this is trusted
MIN_LEVELS = 3  # measured levels from which an error is expected, and of how many of them it is the mean


@dataclass(frozen=True)
class Check:
    """An estimate beside the accuracy measured on the same `n` questions, 0-1, where `n_pruned` parts are pruned."""

    n_pruned: int
    estimated: float
    measured: float
    n: int

    @property
    def off(self) -> float:
        """How far the bare estimate is off, 0-1."""
        return abs(self.estimated - self.measured)


@dataclass(frozen=True, eq=False)
class Calibration:
    """The bare estimates along one line, and what the levels measured on it say about them.

    A line is one order of parts with everything else as it is, so that each mask on it prunes what those before it
    prune: measurements under other masks say nothing here. `n_pruned` (place,): how many parts each prunes, rising;
    `estimated` (place,), 0-1; `checks`: of places that were measured.
    """

    n_pruned: np.ndarray
    estimated: np.ndarray
    checks: tuple[Check, ...]

    @cached_property
    def levels(self) -> tuple[Check, ...]:
        """The measured places, rising, without the full model, of which an estimate is exact."""
        return tuple(check for check in self._rising if check.n_pruned)

    @cached_property
    def corrected(self) -> np.ndarray:
        """(place,) estimates that the measured places allow, 0-1.

        Each is shifted by measured - estimated, interpolated linearly over the measured places and constant beyond the
        outermost. At a measured place it is what was measured. Between two of them it stays between the two, and goes
        from the one to the other without turning back.
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
        """Of each of `levels`: |corrected - measured|, corrected by all other checks alone."""
        errors = []
        for left_out in self.levels:
            others = replace(self, checks=tuple(check for check in self.checks if check is not left_out))
            place = np.searchsorted(self.n_pruned, left_out.n_pruned)
            errors.append(abs(float(others.corrected[place]) - left_out.measured))
        return tuple(errors)

    @cached_property
    def expected_error(self) -> np.ndarray:
        """(place,) absolute error to expect of the corrected estimate: the mean of `errors_left_out` at the 3 measured
        levels nearest by. nan = unknown: below 3 measured levels, and where not both sides have a measured place."""
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
        """(place,) whether the error to expect is known and at most 5 accuracy points (TRUSTED_ERROR)."""
        return self.expected_error <= TRUSTED_ERROR

    @cached_property
    def contradiction(self) -> Check | None:
        """Where the bare estimate is furthest off, if that is more than 5 accuracy points (TRUSTED_ERROR)."""
        worst = max(self.checks, key=lambda check: check.off, default=None)
        return worst if worst is not None and worst.off > TRUSTED_ERROR else None

    @cached_property
    def is_shown(self) -> np.ndarray:
        """(place,) whether an estimate may stand as a figure: trusted; or, where the error is unknown, contradicted by
        nothing measured on the line."""
        unchecked = np.isnan(self.expected_error) & (self.contradiction is None)
        return self.is_trusted | unchecked

    @cached_property
    def _rising(self) -> list[Check]:
        return sorted(self.checks, key=lambda check: check.n_pruned)


def check(answers: Answers | None, gradients: Gradients, mask: Mask, metric: str = "acc") -> Check | None:
    """The Check of a mask by the answers that are known under it, or None if there are none. If they are to some of the
    questions, the estimate is of the same ones."""
    if answers is None or not (n := min(len(answers), len(gradients))):
        return None
    correct = answers.correct if metric == "acc" else answers.correct_norm
    estimated = float(estimate(gradients, mask, metric, n).estimated)
    return Check(mask.n_heads_pruned + mask.n_ffns_pruned, estimated, float(correct[:n].mean()), n)


def _from_to(start: float, end: float, values: Sequence[float] | np.ndarray) -> np.ndarray:
    """The values, between `start` and `end` and never turning back on the way: halfway between the nearest such line
    above them all and the nearest below. Unchanged where they do so already."""
    sign = 1.0 if end >= start else -1.0
    inside = sign * np.clip(values, min(start, end), max(start, end))
    above, below = np.maximum.accumulate(inside), np.minimum.accumulate(inside[::-1])[::-1]
    return sign * (above + below) / 2

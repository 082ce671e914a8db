"""How far estimates of engine.importance.estimates can be trusted: what the measured points of a model and task say
about them.

Nothing here is a guess: with no measured point there is no correction, with few no error to expect, and no trust.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from engine.accuracy.evaluation import recall
from engine.importance.estimates import Estimate, Gradients, estimate
from engine.models.masks import Mask
from engine.models.subject import Lab, Subject
from engine.questions.requests import Questions

TRUSTED_ERROR = 0.05  # accuracy; an expected error up to this is trusted
MIN_LEVELS = 3  # measured levels from which an error is expected, and of how many of them it is the mean
BANDS = ((1, 100), (101, 300), (301, 500), (501, 700), (701, 1000))  # permille


@dataclass(frozen=True)
class Check:
    """An estimate beside the accuracy measured on the same `n` questions, at two levels in permille."""

    heads_permille: int
    ffns_permille: int
    estimated: float
    measured: float
    n: int


@dataclass(frozen=True)
class Band:
    """Errors of the estimates at levels from `low` to `high` permille (the larger of the two levels counts).

    `mean_absolute_error` and `bias` (estimated - measured) are of the bare estimates; `mean_absolute_error_corrected`
    of the corrected ones, each level corrected by the others alone, None below 3 measured levels.
    """

    low: int
    high: int
    n_levels: int
    mean_absolute_error: float
    bias: float
    mean_absolute_error_corrected: float | None


@dataclass(frozen=True)
class Calibration:
    """What the measured points of one model, task and metric say about its estimates.

    Checks at the same two levels count as one, their mean weighted by n. `corrected` adds the residual (measured -
    estimated) at a level: along each axis alone it is interpolated linearly over the measured levels, 0 at the full
    model, constant beyond the last; at two levels the two are added, and what measured points off the axes leave over
    is interpolated along heads, then between FFN levels. So it passes through every measured point.
    """

    checks: tuple[Check, ...]

    @cached_property
    def levels(self) -> tuple[Check, ...]:
        """One Check a measured level, by level; the full model, of which an estimate is exact, is left out."""
        at: dict[tuple[int, int], list[Check]] = {}
        for check in self.checks:
            at.setdefault((check.heads_permille, check.ffns_permille), []).append(check)
        joined = []
        for level in sorted(set(at) - {(0, 0)}):
            n = [check.n for check in at[level]]
            means = [float(np.average([getattr(check, name) for check in at[level]], weights=n))
                     for name in ("estimated", "measured")]  # fmt: skip
            joined.append(Check(level[0], level[1], means[0], means[1], sum(n)))
        return tuple(joined)

    @cached_property
    def errors_left_out(self) -> tuple[float, ...]:
        """Of each of `levels`: |corrected - measured|, corrected by the others alone."""
        errors = []
        for left_out in self.levels:
            others = Calibration(tuple(check for check in self.levels if check is not left_out))
            corrected = others.corrected(left_out.estimated, left_out.heads_permille, left_out.ffns_permille)
            errors.append(abs(float(corrected) - left_out.measured))
        return tuple(errors)

    def corrected(self, estimated: Any, heads_permille: Any, ffns_permille: Any) -> np.ndarray:
        """Estimates plus the residual at their levels, 0 to 1; numbers or arrays that broadcast."""
        return np.clip(np.asarray(estimated, float) + self._residual(heads_permille, ffns_permille), 0.0, 1.0)

    def expected_error(self, heads_permille: int, ffns_permille: int) -> float | None:
        """Absolute error to expect of a corrected estimate: the mean of `errors_left_out` at the 3 measured levels
        nearest to this one (steps along both axes added up). None = unknown: below 3 measured levels, and where no
        measured level prunes at least as much of both heads and FFNs."""
        error = float(self._expected_errors(heads_permille, ffns_permille))
        return None if np.isnan(error) else error

    def trusted(self, heads_permille: int, ffns_permille: int) -> bool:
        """Whether the expected error at the level is known and at most 5 accuracy points (TRUSTED_ERROR)."""
        error = self.expected_error(heads_permille, ffns_permille)
        return error is not None and error <= TRUSTED_ERROR

    def bands(self) -> list[Band]:
        """Errors by level, of the bands in which something was measured."""
        found = []
        for low, high in BANDS:
            inside = [(check, error) for check, error in zip(self.levels, self.errors_left_out, strict=True)
                      if low <= max(check.heads_permille, check.ffns_permille) <= high]  # fmt: skip
            if inside:
                errors = np.array([check.estimated - check.measured for check, _ in inside])
                left_out = float(np.mean([error for _, error in inside])) if len(self.levels) >= MIN_LEVELS else None
                found.append(Band(low, high, len(inside), float(np.abs(errors).mean()), float(errors.mean()), left_out))
        return found

    def applied(self, estimate: Estimate, heads_permille: Any, ffns_permille: Any) -> Estimate:
        """The estimate corrected, with the error to expect at each of its levels (arrays that broadcast to it)."""
        expected = np.broadcast_to(self._expected_errors(heads_permille, ffns_permille), estimate.estimated.shape)
        corrected = self.corrected(estimate.estimated, heads_permille, ffns_permille)
        return replace(estimate, estimated=corrected, expected_error=expected, is_trusted=expected <= TRUSTED_ERROR,
                       is_calibrated=True)  # fmt: skip

    def _expected_errors(self, heads_permille: Any, ffns_permille: Any) -> np.ndarray:
        heads, ffns = np.broadcast_arrays(np.asarray(heads_permille), np.asarray(ffns_permille))
        if len(self.levels) < MIN_LEVELS:
            return np.full(heads.shape, np.nan)
        known = np.array([(check.heads_permille, check.ffns_permille) for check in self.levels])
        ahead = known - np.stack([heads, ffns], axis=-1)[..., None, :]  # (..., level, axis)
        nearest = np.argsort(np.abs(ahead).sum(-1), axis=-1, kind="stable")[..., :MIN_LEVELS]
        errors = np.array(self.errors_left_out)[nearest].mean(-1)
        return np.where((ahead >= 0).all(-1).any(-1), errors, np.nan)

    def _residual(self, heads_permille: Any, ffns_permille: Any) -> np.ndarray:
        known = {(c.heads_permille, c.ffns_permille): c.measured - c.estimated for c in self.levels}
        by_heads = _interpolation({0: 0.0} | {h: residual for (h, f), residual in known.items() if f == 0})
        by_ffns = _interpolation({0: 0.0} | {f: residual for (h, f), residual in known.items() if h == 0})
        rows: dict[int, dict[int, float]] = {0: {0: 0.0}}
        for (h, f), residual in known.items():
            if h and f:
                rows.setdefault(f, {0: 0.0})[h] = residual - float(by_heads(h) + by_ffns(f))
        heads, ffns = np.broadcast_arrays(np.asarray(heads_permille, float), np.asarray(ffns_permille, float))
        left_over = np.zeros(heads.shape)
        for f, row in rows.items():
            # the weight of a row falls linearly to 0 at its neighbours
            left_over += _interpolation(row)(heads) * _interpolation({at: float(at == f) for at in rows})(ffns)
        return by_heads(heads) + by_ffns(ffns) + left_over


def recall_calibration(
    lab: Lab,
    subject: Subject,
    questions: Questions,
    gradients: Gradients,
    masks: Mapping[tuple[int, int], Mask],
    metric: str = "acc",
) -> Calibration:
    """The Calibration from whatever is stored of `masks`, named by their levels (heads, FFNs) in permille; computes no
    forward pass. Of a point measured in part, the estimate is of the same questions."""
    checks = []
    for (heads_permille, ffns_permille), mask in masks.items():
        answers = recall(lab, subject, questions, mask)
        if n := min(len(answers), len(gradients)):
            correct = answers.correct if metric == "acc" else answers.correct_norm
            estimated = float(estimate(gradients, mask, metric, n).estimated)
            checks.append(Check(heads_permille, ffns_permille, estimated, float(correct[:n].mean()), n))
    return Calibration(tuple(checks))


def _interpolation(at: Mapping[int, float]) -> Callable[[Any], Any]:
    levels = sorted(at)
    return lambda level: np.interp(level, levels, [at[each] for each in levels])

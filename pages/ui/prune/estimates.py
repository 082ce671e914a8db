"""What pruning would do at the levels around the present ones, estimated without a forward pass, and in words.

No streamlit here. An estimate is a `Level`, drawn in series of its own: nothing here is an accuracy that was measured,
but for `Line.measured`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from engine.importance.calibration import MIN_LEVELS, TRUSTED_ERROR, recall_calibration
from engine.importance.estimates import estimate, pruned_at, pruned_by, recall_gradients
from engine.importance.rankings import n_pruned
from engine.importance.rankings_of import Axis, Evidence
from engine.models.masks import Mask
from engine.models.subject import Lab
from engine.progress import Progress
from pages.ui.prune.experiment import Experiment
from pages.ui.shared.defaults import AXES, NOUNS

STEPS_PERMILLE = range(0, 1001, 50)
COLUMNS = ["level", "estimated", "low", "high", "trusted"]


@dataclass(frozen=True)
class Level:
    """The estimate at one level: accuracy 0-1, the absolute error to expect (None: unknown), whether to trust it."""

    estimated: float
    error: float | None
    trusted: bool


@dataclass(frozen=True)
class Line:
    """Along one axis, everything else as it is (`of`, a `curve_key`): estimates, and accuracies that were measured on
    enough questions, 0-1."""

    of: str = ""
    estimated: Mapping[int, Level] = field(default_factory=dict)
    measured: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Estimates:
    """Both lines through an experiment; `has_gradients`: what estimates are made from is stored."""

    heads: Line = Line()
    ffns: Line = Line()
    n_levels: int = 0  # measured levels that the estimates are corrected by
    has_gradients: bool = False

    def line(self, x: Experiment, axis: Axis) -> Line:
        """The line along the axis, an empty one where it is of another experiment."""
        return line if (line := getattr(self, axis)).of == x.curve_key(axis) else Line()


def read_estimates(x: Experiment, known: Evidence, lab: Lab) -> Iterator[Progress[Estimates]]:
    """Job: the Estimates from what is stored; runs no model."""
    found = recall_gradients(lab, x.subject, x.questions)
    if found is None:
        yield Progress(1, 1, Estimates())
        return
    shape, orders, typed = x.shape, x.orders(known), x.pruning.typed
    axes: list[Axis] = [axis for axis in AXES if _has_line(x, axis, known)]
    bare, alone = replace(x.pruning, typed=Mask.full(shape)), replace(x.pruning, heads_permille=0, ffns_permille=0)
    masks: dict[tuple[int, int], Mask] = {}
    for pruning in (x.pruning, bare, alone):
        for axis in axes:
            for permille in {*STEPS_PERMILLE, x.pruning.level(axis)}:
                mask = pruning.at(axis, permille).mask(orders)
                masks.setdefault(_shares(pruned_by(mask), shape.n_heads_total), mask)
    calibration = recall_calibration(lab, x.subject, x.questions, found, masks)
    taken = [check for check in calibration.checks if x.takes(round(check.n * check.measured), check.n)]
    measured = {masks[check.heads_permille, check.ffns_permille]: check.measured for check in taken}
    lines = {}
    for axis in axes:
        levels = sorted({*STEPS_PERMILLE, x.pruning.level(axis)})
        other = [x.pruning.level("ffns" if axis == "heads" else "heads")]
        by_level = (levels, other) if axis == "heads" else (other, levels)
        pruned = pruned_at(shape, orders.heads, orders.ffns, *by_level).reshape(len(levels), -1) | pruned_by(typed)
        shares = np.array([_shares(row, shape.n_heads_total) for row in pruned])
        found_at = calibration.applied(estimate(found, pruned), shares[:, 0], shares[:, 1])
        values = zip(levels, found_at.estimated, found_at.expected_error, found_at.is_trusted, strict=True)
        there = {permille: x.pruning.at(axis, permille).mask(orders) for permille in levels}
        estimated = {permille: Level(float(value), None if np.isnan(error) else float(error), bool(trusted))
                     for permille, value, error, trusted in values}  # fmt: skip
        known_at = {permille: measured[mask] for permille, mask in there.items() if mask in measured}
        lines[axis] = Line(x.curve_key(axis), estimated, known_at)
    yield Progress(1, 1, Estimates(**lines, n_levels=len(calibration.levels), has_gradients=True))


def counts(x: Experiment, axis: Axis, known: Evidence) -> dict[int, int]:
    """How many heads or FFNs are pruned in all at each step of the axis."""
    n = x.shape.n_heads_total if axis == "heads" else x.shape.n_layers
    order, typed = x.order(axis, known), ~np.array(getattr(x.pruning.typed, axis)).ravel()
    if order is None:
        return {permille: max(n_pruned(permille, n), int(typed.sum())) for permille in STEPS_PERMILLE}
    typed_behind = typed[order][::-1].cumsum()[::-1]  # of the typed ones, how many stand at each place or behind it
    behind = np.append(typed_behind, 0)
    return {permille: (k := n_pruned(permille, n)) + int(behind[k]) for permille in STEPS_PERMILLE}


def texts(x: Experiment, axis: Axis, known: Evidence, line: Line) -> dict[int, str]:
    """{percent: what is known of that level without measuring it}, such as "12 of 32 heads · estimate 41 % ± 3"."""
    n = x.shape.n_heads_total if axis == "heads" else x.shape.n_layers
    said = {}
    for permille, count in counts(x, axis, known).items():
        words = [f"{count} of {n:,} {NOUNS[axis]}"]
        if permille in line.measured:
            words.append(f"measured {100 * line.measured[permille]:.1f} %")
        elif permille in line.estimated:
            words.append(f"estimate {short(line.estimated[permille])}")
        said[permille // 10] = " · ".join(words)
    return said


def short(level: Level) -> str:
    """Such as "41 % ± 3", "41 %, unchecked"."""
    value = f"{100 * level.estimated:.0f} %"
    return f"{value}, unchecked" if level.error is None else f"{value} ± {100 * level.error:.0f}"


def trust(level: Level) -> str:
    """Whether to believe the estimate, and how that is known, in a sentence."""
    if level.error is None:
        return f"How far it is off is not known: that takes {MIN_LEVELS} measured levels, one of them as high."
    expected = f"{100 * level.error:.1f} points off"
    if level.trusted:
        return f"Expected to be {expected}, going by the measured levels."
    limit = f"more than {100 * TRUSTED_ERROR:.0f}"
    return f"**Not to be trusted**: expected to be {expected}, {limit}, going by the measured levels."


def in_words(x: Experiment, found: Estimates, line: Line, permille: int) -> str:
    """What the dashed line is and how far to believe it where the slider is, or why there is none."""
    if x.judged.greedy:
        return "No estimates: this task is judged by greedy decoding, which does not follow from log-likelihoods."
    if permille not in line.estimated:
        return "Estimates without a forward pass, a dashed line, come once the gradients are measured."
    level = line.estimated[permille]
    here = "here it was measured." if permille in line.measured else f"here {short(level)}. {trust(level)}"
    by = f"{found.n_levels} measured level{'s' * (found.n_levels > 1)}"
    behind = f"corrected by {by}" if found.n_levels else "not corrected by any measured level"
    return f"Dashed: estimate without a forward pass, {behind}; {here}"


def line_frame(line: Line) -> pd.DataFrame:
    """One row a level, shares 0-1; `low` and `high` are the error to expect, nan where that is unknown."""
    return pd.DataFrame([_row(*each) for each in line.estimated.items()], columns=COLUMNS)


def hand_frame(line: Line, permille: int, shown_at: int) -> pd.DataFrame:
    """The estimate at `permille`, drawn at another level where the curve runs along the other axis; one row or none."""
    rows = [_row(permille, line.estimated[permille])] if permille in line.estimated else []
    return pd.DataFrame(rows, columns=COLUMNS).assign(level=shown_at / 1000)


def _row(permille: int, level: Level) -> dict[str, Any]:
    error = np.nan if level.error is None else level.error
    low, high = np.clip([level.estimated - error, level.estimated + error], 0, 1)
    trusted = "not checked" if level.error is None else "yes" if level.trusted else "no"
    return dict(zip(COLUMNS, (permille / 1000, level.estimated, low, high, trusted), strict=True))


def _has_line(x: Experiment, axis: Axis, known: Evidence) -> bool:
    other = x.pruning.level("ffns" if axis == "heads" else "heads")
    return not known.missing(x.pruning.ranking.name, axis == "heads" or other > 0, axis == "ffns" or other > 0)


def _shares(pruned: np.ndarray, n_heads: int) -> tuple[int, int]:
    """Heads and FFNs that go, in permille: the level of a mask, whatever it was made of."""
    return round(1000 * pruned[:n_heads].mean()), round(1000 * pruned[n_heads:].mean())

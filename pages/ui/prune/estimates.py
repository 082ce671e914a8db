"""The effect of pruning at the neighboring levels, estimated without a forward pass, also as text.

Estimates are drawn in their own series.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from engine.composed import deferred
from engine.importance.estimates import Calibration, Check, Gradients, check, estimate, gradients
from engine.importance.orders import RANKED, Axis, Orders, n_components
from engine.importance.rankings import n_pruned
from engine.importance.rules import Evidence
from engine.models.masks import Mask
from engine.models.session import Session
from engine.views.estimates import EstimateLine, LevelEstimate, short
from pages.ui.page.defaults import AXES, LEVEL_NOUNS, LEVELS
from pages.ui.page.runtime import session, store
from pages.ui.page.tables import level_percent, mask_in_words, percent, whole_percent
from pages.ui.page.work import Action, Work
from pages.ui.prune.experiment import Experiment

SLOT = "estimates"
STEPS_PERMILLE = range(0, 1001, 50)
COLUMNS = ["level", "estimated", "low", "high", "trusted"]


@dataclass(frozen=True)
class Estimates:
    """What is estimated along one axis. `has_gradients`: the gradients of the estimates are stored."""

    line: EstimateLine = EstimateLine()
    has_gradients: bool = False


def read_estimates(x: Experiment, axis: Axis, known: Evidence, session: Session) -> Estimates:
    """Returns the Estimates from stored results; runs no model."""
    grads = gradients(x.target, x.questions).stored(session)
    if grads is None or x.at(axis, 1000).pruning.missing(known):
        return Estimates(has_gradients=grads is not None)
    return Estimates(_estimate_line(x, axis, x.orders(known), grads, session), True)


def estimates_work(x: Experiment, axis: Axis, known: Evidence) -> Work[Estimates]:
    """Returns the work that reads the stored estimates; again when something was stored."""
    read = partial(read_estimates, x, axis, known, session())
    return Work(SLOT, "Estimates", Action.of(f"{axis} {x.key} {store().n_puts}", read, reads=True), 1)


def gradients_work(x: Experiment) -> Work[Any]:
    """Returns the work that measures the estimates' gradients, after everything else; only the store keeps them."""
    found = deferred(x.target, ("gradients", x.questions), lambda session: gradients(x.target, x.questions))
    return Work("gradients", f"Estimates of {x.task.title}", found.map(lambda found: None), 3, while_seen=True)


def _estimate_line(x: Experiment, axis: Axis, orders: Orders, grads: Gradients, session: Session) -> EstimateLine:
    """Returns the line along the axis, corrected only by stored results of the same masks."""
    levels = sorted({*STEPS_PERMILLE, x.pruning.level(axis)})
    masks = {permille: x.at(axis, permille).pruning.mask(orders) for permille in levels}
    n_pruned, first, place_of = np.unique(
        [mask.n_heads_pruned + mask.n_ffns_pruned for mask in masks.values()], return_index=True, return_inverse=True
    )
    at = dict(zip(levels, place_of.tolist(), strict=True))  # levels of few parts prune the same
    places = [levels[index] for index in first]
    distinct = [masks[permille] for permille in places]
    each = {place: check(x.answers(mask).stored(session), grads, mask) for place, mask in enumerate(distinct)}
    checks = {place: checked for place, checked in each.items() if checked is not None}
    bare = estimate(grads, distinct).estimated
    calibration = Calibration(n_pruned, bare, tuple(checks.values()))
    worst, of_line = calibration.contradiction, []
    for place, (value, error, trusted, visible, steep) in enumerate(
        zip(calibration.corrected, calibration.expected_error, calibration.is_trusted, calibration.is_shown,
            calibration.is_steep, strict=True)
    ):  # fmt: skip
        between = _next_to(place, places, checks) if steep else ""
        error = None if np.isnan(error) else float(error)
        of_line.append(LevelEstimate(float(value), error, bool(trusted), bool(visible), between))
    return EstimateLine(
        x.curve_key(axis),
        {permille: of_line[place] for permille, place in at.items()},
        {permille: checks[place].measured for permille, place in at.items() if place in checks},
        len(calibration.levels),
        None if worst is None else next((places[place], worst) for place in checks if checks[place] is worst),
    )


def _next_to(place: int, places: Sequence[int], checks: Mapping[int, Check]) -> str:
    """Returns text such as "88% at 80%, 69% at 90%", of the measured places on both sides."""
    both = max(each for each in checks if each < place), min(each for each in checks if each > place)
    return ", ".join(f"{whole_percent(checks[each].measured)} at {level_percent(places[each])}" for each in both)


def counts(x: Experiment, axis: Axis, known: Evidence, levels: Iterable[int] = STEPS_PERMILLE) -> dict[int, int]:
    """Returns how many heads or FFNs are pruned in all, or layers dropped by level, at each level of the axis."""
    if axis == "layers":
        return {permille: n_pruned(permille, x.shape.n_layers) for permille in levels}
    n = n_components(x.shape, axis)
    order, edits = x.order(axis, known), x.pruning.typed
    typed, kept = (~np.array(getattr(named, axis)).ravel() for named in (edits.alone, edits.keep))
    if order is None:
        n_typed, n_left = int(typed.sum()), n - int(kept.sum())
        return {permille: min(max(n_pruned(permille, n), n_typed), n_left) for permille in levels}
    gone = np.append(0, (~kept[order]).cumsum())  # of the first 0, 1, ... of the order, those that are not kept
    typed_after = np.append(typed[order][::-1].cumsum()[::-1], 0)  # of the typed ones, those after them
    return {permille: int((gone + typed_after)[n_pruned(permille, n)]) for permille in levels}


def counted(x: Experiment, axis: Axis, known: Evidence, levels: Iterable[int] = STEPS_PERMILLE) -> dict[int, str]:
    """Returns the same as text, such as "12 of 32 heads"; "about" if a missing order may prune named components."""
    n = n_components(x.shape, axis)
    edits = x.pruning.typed
    is_named = axis != "layers" and not all(np.all(getattr(of, axis)) for of in (edits.prune, edits.keep))
    about = "about " if is_named and x.order(axis, known) is None else ""
    found = counts(x, axis, known, levels).items()
    return {permille: f"{about if permille else ''}{count} of {n:,} {LEVEL_NOUNS[axis]}" for permille, count in found}


def pruned_in_words(x: Experiment, known: Evidence, mask: Mask | None) -> str:
    """Returns text such as "19 of 48 heads, 2 of 6 FFNs pruned"; while a ranking is missing (no `mask`), how many each
    level prunes, and which ranking that is."""
    if mask is not None:
        return mask_in_words(x.shape, mask)
    levels: dict[Axis, int] = {axis: x.pruning.level(axis) for axis in LEVELS}
    numbers = [counted(x, axis, known, [level])[level] for axis, level in levels.items() if level or axis in AXES]
    missing = " and ".join(dict.fromkeys(RANKED[name] for name in x.pruning.missing(known)))
    return f"{', '.join(numbers)} pruned  \nRanking {missing} (needed once per task)"


def texts(x: Experiment, axis: Axis, known: Evidence, line: EstimateLine) -> dict[int, str]:
    """Returns {percent: text about that level without measuring it}, such as "12 of 32 heads · estimate 41% ± 3"."""
    by_percent = {}
    for permille, words in counted(x, axis, known).items():
        if permille in line.measured:
            words += f" · measured {percent(line.measured[permille])}"
        elif permille in line.estimated:
            level = line.estimated[permille]
            words += f" · measured {level.between}" if level.between else f" · estimate {short(level)}"
        by_percent[permille // 10] = words
    return by_percent


def line_frame(line: EstimateLine) -> pd.DataFrame:
    """Returns one row per level, shares 0-1, nan where the estimate is not to be shown; `low` and `high` are the error
    to expect, nan where that is unknown."""
    return pd.DataFrame([_row(*each) for each in line.estimated.items()], columns=COLUMNS)


def hand_frame(line: EstimateLine, permille: int) -> pd.DataFrame:
    """Returns the estimate at `permille`: 0 or 1 rows."""
    level = line.estimated.get(permille)
    rows = [_row(permille, level)] if level is not None and level.shown else []
    return pd.DataFrame(rows, columns=COLUMNS)


def _row(permille: int, level: LevelEstimate) -> dict[str, Any]:
    error = np.nan if level.error is None else level.error
    estimated = level.estimated if level.shown else np.nan
    low, high = np.clip([estimated - error, estimated + error], 0, 1)
    trusted = "not checked" if level.error is None else "yes" if level.trusted else "no"
    return dict(zip(COLUMNS, (permille / 1000, estimated, low, high, trusted), strict=True))

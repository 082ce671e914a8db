"""Estimates of accuracy without a forward pass, in words. Nothing here is a measured
accuracy, except `EstimateLine.measured`."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.importance.estimates import MIN_LEVELS, TRUSTED_ERROR, Check
from engine.views.words import percent


@dataclass(frozen=True)
class LevelEstimate:
    """The estimate at one level: accuracy 0-1, the absolute error to expect (None: unknown), whether to trust it.
    `shown`: whether it may be shown as a figure; if not, it is described as text (`trust`). `between`: text about the
    measured levels next to it, if they differ too much for an estimate."""

    estimated: float
    error: float | None
    trusted: bool
    shown: bool = True
    between: str = ""


@dataclass(frozen=True)
class EstimateLine:
    """Along one axis, everything else as it is (`of`, a `curve_key`): estimates, and accuracies that were measured on
    enough questions, 0-1. `contradiction`: the measured level at which the bare estimate is furthest off, too far."""

    of: str = ""
    estimated: Mapping[int, LevelEstimate] = field(default_factory=dict)
    measured: Mapping[int, float] = field(default_factory=dict)
    n_levels: int = 0  # measured levels that the estimates are corrected by
    contradiction: tuple[int, Check] | None = None


def short(level: LevelEstimate) -> str:
    """Returns text such as "41% ± 3", "41%, unchecked", "unreliable"."""
    if not level.shown:
        return "unreliable"
    value = percent(level.estimated, 0)
    return f"{value}, unchecked" if level.error is None else f"{value} ± {100 * level.error:.0f}"


def trust(line: EstimateLine, permille: int) -> str:
    """Describes whether the line's estimate at a level is reliable, and why."""
    level = line.estimated[permille]
    if level.between:
        return f"No estimate on a steep part: measured {level.between}."
    if not level.shown:
        return f"The fast estimate is **unreliable**: {_describe_doubt(line, level)}."
    if level.error is None:
        return f"How far it is off is not known: that takes {MIN_LEVELS} measured levels, on both sides of it."
    return f"Expected to be {100 * level.error:.1f} points off, going by the measured levels."


def describe_preview(line: EstimateLine, permille: int) -> tuple[str, str] | None:
    """Returns a caption of the dashed line at the slider's position, and its help; None without a dashed line."""
    left_out = sum(not level.shown for level in line.estimated.values())
    if left_out == len(line.estimated):
        return None
    level, words, about = line.estimated.get(permille), "Dashed: fast estimate", ["Not calibrated."]
    if line.n_levels:
        about = [f"Calibrated on {line.n_levels} measured level{'s' * (line.n_levels > 1)}."]
    if level is not None and permille not in line.measured:
        words += f", {short(level)} at this level"
        about.append(trust(line, permille))
    if any(level.shown and level.error is None for level in line.estimated.values()):
        about.append("Unchecked beyond the measured levels." if line.n_levels >= MIN_LEVELS else "Unchecked.")
    if left_out:
        about.append(f"Hidden at {left_out} of {len(line.estimated)} levels where unreliable.")
    return f"{words}.", " ".join(about)


def _describe_doubt(line: EstimateLine, level: LevelEstimate) -> str:
    if level.error is not None:
        limit = f"more than {100 * TRUSTED_ERROR:.0f}"
        return f"expected to be {100 * level.error:.1f} points off, {limit}"
    assert line.contradiction is not None  # what else would keep an unchecked estimate from being shown
    at, check = line.contradiction
    said, right = (percent(each, 0) for each in (check.estimated, check.measured))
    return f"with {at / 10:g}% pruned it is {said}, where {right} was measured"

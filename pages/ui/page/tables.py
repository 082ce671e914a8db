"""Formats of numbers, and tables as files, the same on every screen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from engine.models.masks import Mask
from engine.shapes import ModelShape
from engine.views.words import number as number
from engine.views.words import p_in_words as p_in_words
from engine.views.words import percent as percent
from engine.views.words import plain as plain
from engine.views.words import visible as visible

if TYPE_CHECKING:  # words of the first screenful need no pandas
    import pandas as pd

RANK_TITLE = "Rank (1 = most important)"  # on every screen, in tables, tooltips and axes
MOST_WRITTEN = 2000  # rows: more would delay the page


def to_csv(frame: pd.DataFrame) -> bytes:
    """Returns the frame as a CSV file."""
    return frame.to_csv(index=False).encode()


def whole_percent(share: float) -> str:
    """Returns a share such as "60%"; a dash if undefined."""
    return percent(share, 0)


def percents(low: float, high: float, digits: int = 1, to: str = "to") -> str:
    """Returns two shares, such as "36.1 to 46.5%"."""
    return f"{number(100 * low, digits)} {to} {percent(high, digits)}"


def level_percent(permille: float) -> str:
    """Returns a pruning level, such as "12.5%" or "60%"."""
    return f"{permille / 10:g}%"


def magnitude(value: float, digits: int = 2) -> str:
    """Returns a number of any size in `digits` digits, such as "0.012", "−5.6" or "3,880"; a dash if undefined."""
    if math.isnan(value):
        return "–"
    is_large = abs(value) >= 10**digits - 0.5
    return (f"{value:,.0f}" if is_large else f"{value:.{digits}g}").replace("-", "−")


def share(value: float) -> str:
    """Returns a share of any size in two digits, such as "5.1%" or "0.012%"; a dash if undefined."""
    return f"{magnitude(100 * value)}%" if value == value else "–"


def written(frame: pd.DataFrame, **columns: Any) -> Any:
    """Returns the frame for `st.dataframe`, its columns written by these functions (a true minus, percent); it still
    sorts by number."""
    return frame.style.format(columns) if len(frame) <= MOST_WRITTEN else frame


def mask_in_words(shape: ModelShape, mask: Mask | None) -> str:
    """Returns text such as "19 of 48 heads, 2 of 6 FFNs pruned (1 layer dropped)"."""
    if mask is None:
        return "Ranking heads and FFNs (needed once per task)"
    heads = f"{mask.n_heads_pruned} of {shape.n_heads_total:,} heads"
    n = len(mask.layers_dropped)
    dropped = f" ({n} layer{'s' * (n > 1)} dropped)" if n else ""
    return f"{heads}, {mask.n_ffns_pruned} of {shape.n_layers} FFNs pruned{dropped}"


def mask_counts(shape: ModelShape, mask: Mask) -> str:
    """Returns text such as "19 of 48 heads, 2 of 6 FFNs"; kinds with nothing pruned are omitted."""
    heads = [f"{mask.n_heads_pruned:,} of {shape.n_heads_total:,} heads"] if mask.n_heads_pruned else []
    ffns = [f"{mask.n_ffns_pruned} of {shape.n_layers} FFNs"] if mask.n_ffns_pruned else []
    return ", ".join([*heads, *ffns])


def pruned_counts(mask: Mask) -> str:
    """Returns how much a mask prunes, such as "4 heads and 1 FFN", or ""."""
    counts = ((mask.n_heads_pruned, "head"), (mask.n_ffns_pruned, "FFN"))
    return " and ".join(f"{n:,} {noun}{'s' * (n > 1)}" for n, noun in counts if n)

"""Charts of the Prune screen: accuracy over levels, the map of heads, the bars of FFNs.

Accuracies and levels are shares (0-1) in the frames and percent on the axes.
"""

from functools import lru_cache

import altair as alt
import pandas as pd

from pages.ui.shared.charts import (
    AXIS_PX,
    CELL,
    TEMPLATES,
    Picture,
    Template,
    crosses,
    head_grid,
    layer_rows,
    named_chart,
    picture,
    row_height,
    template,
)
from pages.ui.shared.colours import UNKNOWN

# the order fixes each one's place in the palette
SERIES = ["measured", "now", "full model", "chance", "estimate"]
PATTERNS = [[1, 0], [1, 0], [7, 4], [2, 4], [5, 4]]
DASHES = alt.StrokeDash("series:N", scale=alt.Scale(domain=SERIES, range=PATTERNS), legend=None)
COLOUR = alt.Color("series:N", scale=alt.Scale(domain=SERIES), legend=None)
LEVELS = [level / 10 for level in range(11)]  # the axis goes on a little, to make room for the names of the lines
NO_ESTIMATES = pd.DataFrame(columns=["level", "estimated", "low", "high", "trusted"])


def accuracy_curve(
    points: pd.DataFrame,
    now: pd.DataFrame,
    full: float | None,
    chance: float,
    x_title: str,
    estimates: pd.DataFrame = NO_ESTIMATES,
    hand: pd.DataFrame = NO_ESTIMATES,
) -> Picture:
    """Accuracy against pruning level, with 95 % intervals; `points` and `now` have level, acc, low, high, n, pruned.

    `now` is the current position: one row, or none while nothing is measured there. `estimates` and `hand` (where the
    slider moves) have level, estimated, low, high, trusted: drawn dashed and hollow, in a series of their own.
    """
    lines = [("chance", chance, full is not None and chance > full)]
    lines += [] if full is None else [("full model", full, chance <= full)]
    return picture(
        _curve(x_title),
        points=points.assign(series="measured"),
        now=now.assign(series="now"),
        lines=pd.DataFrame(lines, columns=["series", "acc", "above"]).assign(end=1.02),
        estimates=estimates.assign(series="estimate"),
        hand=hand.assign(series="estimate"),
    )


@lru_cache(TEMPLATES)
def _curve(x_title: str) -> Template:
    x = alt.X("level:Q", title=x_title, scale=alt.Scale(domain=[0, 1.16]), axis=alt.Axis(format="%", values=LEVELS))
    scale, axis = alt.Scale(domain=[0, 1]), alt.Axis(format="%", tickCount=5)
    y = alt.Y("acc:Q", title="Questions right", scale=scale, axis=axis)
    y_estimated = alt.Y("estimated:Q", title="Questions right", scale=scale, axis=axis)
    y_low = alt.Y("low:Q", title="Questions right")
    tooltip = [
        alt.Tooltip("level:Q", title="Pruned", format=".0%"),
        alt.Tooltip("pruned:N", title="Components"),
        alt.Tooltip("acc:Q", title="Questions right", format=".1%"),
        alt.Tooltip("low:Q", title="95 % interval from", format=".1%"),
        alt.Tooltip("high:Q", title="to", format=".1%"),
        alt.Tooltip("n:Q", title="Questions"),
    ]
    about = [
        alt.Tooltip("level:Q", title="Pruned", format=".0%"),
        alt.Tooltip("estimated:Q", title="Estimate, not measured", format=".0%"),
        alt.Tooltip("low:Q", title="With the error to expect, from", format=".0%"),
        alt.Tooltip("high:Q", title="to", format=".0%"),
        alt.Tooltip("trusted:N", title="To be trusted"),
    ]
    measured = named_chart("points").encode(x=x, color=COLOUR, tooltip=tooltip)
    here = named_chart("now").encode(x=x, color=COLOUR, tooltip=tooltip)
    estimated = named_chart("estimates").encode(x=x, color=COLOUR, tooltip=about)
    hand = named_chart("hand").encode(x=x, color=COLOUR, tooltip=about)
    layers = [
        *_lines(y),
        estimated.mark_area(opacity=0.15).encode(y=y_low, y2="high:Q"),
        estimated.mark_line(strokeWidth=1.5, opacity=0.8).encode(y=y_estimated, strokeDash=DASHES),
        measured.mark_line(strokeWidth=2, opacity=0.55).encode(y=y),
        measured.mark_rule(strokeWidth=1.5).encode(y=y_low, y2="high:Q"),
        measured.mark_point(filled=True, size=55, opacity=1).encode(y=y),
        here.mark_rule(strokeWidth=2.5).encode(y=y_low, y2="high:Q"),
        here.mark_point(filled=True, size=190, opacity=1, shape="diamond").encode(y=y),
        hand.mark_point(filled=False, size=190, opacity=1, strokeWidth=2.5, shape="diamond").encode(y=y_estimated),
    ]
    return template(300, *layers)


def head_map(frame: pd.DataFrame, title: str = "Importance") -> Picture:
    """Layers x heads, a cross on each pruned one; `frame`: layer, head, name, score (or nan), rank, pruned, state."""
    known = bool(frame["score"].notna().any())
    top = (float(frame["score"].max()) or 1.0) if known else 1.0
    return picture(_head_map(title, int(frame["layer"].max()) + 1, known, top), heads=frame)


@lru_cache(TEMPLATES)
def _head_map(title: str, n_layers: int, known: bool, top: float) -> Template:
    row_px = row_height(n_layers)
    base = head_grid(
        alt.Tooltip("score:Q", title=title, format=".3~g"),
        alt.Tooltip("rank:Q", title="Rank (1 = first to go)"),
        alt.Tooltip("state:N", title="State"),
    )
    colour = alt.Color(
        "score:Q",
        title=title,
        # most heads score far below the best few; the root keeps them apart, and zero stays zero
        scale=alt.Scale(type="sqrt", domain=[0, top]),
        legend=alt.Legend(format=".2~g", tickCount=3, gradientLength=row_px * n_layers) if known else None,
    )
    cells = base.mark_rect(**CELL)
    cells = cells.encode(color=colour) if known else cells.encode(color=alt.value(UNKNOWN))
    return template(row_px * n_layers + AXIS_PX, cells, *crosses(base, row_px))


def ffn_bars(frame: pd.DataFrame, title: str = "Accuracy lost without it") -> Picture:
    """One bar a layer, pale and crossed where pruned; `frame`: layer, name, score (or nan), rank, pruned, state."""
    known = bool(frame["score"].notna().any())
    shown = frame if known else frame.assign(score=1.0)
    low, high = min(0.0, float(shown["score"].min())), max(0.0, float(shown["score"].max()))
    return picture(_ffn_bars(title, int(frame["layer"].max()) + 1, known, low, high or 1.0), ffns=shown)


@lru_cache(TEMPLATES)
def _ffn_bars(title: str, n_layers: int, known: bool, low: float, high: float) -> Template:
    row_px = row_height(n_layers)
    x = alt.X(
        "score:Q",
        title=title if known else None,
        scale=alt.Scale(domain=[low, high], nice=True),
        axis=alt.Axis(tickCount=3, format=".2~%") if known else None,
    )
    base = named_chart("ffns").encode(
        y=layer_rows(),
        tooltip=[
            alt.Tooltip("name:N", title="FFN"),
            *([alt.Tooltip("score:Q", title=title, format=".2~%")] if known else []),
            alt.Tooltip("rank:Q", title="Rank (1 = first to go)"),
            alt.Tooltip("state:N", title="State"),
        ],
    )
    fill = alt.condition("datum.pruned", alt.value(0.12), alt.value(0.9 if known else 0.25))
    bars = base.mark_bar(strokeWidth=1, height={"band": 0.72}).encode(x=x, opacity=fill)
    at_zero = base.encode(x=alt.datum(0.0 if known else 0.5))
    height = row_px * n_layers + (AXIS_PX if known else 0)
    return template(height, bars, *crosses(at_zero, row_px))


def _lines(y: alt.Y) -> list[alt.Chart]:
    """Horizontal lines across the curve, each with its name at the right end, above or below it."""
    base = named_chart("lines").encode(y=y, color=COLOUR)
    tooltip = [alt.Tooltip("series:N", title="Line"), alt.Tooltip("acc:Q", title="Questions right", format=".1%")]
    name = base.encode(x=alt.X("end:Q"), text="series:N")
    return [
        base.mark_rule(strokeWidth=1.5).encode(strokeDash=DASHES, tooltip=tooltip),
        name.transform_filter("datum.above").mark_text(align="left", baseline="bottom", dy=-4),
        name.transform_filter("!datum.above").mark_text(align="left", baseline="top", dy=4),
    ]

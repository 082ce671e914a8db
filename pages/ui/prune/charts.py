"""Charts of the Prune screen: accuracy over levels, the map of heads, the bars of FFNs.

Accuracies and levels are shares (0-1) in the frames and percent on the axes.
"""

import json
from typing import Any

import altair as alt
import pandas as pd

from engine.views.colors import GREY, UNKNOWN, palette
from pages.ui.figures import charts
from pages.ui.page.tables import RANK_TITLE

SECOND = "second"  # the second model's line
DOMAIN = palette(pruned="measured", now="now", full="full model", second=SECOND, estimate="estimate", chance="chance")
COLOUR = alt.Color("series:N", scale=alt.Scale(domain=DOMAIN), legend=None)
PATTERNS = {"full model": [7, 4], "chance": [2, 4], "estimate": [5, 4]}
DASHED = alt.Scale(domain=DOMAIN, range=[PATTERNS.get(series, [1, 0]) for series in DOMAIN])
DASHES = alt.StrokeDash("line:N", scale=DASHED, legend=None)  # of "series" Vega would join its legend with the colors'
LEVELS = [level / 10 for level in range(11)]
NAMES_PX = 36  # to the right of the curve, for the names of the lines; on screen Streamlit adds it twice
STATE = f"rank:Q|{RANK_TITLE}; state:N|State"
GAP = 0.2  # between two measured levels, above which no line claims what is in between
ACCURACY_LOST = "Accuracy lost without it"  # the one score of FFNs that is a share
NONE = pd.DataFrame(columns=["level", "estimated", "low", "high", "trusted"])
Pair = tuple[pd.DataFrame, pd.DataFrame]
NEITHER: Pair = (NONE, NONE)


def accuracy_curve(
    points: pd.DataFrame, now: pd.DataFrame, full: float | None, chance: float, x_title: str, dashed: Pair = NEITHER
) -> charts.Picture:
    """Returns accuracy against pruning level, with 95% intervals; `points` and `now` have level, acc, low, high, n,
    pruned.

    `now` is the current position: one row, or none before the first measurement there. `dashed` are estimates, along
    the curve and where the slider moves (level, estimated, low, high, trusted), in a series of their own. Of two models
    both frames have also `series` (measured, now or SECOND) and `model`, which a legend names then.
    """
    lines = [("chance", chance, full is not None and chance > full)]
    lines += [] if full is None else [("full model", full, chance <= full)]
    named = pd.DataFrame(lines, columns=["series", "acc", "above"]).assign(end=1.0)
    named["line"] = named["series"]
    models = _models(pd.concat([points, now])) if "model" in points else ()
    if not models:
        points, now = points.assign(series="measured"), now.assign(series="now")
    points = points.assign(shape=points["series"]).sort_values(["series", "level"])
    through = _through(points, now)
    along, hand = (frame.assign(series="estimate", line="estimate") for frame in dashed)
    return charts.picture(
        _curve(x_title, models), points=points, through=through, now=now, lines=named, estimates=along, hand=hand
    )


def _through(points: pd.DataFrame, now: pd.DataFrame) -> pd.DataFrame:
    """Returns what the lines go through: the measured levels, and the current position if it is measured in full."""
    here = now[now["n"] >= points["n"].max()] if len(points) else now.head(0)
    rows = pd.concat([points, here.assign(series=here["series"].replace("now", "measured"))])
    rows = rows.drop_duplicates(["series", "level"]).sort_values(["series", "level"])
    return rows.assign(run=rows.groupby("series")["level"].diff().gt(GAP).cumsum())


@charts.kept
def _curve(x_title: str, models: tuple[tuple[str, str], ...]) -> charts.Template:
    x = alt.X("level:Q", title=x_title, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%", values=LEVELS))
    scale, axis = alt.Scale(domain=[0, 1]), alt.Axis(format="%", tickCount=5)
    y = alt.Y("acc:Q", title="Questions right", scale=scale, axis=axis)
    y_estimated = alt.Y("estimated:Q", title="Questions right", scale=scale, axis=axis)
    y_low = alt.Y("low:Q", title="Questions right")
    tooltip = charts.tips(
        "level:Q|Pruned|.0%; pruned:N|Components; acc:Q|Questions right|.1%",
        "low:Q|95% interval from|.1%; high:Q|to|.1%; n:Q|Questions",
    )
    about = charts.tips(
        "level:Q|Pruned|.0%; estimated:Q|Estimate, not measured|.0%",
        "low:Q|With the error to expect, from|.0%; high:Q|to|.0%; trusted:N|Reliable",
    )
    colour, shape = COLOUR, alt.Undefined
    if models:  # two of them: named on top, and distinguished by their points too
        tooltip = [*charts.tips("model:N|Model"), *tooltip]
        names = json.dumps(dict(models))
        legend = alt.Legend(orient="top", title=None, symbolType="stroke", symbolStrokeWidth=3, symbolOpacity=1,
                            labelLimit=320, values=[series for series, _ in models],
                            labelExpr=f"{names}[datum.label]")  # fmt: skip
        colour = alt.Color("series:N", scale=alt.Scale(domain=DOMAIN), legend=legend)
        shapes = alt.Scale(domain=["measured", SECOND], range=["circle", "square"])
        shape = alt.Shape("shape:N", scale=shapes, legend=None)
    measured = charts.named_chart("points").encode(x=x, color=colour, tooltip=tooltip)
    through = charts.named_chart("through").encode(x=x, color=colour, tooltip=tooltip)
    here = charts.named_chart("now").encode(x=x, color=colour, tooltip=tooltip)
    estimated = charts.named_chart("estimates").encode(x=x, color=colour, tooltip=about)
    hand = charts.named_chart("hand").encode(x=x, color=colour, tooltip=about)
    layers = [
        *_lines(y, colour),
        estimated.mark_area(opacity=0.15).encode(y=y_low, y2="high:Q"),
        estimated.mark_line(strokeWidth=1.5, opacity=0.8).encode(y=y_estimated, strokeDash=DASHES),
        through.mark_line(strokeWidth=2, opacity=0.55).encode(y=y, detail="run:N"),
        measured.mark_rule(strokeWidth=1.5).encode(y=y_low, y2="high:Q"),
        measured.mark_point(filled=True, size=55, opacity=1).encode(y=y, shape=shape),
        # both named for screens.css
        here.mark_rule(strokeWidth=2.5).encode(y=y_low, y2="high:Q").properties(name="now_interval"),
        here.mark_point(filled=True, size=190, opacity=1, shape="diamond").encode(y=y).properties(name="now"),
        hand.mark_point(filled=False, size=190, opacity=1, strokeWidth=2.5, shape="diamond").encode(y=y_estimated),
    ]
    return charts.template(300, *layers, padding={"right": NAMES_PX})


def _models(rows: pd.DataFrame) -> tuple[tuple[str, str], ...]:
    """Returns (series of its line, name) of each model in these rows."""
    named = rows.assign(series=rows["series"].replace("now", "measured")).drop_duplicates("series")
    return tuple(zip(named["series"], named["model"], strict=True))


def head_map(frame: pd.DataFrame, title: str = "Importance") -> charts.Picture:
    """Returns layers x heads, pruned ones crossed; `frame`: layer, head, name, score (or nan), rank, pruned, state."""
    known = bool(frame["score"].notna().any())
    top = (float(frame["score"].max()) or 1.0) if known else 1.0
    return charts.picture(_head_map(title, int(frame["layer"].max()) + 1, known, top), heads=frame)


@charts.kept
def _head_map(title: str, n_layers: int, known: bool, top: float) -> charts.Template:
    row_px = charts.row_height(n_layers)
    base = charts.head_grid(f"score:Q|{title}|{charts.MAGNITUDE}", STATE)
    # most heads score far below the best few; the root keeps them apart, and zero stays zero
    scale = alt.Scale(type="sqrt", domain=[0, top])
    legend = alt.Legend(format=charts.ROUGHLY, tickCount=3, gradientLength=row_px * n_layers)
    colour = alt.Color("score:Q", title=title, scale=scale, legend=legend) if known else alt.value(UNKNOWN)
    cells = base.mark_rect(**charts.CELL).encode(color=colour)
    return charts.template(row_px * n_layers + charts.AXIS_PX, cells, *charts.crosses(base, row_px))


def ffn_bars(frame: pd.DataFrame, title: str = ACCURACY_LOST) -> charts.Picture:
    """Returns one bar per layer, or a thin line before any score, pruned ones crossed; `frame`: layer, name, score
    (or nan), rank, pruned, state."""
    known = bool(frame["score"].notna().any())
    shown = frame if known else frame.assign(score=1.0)
    low, high = min(0.0, float(shown["score"].min())), max(0.0, float(shown["score"].max()))
    return charts.picture(_ffn_bars(title, int(frame["layer"].max()) + 1, known, low, high or 1.0), ffns=shown)


@charts.kept
def _ffn_bars(title: str, n_layers: int, known: bool, low: float, high: float) -> charts.Template:
    row_px = charts.row_height(n_layers)
    form = ".2~%" if title == ACCURACY_LOST else charts.MAGNITUDE
    axis, scale = alt.Axis(tickCount=3, format=form) if known else None, alt.Scale(domain=[low, high], nice=True)
    x = alt.X("score:Q", title=title if known else None, scale=scale, axis=axis)
    tooltip = charts.tips("name:N|FFN", *([f"score:Q|{title}|{form}"] if known else []), STATE)
    base = charts.named_chart("ffns").encode(y=charts.layer_rows(), tooltip=tooltip)
    look: dict[str, Any] = {} if known else {"color": GREY}
    fill = alt.condition("datum.pruned", alt.value(0.12), alt.value(0.9)) if known else alt.value(1)
    bars = base.mark_bar(strokeWidth=1, height={"band": 0.72 if known else 0.05}, **look).encode(x=x, opacity=fill)
    crosses = charts.crosses(base.encode(x=alt.datum(0.0 if known else 0.5)), row_px)
    return charts.template(row_px * n_layers + (charts.AXIS_PX if known else 0), bars, *crosses)


def _lines(y: alt.Y, colour: alt.Color) -> list[alt.Chart]:
    """Returns horizontal lines across the curve, each with its name at the right end, above or below it."""
    base = charts.named_chart("lines").encode(y=y, color=colour)
    tooltip = charts.tips("series:N|Line", "acc:Q|Questions right|.1%")
    name = charts.named_chart("lines").encode(y=y, x=alt.X("end:Q"), text="series:N")
    return [
        base.mark_rule(strokeWidth=1.5).encode(strokeDash=DASHES, tooltip=tooltip),
        charts.written(name.transform_filter("datum.above"), 11, align="left", dx=8, baseline="bottom"),
        charts.written(name.transform_filter("!datum.above"), 11, align="left", dx=8, baseline="top"),
    ]

"""Charts of scores by head: takes a DataFrame, returns a picture, one row per head (`pages.ui.induction.tables`).

Selected heads have a ring; in every chart a clicked head is the selection `head`.
"""

from functools import partial
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from engine.errors import UsageError
from pages.ui.figures import charts
from pages.ui.figures.colours import GREY, MARK, UNDEFINED, palette
from pages.ui.figures.induction_scores import TITLES

HELP = {
    "prefix_matching": "Random tokens, four times over: attention from each to what followed its earlier copies.",
    "copying": "Random tokens, once. In files and on the command line it is Olsson's score, 4 times this share less 1, "
    "from −1 (none) to 1, its maximum: 50% means 50% or more. Bansal's variant is a share there too.",
    "previous_token": "In a story.",
    "duplicate_token": "Random tokens, four times over.",
    "ov_eigen": "OV circuit: from a token through the head's values to its logit. Real parts of its eigenvalues over "
    "their sizes.",
    "qk_trace": "How well keys that earlier heads wrote about the token before match the query's own token. Defined "
    "from layer 1 on.",
}
KINDS = ["chosen", "aggregate", "random", "reversed", "task"]  # of lines
DOMAIN = palette(["aggregate", "reversed", "task"], pruned="chosen", random="random")
SIGNED = ("ov_eigen", "qk_trace")
LINE = 0.045  # share of the scatter's height that a name takes
MOST_COPYING = {True: 0.5, False: 1.0}  # Olsson's score stops at a half


def shown(score: str) -> str:
    """Returns the column of `pages.ui.induction.tables.head_scores` that is drawn for a score."""
    return "copying_share" if score == "copying" else score


def score_map(frame: pd.DataFrame, score: str) -> charts.Picture:
    """Returns layers x heads, colored by one score on its own scale."""
    # a model of one layer has no QK trace
    reach = (float(frame[score].abs().fillna(0).max()) or 1.0) if score == "qk_trace" else 1.0
    if score == "copying":
        reach = _most(frame)
    signed = score == "qk_trace" or (score in SIGNED and bool(frame[score].min() < 0))
    return charts.picture(_score_map(score, int(frame["layer"].max()) + 1, signed, reach), heads=frame)


@charts.kept
def _score_map(score: str, n_layers: int, signed: bool, reach: float) -> charts.Template:
    height, column, share = charts.row_height(n_layers), shown(score), score == "copying"
    form = ".1%" if share else charts.MAGNITUDE
    base = charts.head_grid(
        f"{column}:Q|{TITLES[score]}|{form}",
        f"{column}_se:Q|Standard error|{'.1%' if share else charts.ROUGHLY}",
        f"{column}_rank:Q|Rank (1 = highest)",
    )
    scale = charts.around_zero(reach) if signed else alt.Scale(domain=[0, reach])
    form = ".0%" if share else charts.ROUGHLY
    legend = alt.Legend(title=None, format=form, tickCount=3, gradientLength=max(60, height * n_layers))
    colour = alt.Color(f"{column}:Q", scale=scale, legend=legend)
    # not the other way round: Vega-Lite would then paint undefined values as 0
    known = alt.condition(f"!isValid(datum['{column}'])", alt.value(UNDEFINED), colour)
    cells = base.mark_rect(**charts.CELL, cursor="pointer", invalid="show").encode(color=known).add_params(_click())
    ring = base.transform_filter("datum.selected").mark_rect(filled=False, stroke=MARK, strokeWidth=2.5)
    return charts.template(height * n_layers + charts.AXIS_PX, cells, *charts.crosses(base, height), ring)


def _most(frame: pd.DataFrame) -> float:
    return MOST_COPYING[bool((frame["copying"] < 0).any())]


def induction_scatter(frame: pd.DataFrame, corner: tuple[float, float]) -> charts.Picture:
    """Returns prefix matching against copying, one dot per head, colored by layer; beyond both values of `corner` are
    the induction heads, which have their names. Without such heads no corner is drawn."""
    matching, copying = corner
    most = max(_most(frame), copying)
    area = pd.DataFrame({"x": [matching], "x2": [1.0], "y": [copying], "y2": [most]})
    drawn, area = frame.assign(name_y=_name_heights(frame, most)), area[: int(frame["in_corner"].any())]
    return charts.picture(_induction_scatter(most, int(frame["layer"].max()) + 1), heads=drawn, corner=area)


@charts.kept
def _induction_scatter(most: float, n_layers: int) -> charts.Template:
    y, axis = partial(alt.Y, title="Copying"), alt.Axis(format="%", tickCount=5)
    base = charts.named_chart("heads").encode(
        x=alt.X("prefix_matching:Q", title="Prefix matching", scale=alt.Scale(domain=[0, 1])),
        tooltip=charts.tips("name:N|Head; prefix_matching:Q|Prefix matching|.3f; copying_share:Q|Copying|.1%"),
    )
    at = base.encode(y=y("copying_share:Q", scale=alt.Scale(domain=[0, most]), axis=axis))
    points = at.mark_point(filled=True, size=90, opacity=0.9, cursor="pointer").encode(color=charts.by_layer(n_layers))
    names = base.encode(y=y("name_y:Q", axis=axis)).transform_filter("isValid(datum.name_y)")
    names = charts.written(names, 11, align="right", dx=-8).encode(text="name:N")
    ring = at.transform_filter("datum.selected").mark_point(filled=False, size=220, stroke=MARK, strokeWidth=2.5)
    corner = charts.named_chart("corner").mark_rect(opacity=0.1, color=MARK)
    corner = corner.encode(x="x:Q", x2="x2:Q", y=y("y:Q", axis=axis), y2="y2:Q", tooltip=alt.value(None))
    words = charts.written(charts.named_chart("corner"), 11, align="right", baseline="top", dx=-5, dy=5)
    words = words.encode(x="x2:Q", y=y("y2:Q", axis=axis), text=alt.value("induction corner"))
    return charts.template(330, corner, words, points.add_params(_click()), ring, names)


def _name_heights(frame: pd.DataFrame, most: float) -> list[float]:
    """Returns the height of each head's name, nan without a name: at its point, or as near as leaves room between it
    and the names below."""
    shares, named = frame["copying_share"].to_numpy(), (frame["selected"] | frame["in_corner"]).to_numpy()
    heights, free = np.full(len(frame), np.nan), -np.inf
    for at in np.flatnonzero(named)[np.argsort(shares[named])]:
        heights[at] = free = max(shares[at], free)
        free += LINE * most
    return heights.tolist()


def depth_strip(frame: pd.DataFrame, score: str) -> charts.Picture:
    """Returns one score against relative depth, with the mean of each layer."""
    return charts.picture(_depth_strip(score), heads=frame)


@charts.kept
def _depth_strip(score: str) -> charts.Template:
    x = alt.X("depth:Q", title="Depth (0 = first layer, 1 = last)", scale=alt.Scale(domain=[-0.03, 1.03], nice=False))
    column, axis = shown(score), _axis(score)
    y = alt.Y(f"{column}:Q", title=TITLES[score], axis=axis)
    base = charts.named_chart("heads").encode(x=x)
    tooltip = charts.tips(
        "name:N|Head", f"{column}:Q|{TITLES[score]}|{'.1%' if score == 'copying' else charts.MAGNITUDE}"
    )
    points = base.mark_point(filled=True, size=60, opacity=0.65, cursor="pointer").encode(y=y, tooltip=tooltip)
    means = base.mark_line(strokeWidth=2, opacity=0.6, point=False).encode(y=alt.Y(f"mean({column}):Q"))
    # filtered, the axis would have no end if none is selected
    size = alt.condition("datum.selected", alt.value(160), alt.value(0))
    ring = base.mark_point(filled=False, stroke=MARK, strokeWidth=2.5).encode(y=y, size=size)
    return charts.template(250, means, points.add_params(_click()), ring)


def distribution(frame: pd.DataFrame, score: str) -> charts.Picture:
    """Returns the number of heads by score."""
    x = alt.X(f"{shown(score)}:Q", bin=alt.Bin(maxbins=24), title=TITLES[score], axis=_axis(score))
    y, tooltip = alt.Y("count():Q", title="Heads"), charts.tips("count():Q|Heads")
    return charts.picture(
        charts.template(250, charts.named_chart("heads").mark_bar().encode(x=x, y=y, tooltip=tooltip)), heads=frame
    )


def example_pattern() -> charts.Picture:
    """Returns the pattern of an ideal induction head, on four tokens that come twice."""
    words = ["the", "red", "fox", "ran"] * 2
    names = [f"{position} {word}" for position, word in enumerate(words, start=1)]
    cells = []
    for d, destination in enumerate(names):
        for s, source in enumerate(names[: d + 1]):
            strong = s > 0 and d >= 4 and words[s - 1] == words[d] and s <= d - 3
            what = f"at {destination}: looks at {source}" if strong else ""
            cells.append({"looks": destination, "at": source, "attention": float(strong), "what": what})
    base = charts.named_chart("cells").encode(
        x=alt.X("at:N", sort=names, title="looks at", axis=alt.Axis(labelAngle=-40)),
        y=alt.Y("looks:N", sort=names, title="token"),
    )
    colour = alt.Color("attention:Q", scale=alt.Scale(domain=[0, 1]), legend=None)
    rect = base.mark_rect(stroke=GREY, strokeOpacity=0.45).encode(color=colour, tooltip="what:N")
    return charts.picture(charts.template(230, rect), cells=pd.DataFrame(cells))


def retained_chart(frame: pd.DataFrame, score: str) -> charts.Picture:
    """Returns the share of a score's total left against heads pruned; `frame`: line, level, left, low, high, kind.

    Kinds: `task` (thin lines), `chosen`, `aggregate`, `reversed`, `random` (mean with its band).
    """
    unknown = set(frame["kind"]) - set(KINDS)
    if unknown:
        raise UsageError(f"kinds of lines {sorted(unknown)} are unknown")
    drawn = tuple(kind for kind in KINDS if kind in set(frame["kind"]))
    return charts.picture(_retained_chart(score, drawn), lines=frame)


@charts.kept
def _retained_chart(score: str, drawn: tuple[str, ...]) -> charts.Template:
    x = alt.X("level:Q", title="Heads pruned", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("left:Q", title=f"{TITLES[score]} left", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    base = charts.named_chart("lines").encode(x=x, detail="line:N")
    look: dict[str, Any] = {"symbolType": "stroke", "symbolOpacity": 1, "symbolStrokeWidth": 3}
    legend = alt.Legend(values=list(drawn), orient="bottom", columns=3, **look)
    colour = alt.Color("kind:N", title=None, scale=alt.Scale(domain=DOMAIN), legend=legend)
    band = base.transform_filter("datum.kind == 'random'").mark_area(opacity=0.18)
    band = band.encode(y=alt.Y("low:Q", title=f"{TITLES[score]} left"), y2="high:Q", color=colour)
    tooltip = charts.tips("line:N|Ranking", "level:Q|Pruned|.0%", "left:Q|Left|.1%")
    thin = base.transform_filter("datum.kind == 'task'").mark_line(strokeWidth=1, opacity=0.4)
    thick = base.transform_filter("datum.kind != 'task'").mark_line(strokeWidth=2.5)
    layers = [band, *(lines.encode(y=y, color=colour, tooltip=tooltip) for lines in (thin, thick))]
    return charts.template(300, *layers)


def _axis(score: str) -> alt.Axis:
    return alt.Axis(format="%") if score == "copying" else alt.Axis()


def _click() -> alt.Parameter:
    return alt.selection_point(name="head", fields=["layer", "head"])

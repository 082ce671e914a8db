"""Charts of scores by head: takes a DataFrame, returns a picture, one row per head (`pages.ui.induction.tables`).

Selected heads have a ring; in every chart a clicked head is the selection `head`.
"""

import math
from functools import partial
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from engine.errors import UsageError
from engine.views.colors import GREY, MARK, UNDEFINED, palette
from pages.ui.figures import charts
from pages.ui.figures.induction_scores import TITLES

HELP = {
    "prefix_matching": "Random tokens, four times over: attention from each to what followed its earlier copies.",
    "copying": "Random tokens, once. In files and on the command line it is Olsson's score, 4 times this share less 1, "
    "from −1 (none) to 1, its maximum: 50% means 50% or more.",
    "previous_token": "In a story.",
    "duplicate_token": "Random tokens, four times over.",
    "ov_eigen": "OV circuit: from a token through the head's values to its logit. Real parts of its eigenvalues over "
    "their sizes.",
    "qk_trace": "How well keys that earlier heads wrote about the token before match the query's own token. Defined "
    "from layer 1 on.",
}
KINDS = ["chosen", "aggregate", "random", "reversed", "task"]  # of lines
DOMAIN = palette(["aggregate", "reversed", "task"], pruned="chosen", random="random")
NAMED_BETWEEN, NAMES_APART = (0.1, 0.75), 0.15  # levels at which lines are named, and the distance of two names
SIGNED = ("ov_eigen", "qk_trace")
MAP_PX, LARGEST_ROW_PX = 330, 42  # the large map, and a row of it
NUMBER_PX, N_NUMBERED, MOST_NUMBERED = 11, 4, 16  # numbers on cells: their size, how many, and up to how many heads
LEFT_FROM = 0.75  # prefix matching from which a head's name is rather on the left of its dot
LINE, NAME_WIDTH, MOST_NAMES = 0.05, 0.15, 12  # shares of the scatter that a name takes, and the most names
GAP = 0.02  # of its width, between a dot and a name
MOST_COPYING = 0.5  # Olsson's score stops there


def shown(score: str) -> str:
    """Returns the column of `pages.ui.induction.tables.head_scores` that is drawn for a score."""
    return "copying_share" if score == "copying" else score


def score_map(frame: pd.DataFrame, score: str, is_large: bool = False) -> charts.Picture:
    """Returns layers x heads, colored by one score on its own scale; induction heads are outlined. A large one has the
    numbers of the highest heads on their cells."""
    # a model of one layer has no QK trace
    reach = (float(frame[score].abs().fillna(0).max()) or 1.0) if score == "qk_trace" else 1.0
    if score == "copying":
        reach = MOST_COPYING
    signed = score == "qk_trace" or (score in SIGNED and bool(frame[score].min() < 0))
    n_layers, n_heads = int(frame["layer"].max()) + 1, int(frame["head"].max()) + 1
    row_px = min(LARGEST_ROW_PX, max(9, MAP_PX // n_layers)) if is_large else charts.row_height(n_layers)
    numbered = is_large and row_px >= NUMBER_PX + 4 and n_heads <= MOST_NUMBERED
    return charts.picture(_score_map(score, n_layers, signed, reach, row_px, numbered), heads=frame)


@charts.kept
def _score_map(score: str, n_layers: int, signed: bool, reach: float, row_px: int, numbered: bool) -> charts.Template:
    column, share = shown(score), score == "copying"
    form = ".1%" if share else charts.MAGNITUDE
    base = charts.head_grid(
        f"{column}:Q|{TITLES[score]}|{form}",
        f"{column}_se:Q|Standard error|{'.1%' if share else charts.ROUGHLY}",
        f"{column}_rank:Q|Rank (1 = highest)",
    )
    scale = charts.around_zero(reach) if signed else alt.Scale(domain=[0, reach])
    form = ".0%" if share else charts.ROUGHLY
    legend = alt.Legend(title=None, format=form, tickCount=3, gradientLength=max(60, row_px * n_layers))
    colour = alt.Color(f"{column}:Q", scale=scale, legend=legend)
    # not the other way round: Vega-Lite would then paint undefined values as 0
    known = alt.condition(f"!isValid(datum['{column}'])", alt.value(UNDEFINED), colour)
    cells = base.mark_rect(**charts.CELL, cursor="pointer", invalid="show").encode(color=known).add_params(_click())
    inside = base.transform_filter("datum.in_corner")
    outline = inside.transform_filter("!datum.hardly_copies").mark_rect(filled=False, stroke=MARK, strokeWidth=1.5)
    weak = inside.transform_filter("datum.hardly_copies")
    weak = weak.mark_rect(filled=False, stroke=MARK, strokeWidth=1.5, strokeDash=[2, 2])
    ring = base.transform_filter("datum.selected").mark_rect(filled=False, stroke=MARK, strokeWidth=3.5)
    layers = [cells, outline, weak, *charts.crosses(base, row_px), ring]
    if numbered:
        of = (
            f"isValid(datum['{column}']) && datum['{column}_rank'] <= {N_NUMBERED} && !datum.pruned"  # a cross is there
        )
        highest = base.transform_filter(of)
        text = alt.Text(f"{column}:Q", format=".0%" if share else ".0f" if score == "qk_trace" else ".2f")
        layers += charts.on_cells(highest, NUMBER_PX, column, text, aria=False)
    return charts.template(row_px * n_layers + charts.AXIS_PX, *layers)


def induction_scatter(frame: pd.DataFrame, corner: tuple[float, float]) -> charts.Picture:
    """Returns prefix matching against copying, one dot per head; beyond both values of `corner` are the induction
    heads, which are colored and have their names. Without such heads no corner is drawn."""
    matching, copying = corner
    highest = max(float(frame["copying_share"].max()), copying if frame["in_corner"].any() else 0.0)
    most = min(MOST_COPYING, math.ceil(20 * highest + 0.6) / 20)
    area = pd.DataFrame({"x": [matching], "x2": [1.0], "y": [copying], "y2": [most]})
    drawn, area = frame.join(name_places(frame, most)), area[: int(frame["in_corner"].any())]
    return charts.picture(_induction_scatter(most), heads=drawn, corner=area)


@charts.kept
def _induction_scatter(most: float) -> charts.Template:
    y, axis = partial(alt.Y, title="Copying"), alt.Axis(format="%", tickCount=5)
    base = charts.named_chart("heads").encode(
        x=alt.X(
            "prefix_matching:Q", title="Prefix matching", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5)
        ),
        tooltip=charts.tips("name:N|Head; prefix_matching:Q|Prefix matching|.2f; copying_share:Q|Copying|.1%"),
    )
    at = base.encode(y=y("copying_share:Q", scale=alt.Scale(domain=[0, most]), axis=axis))
    others, inside = at.transform_filter("!datum.in_corner"), at.transform_filter("datum.in_corner")
    dots = others.mark_point(filled=True, size=80, opacity=0.7, cursor="pointer", color=GREY).add_params(_click())
    named = inside.transform_filter("!datum.hardly_copies").mark_point(
        filled=True, size=110, opacity=1, cursor="pointer"
    )
    weak = inside.transform_filter("datum.hardly_copies")
    weak = weak.mark_point(filled=False, size=80, strokeWidth=2, opacity=1, cursor="pointer")
    names = base.encode(y=y("name_y:Q", axis=axis)).transform_filter("isValid(datum.name_y)")
    names = [
        charts.written(names.transform_filter(side), 12, align=align, dx=dx).encode(text="name:N")
        for side, align, dx in (("datum.name_left", "right", -9), ("!datum.name_left", "left", 9))
    ]
    ring = at.transform_filter("datum.selected").mark_point(filled=False, size=220, stroke=MARK, strokeWidth=2.5)
    corner = charts.named_chart("corner").mark_rect(opacity=0.1, color=MARK)
    corner = corner.encode(x="x:Q", x2="x2:Q", y=y("y:Q", axis=axis), y2="y2:Q", tooltip=alt.value(None))
    words = charts.written(charts.named_chart("corner"), 12, align="right", baseline="top", dx=-5, dy=5)
    words = words.encode(x="x2:Q", y=y("y2:Q", axis=axis), text=alt.value("induction heads"))
    return charts.template(MAP_PX + charts.AXIS_PX - 5, corner, words, dots, named, weak, ring, *names)


def name_places(frame: pd.DataFrame, most: float) -> pd.DataFrame:
    """Returns the place of each head's name: its height `name_y`, that of its dot, and whether it is on the left of
    that. nan: without a name. Named are the selected heads, and the induction heads that match prefixes best as
    far as their names cover no dot and no other name."""
    at = frame[["prefix_matching", "copying_share"]].to_numpy() / (1.0, most)  # shares of the scatter
    corner, selected = frame["in_corner"].to_numpy(), frame["selected"].to_numpy()
    best_first = np.argsort(-at[:, 0], kind="stable")
    named = [*best_first[selected[best_first]], *best_first[(corner & ~selected)[best_first]][:MOST_NAMES]]
    heights, left, placed = np.full(len(frame), np.nan), np.zeros(len(frame), bool), list[tuple[float, float]]()
    for head in named:
        matching, height = at[head]
        dots = np.delete(at, head, axis=0)
        sides = (True, False) if matching > LEFT_FROM else (False, True)
        for on_left in sides:
            start = matching - GAP - NAME_WIDTH if on_left else matching + GAP
            next_to = (dots[:, 0] > start - GAP) & (dots[:, 0] < start + NAME_WIDTH + GAP)
            covers = (next_to & (np.abs(dots[:, 1] - height) < LINE / 2)).any()
            if not covers and not any(abs(x - start) < NAME_WIDTH and abs(y - height) < LINE for x, y in placed):
                break
        else:
            if not selected[head]:
                continue
            on_left = sides[0]
        placed.append((start, height))
        heights[head], left[head] = height * most, on_left
    return pd.DataFrame({"name_y": heights, "name_left": left}, index=frame.index)


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

    Kinds: `task` (thin lines), `chosen`, `aggregate`, `reversed`, `random` (mean with its band). Each has its name at
    its line, where it is farthest from the others.
    """
    unknown = set(frame["kind"]) - set(KINDS)
    if unknown:
        raise UsageError(f"kinds of lines {sorted(unknown)} are unknown")
    return charts.picture(_retained_chart(score), lines=frame, names=line_names(frame))


def line_names(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns one row per kind of line: its name, and the point at which it is written, `above` the line or below."""
    lines = frame[frame["level"].between(*NAMED_BETWEEN)].pivot_table("left", "level", ["kind", "line"], sort=False)
    first = {kind: line for kind, line in reversed(list(lines.columns))}
    rows, taken = list[dict[str, Any]](), list[tuple[float, float]]()
    for kind, line in first.items():
        own, others = lines[(kind, line)], lines.drop(columns=[(kind, line)])
        apart = others.sub(own, axis=0).abs().min(axis=1).fillna(1.0)
        for level, left in taken:  # two names do not share a place
            apart = apart.where(np.hypot(own.index - level, own - left) > NAMES_APART, -1.0)
        highest = int(np.argmax(apart))
        level, left = float(own.index[highest]), float(own.iloc[highest])
        taken.append((level, left))
        above = bool(left >= others.iloc[highest].mean()) if len(others.columns) else True
        text = {"chosen": f"{line}, least important first", "aggregate": "mean of tasks", "task": "other tasks"}
        rows.append({"kind": kind, "name": text.get(kind, kind), "level": level, "left": left, "above": above})
    return pd.DataFrame(rows, columns=["kind", "name", "level", "left", "above"])


@charts.kept
def _retained_chart(score: str) -> charts.Template:
    x = alt.X("level:Q", title="Heads pruned", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("left:Q", title=f"{TITLES[score]} left", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    base = charts.named_chart("lines").encode(x=x, detail="line:N")
    colour = alt.Color("kind:N", title=None, scale=alt.Scale(domain=DOMAIN), legend=None)
    band = base.transform_filter("datum.kind == 'random'").mark_area(opacity=0.18)
    band = band.encode(y=alt.Y("low:Q", title=f"{TITLES[score]} left"), y2="high:Q", color=colour)
    tooltip = charts.tips("line:N|Ranking", "level:Q|Pruned|.0%", "left:Q|Left|.1%")
    thin = base.transform_filter("datum.kind == 'task'").mark_line(strokeWidth=1, opacity=0.4)
    thick = base.transform_filter("datum.kind != 'task'").mark_line(strokeWidth=2.5)
    layers = [band, *(lines.encode(y=y, color=colour, tooltip=tooltip) for lines in (thin, thick))]
    names = charts.named_chart("names").encode(x=x, y=y)
    layers.append(names.mark_point(filled=True, size=60, opacity=1, aria=False).encode(color=colour))
    for where, look in (("datum.above", {"align": "left", "dx": 7, "dy": -7}),
                        ("!datum.above", {"align": "right", "dx": -7, "dy": 9})):  # fmt: skip
        layers.append(charts.written(names.transform_filter(where), 12, **look).encode(text="name:N"))
    return charts.template(300, *layers)


def _click() -> alt.Parameter:
    return alt.selection_point(name="head", fields=["layer", "head"])

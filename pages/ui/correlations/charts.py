"""Charts of how much rankings agree: takes a DataFrame (`pages.ui.correlations.tables`), returns a picture, on fixed
scales.

A clicked cell is the selection `pair`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from engine.importance.rankings import n_top
from pages.ui.figures import charts
from pages.ui.figures.colours import DARK, GREY, MARK, UNDEFINED, palette
from pages.ui.page.tables import RANK_TITLE, number

ROOM_FOR_ZEROS = 24  # columns: with more, cells show ".62" in place of "0.62"
ROWS_PX, NAMES_PX = (
    (22, 64, 400),
    70,
)  # a row of the matrix at least, at most, and all rows of a small one; slanted names
ACROSS = 4  # small matrices side by side
SMALL_PX, TITLE_PX, UNDER_PX = 26, 20, 30  # of a small matrix: a row, the title above, the space below
KINDS = ("task", "row", "column")  # of words in the small matrices
PAIR_PX, TITLE_OF_PX, BELOW_PX = 36, 26, 10  # of two rankings, of the title of their score, and under them
NAMES_OF_PAIRS_PX, AXIS_OF_PX = 185, 50  # left of the dots at most, and of the axis
NUMBERS_PX, HEADING_PX = (45, 85), 22  # right of the dots: one number, or two; their heading
HEADING = "● all heads / ○ within a layer"
SCATTER_PX = 380  # so that it ends above the fold of a small window
NUMBERED, MOST_LISTED = 210, 12  # of a dot of several: the least size of a number in it; names in its tooltip
LEGEND_PX = 75  # Streamlit counts legend and axes as part of the height
PLAIN = partial(alt.Axis, ticks=False, domain=False, grid=False, labelFlush=False)
COUNTED = "n:Q|Tasks; lowest:N|Lowest; highest:N|Highest"
TOOLTIP = "srcc:N|Rank correlation; interval:N|95% interval; p:N|p (random relabelling); shared:N|Top 30% shared"


@dataclass(frozen=True)
class Measure:
    """Format of the cells of a matrix: colors from -1 to 1 if `signed`, else from 0 to 1."""

    column: str
    title: str
    signed: bool = True

    def within(self, values: pd.Series) -> "Measure":
        """Returns the same with colors from 0 if no two rankings disagree."""
        return replace(self, signed=self.signed and bool((values < 0).any()))


MEASURES = {
    "srcc": Measure("srcc", "Rank correlation"),
    "as_published": Measure("as_published", "Coefficient of llm-interpret"),
    "overlap": Measure("overlap", "Share of the top 30% in both", signed=False),
}


def matrix(cells: pd.DataFrame, names: Sequence[str], selected: Collection[str], measure: Measure) -> charts.Picture:
    """Returns rankings x rankings, every two once; `selected`: labels of the pair that has a ring."""
    wide = len(names) > ROOM_FOR_ZEROS
    shown = _ringed(cells, selected)
    if wide:
        shown = shown.assign(number=shown["number"].str.replace("0.", ".", regex=False))
    return charts.picture(_matrix(tuple(names), measure, 8 if wide else 11), cells=shown)


def intervals(cells: pd.DataFrame, selected: Collection[str], measure: Measure) -> charts.Picture:
    """Returns a forest plot of `tables.cells_by_score`: under each score's title a row for every two rankings, with the
    interval if there is one, and a hollow dot for heads of a layer: for so few that a matrix is nearly empty. Dashed:
    the end of unrelated rankings. A score by which most tie is left out unless it is chosen."""
    shown = _ringed(cells[cells["chosen"] | ~cells["ties"]], selected)
    shown = shown.assign(selected=shown["selected"] & shown["chosen"])
    of_group = {name: (name, "first") for name in ("chance", "note")}
    of_group |= {"mean": ("value", "mean"), "within": ("within", "mean"), "n": ("value", "size")}
    groups = shown.groupby("group", sort=False).agg(**of_group).reset_index()
    has_within = bool(shown["within"].notna().any())
    heights, heading = TITLE_OF_PX + PAIR_PX * groups["n"] + BELOW_PX, HEADING_PX * has_within
    groups["y"] = heading + heights.cumsum() - heights
    groups["heading"] = [HEADING if has_within and at == groups.index[0] else "" for at in groups.index]
    means = groups[["mean", "within", "n"]].itertuples(index=False)
    means = [f"mean {_both(mean, within)}" if n > 1 else "" for mean, within, n in means]
    groups["words"] = [", ".join(filter(None, each)) for each in zip(means, groups["note"], strict=True)]
    first = dict(zip(groups["group"], groups["y"] + TITLE_OF_PX, strict=True))
    shown = shown.assign(y=shown["group"].map(first) + PAIR_PX * (shown.groupby("group").cumcount() + 0.5))
    shown["numbers"] = [_both(*both) for both in zip(shown["value"], shown["within"], strict=True)]
    shown["within_number"] = shown["within"].map(number)
    is_srcc, lowest = measure.column == "srcc", -1.0 if measure.signed else 0.0
    if is_srcc and not measure.signed:
        lowest = max(-1.0, float(np.floor(10 * min([0, *shown[["low", "within"]].min().dropna()])) / 10))
    bands = groups[[is_srcc] * len(groups)]
    bands = bands.assign(low=bands["chance"].mul(-1).clip(lowest), y=bands["y"] + TITLE_OF_PX)
    bands = bands.assign(y2=bands["y"] + PAIR_PX * bands["n"])
    bands = bands.assign(word=["chance (95%)" if at == bands.index[-1] else "" for at in bands.index])
    names_px = min(NAMES_OF_PAIRS_PX, 20 + 6 * int(shown["tasks"].str.len().max()))
    drawn = _intervals(measure, heading + int(heights.sum()), lowest, names_px, has_within)
    return charts.picture(drawn, cells=shown, groups=groups, chance=bands)


def _both(of_all: float, within: float) -> str:
    return number(of_all) if np.isnan(within) else f"{number(of_all)} / {number(within)}"


@charts.kept
def _intervals(measure: Measure, height: int, lowest: float, names_px: int, has_within: bool) -> charts.Template:
    ends = [alt.ExprRef(f"min({names_px}, 0.45 * width)"), alt.ExprRef(f"width - {NUMBERS_PX[has_within]}")]
    scale = alt.Scale(domain=[lowest, 1], range=ends)
    down = alt.Scale(domain=[height, 0], nice=False, zero=False)
    of_rows = partial(alt.Y, scale=down, axis=None)
    axis = alt.Axis(tickCount=5, grid=False, titleAnchor="end", labelFlush=False)
    x = alt.X("value:Q", title=measure.title, scale=scale, axis=axis)
    tooltip = [*_tooltip(measure), *(charts.tips("within_number:N|Within a layer") if has_within else [])]
    base = charts.named_chart("cells").encode(x=x, y=of_rows("y:Q"), tooltip=tooltip)
    of_bands = charts.named_chart("chance").encode(y=of_rows("y:Q"), y2="y2:Q")
    edge = of_bands.mark_rule(color=GREY, strokeDash=[3, 3], aria=False)
    below_zero = edge.transform_filter(f"datum.low > {lowest}").encode(x=alt.X("low:Q", scale=scale))
    edges = [edge.encode(x=alt.X("chance:Q", scale=scale)), below_zero]
    word = charts.written(charts.named_chart("chance"), 11, baseline="top", dy=2)
    word = word.encode(x=alt.X("chance:Q", scale=scale), y=of_rows("y2:Q"), text="word:N")
    names = charts.written(base, 12, align="left", limit=names_px - 8)
    names = names.encode(x=alt.value(0), text="tasks:N")
    numbers = charts.written(base, 12, align="right").encode(x=alt.value("width"), text="numbers:N")
    of_groups, look = charts.named_chart("groups").encode(y=of_rows("y:Q")), {"baseline": "top", "dy": 3}
    titles = charts.written(of_groups, 13, align="left", fontWeight=600, **look)
    notes = charts.written(of_groups, 12, align="right", **look).encode(x=alt.value("width"), text="words:N")
    heading = charts.written(of_groups, 12, align="right", baseline="top", dy=3 - HEADING_PX)
    heading = heading.encode(x=alt.value("width"), text="heading:N")
    drawn = [word, titles.encode(x=alt.value(0), text="group:N"), notes, heading]
    if measure.column == "srcc":
        width = alt.condition("datum.ties", alt.value(1), alt.value(3))
        rule = base.mark_rule(color=GREY).encode(x=alt.X("low:Q", scale=scale), x2="high:Q", strokeWidth=width)
        drawn += [*edges, rule]
    ring = base.transform_filter("datum.selected")
    ring = ring.mark_point(size=220, filled=False, stroke=MARK, strokeWidth=2.5, opacity=1)
    look_of = {"scale": alt.Scale(domain=palette(pruned="clear", random="ties")), "legend": None}
    looks = base.transform_calculate(look="datum.ties ? 'ties' : 'clear'")
    size = alt.condition("datum.ties", alt.value(40), alt.value(70))
    dots = looks.mark_point(filled=True).encode(color=alt.Color("look:N", **look_of), opacity=alt.value(1), size=size)
    if has_within:
        known, inside = looks.transform_filter("isValid(datum.within)"), alt.X("within:Q", scale=scale)
        hollow = known.mark_point(size=60, strokeWidth=1.8, opacity=1).encode(stroke=alt.Stroke("look:N", **look_of))
        drawn.append(known.mark_rule(color=GREY).encode(x=inside, x2="value:Q"))
        drawn.append(hollow.encode(x=inside, fill=alt.value(alt.ExprRef("background"))))
    rows = base.transform_calculate(top=f"datum.y - {PAIR_PX / 2}", bottom=f"datum.y + {PAIR_PX / 2}")
    rows = rows.mark_rect(opacity=0, cursor="pointer").encode(  # on top: a click anywhere in a row chooses it
        x=alt.value(0), x2=alt.value("width"), y=of_rows("top:Q"), y2="bottom:Q"
    )
    clicked = alt.selection_point(name="pair", fields=["first", "second", "score"])
    return charts.template(height + AXIS_OF_PX, *drawn, names, numbers, dots, ring, rows.add_params(clicked))


@charts.kept
def _matrix(names: tuple[str, ...], measure: Measure, font_px: int) -> charts.Template:
    axis = partial(PLAIN, title=None, labelLimit=160, labelOverlap=False)
    rows, columns = list(names[1:]), list(names[:-1])
    x = alt.X("b:N", sort=columns, title="and", axis=axis(labelAngle=-45 if len(columns) > 3 else 0))
    y = alt.Y("a:N", sort=rows, title="Ranking", axis=axis())
    base = charts.named_chart("cells").encode(x=x, y=y, tooltip=_tooltip(measure))
    low, high, few = ROWS_PX
    row_px = max(low, min(high, few // len(rows)))
    return charts.template(row_px * len(rows) + NAMES_PX + LEGEND_PX, *_cells(base, measure, font_px, click=True))


def mean_matrix(cells: pd.DataFrame, counts: Sequence[str], measure: Measure) -> charts.Picture:
    """Returns shots x shots, the mean over tasks (`tables.mean_cells`)."""
    return charts.picture(_mean_matrix(tuple(counts), measure), cells=cells)


@charts.kept
def _mean_matrix(counts: tuple[str, ...], measure: Measure) -> charts.Template:
    base = charts.named_chart("cells").encode(
        x=alt.X("b:N", sort=list(counts[:-1]), title="Shots", axis=PLAIN(labelAngle=0)),
        y=alt.Y("a:N", sort=list(counts[1:]), title="Shots", axis=PLAIN()),
        tooltip=charts.tips("a:N|Shots; b:N|and", f"number:N|Mean {measure.title}", COUNTED),
    )
    return charts.template(68 * (len(counts) - 1) + 60, *_cells(base, measure, 12, click=False))


def small_matrices(
    cells: pd.DataFrame, tasks: Sequence[str], counts: Sequence[str], selected: Collection[str], measure: Measure
) -> charts.Picture:
    """Returns shots x shots for every task, in one chart: a facet's width cannot follow the window."""
    down, along = counts[1:], counts[:-1]
    k, block = len(down), TITLE_PX + SMALL_PX * len(down) + UNDER_PX
    step = k + 1.1  # in cells: room for the counts at the left of the next one
    corner = {task: (at % ACROSS * step, at // ACROSS * block + TITLE_PX) for at, task in enumerate(tasks)}
    shown = _ringed(cells[cells["at"].isin(corner)], selected)
    left, top = ([corner[task][side] for task in shown["at"]] for side in (0, 1))
    shown = shown.assign(
        x=left + shown["b"].map(list(along).index), y=top + SMALL_PX * shown["a"].map(list(down).index)
    )
    shown = shown.assign(x2=shown["x"] + 1, y2=shown["y"] + SMALL_PX, xm=shown["x"] + 0.5, ym=shown["y"] + SMALL_PX / 2)
    words = [{"x": x, "y": y - 3, "text": task, "kind": "task"} for task, (x, y) in corner.items()]
    for x, y in corner.values():
        for at, (row, column) in enumerate(zip(down, along, strict=True)):
            words.append({"x": x - 0.15, "y": y + SMALL_PX * (at + 0.5), "text": row, "kind": "row"})
            words.append({"x": x + at + 0.5, "y": y + SMALL_PX * k + 9, "text": column, "kind": "column"})
    rows, across = -(-len(tasks) // ACROSS), min(len(tasks), ACROSS)
    scale = partial(alt.Scale, nice=False, zero=False)
    x = partial(alt.X, title=None, axis=None, scale=scale(domain=[-0.5, max(across, 3) * step - 1]))
    y = partial(alt.Y, title=None, axis=None, scale=scale(domain=[rows * block, 0]))
    of_cells = charts.named_chart("cells").encode(tooltip=_tooltip(measure))
    base = of_cells.encode(x=x("x:Q"), y=y("y:Q"), x2="x2:Q", y2="y2:Q")
    middle = of_cells.encode(x=x("xm:Q"), y=y("ym:Q"))
    text = charts.inked(charts.named_chart("words").encode(x=x("x:Q"), y=y("y:Q"), text="text:N"))
    rect, *_, ring = _cells(base, measure, 10, click=True)
    tasks_at, rows_at, columns_at = (text.transform_filter(f"datum.kind == '{kind}'") for kind in KINDS)
    named = tasks_at.mark_text(align="left", baseline="bottom", fontSize=11, fontWeight=600)
    counted = rows_at.mark_text(align="right", fontSize=10, opacity=0.8), columns_at.mark_text(fontSize=10, opacity=0.8)
    numbers = charts.on_cells(middle, 10, "value", "number:N", cursor="pointer")
    layers = (rect, *numbers, ring, named, *counted)
    drawn = charts.template(rows * block + LEGEND_PX, *layers)
    return charts.picture(drawn, cells=shown, words=pd.DataFrame(words))


def rank_scatter(ranks: pd.DataFrame, a: str, b: str, noun: str) -> charts.Picture:
    """Returns rank in `a` against rank in `b`, one dot per component, with the diagonal, and both top 30% if no ties
    reach across their ends. Several components with both ranks are one gray dot with their number."""
    n = len(ranks)
    scale = alt.Scale(domain=[0, n + 1], nice=False)
    step = next(each for each in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10**6) if n <= 6 * each)
    axis = alt.Axis(values=[1, *range(max(2, step), n + 1, step)], format="d", grid=False)
    x = alt.X("rank_a:Q", title=f"{RANK_TITLE}, {a}", scale=scale, axis=axis)
    y = alt.Y("rank_b:Q", title=f"Rank in {b}", scale=scale, axis=axis)
    edge, n_layers = n_top(n) + 0.5, int(ranks["layer"].max()) + 1
    has_edges = all((ranks[side] < edge).sum() == n_top(n) for side in ("rank_a", "rank_b"))
    ranks = ranks.groupby(["rank_a", "rank_b"], as_index=False, sort=False).agg(
        {"layer": "first", "name": _listed, "n": "first"}
    )
    ranks = ranks.assign(size=(70 if n <= 500 else 12) * (ranks["n"] + (ranks["n"] > 1)))
    look: dict[str, Any] = {"orient": "top", "direction": "horizontal", "titleOrient": "left", "symbolStrokeWidth": 0}
    colour = charts.by_layer(n_layers, ranks.loc[ranks["n"] == 1, "layer"], **look)
    tooltip = charts.tips(f"name:N|{noun}", f"rank_a:Q|Rank in {a}", f"rank_b:Q|Rank in {b}")
    base = charts.named_chart("ranks").encode(x=x, y=y, tooltip=tooltip)
    dots = base.mark_point(filled=True, opacity=1, stroke=GREY, strokeWidth=0.7)
    dots = dots.encode(size=alt.Size("size:Q", scale=None))
    points = dots.transform_filter("datum.n == 1").encode(color=colour)
    several = dots.transform_filter("datum.n > 1").encode(color=alt.value(GREY))
    numbers = (
        base.transform_filter(f"datum.n > 1 && datum.size >= {NUMBERED}")
        .mark_text(fontSize=11, fill=DARK)
        .encode(text="n:Q")
    )
    ends = [(edge, 0, edge, n + 1, "top 30%"), (0, edge, n + 1, edge, "top 30%")] if has_edges else []
    ends.append((0, 0, n + 1, n + 1, "agreement"))
    lines = pd.DataFrame(ends, columns=["x", "y", "x2", "y2", "line"])
    dashes = alt.Scale(domain=["agreement", "top 30%"], range=[[1, 0], [3, 3]])
    rules = charts.named_chart("lines").mark_rule(color=GREY)
    dash = alt.StrokeDash("line:N", scale=dashes, legend=None)
    rules = rules.encode(strokeDash=dash, tooltip=charts.tips("line:N|Line"), x2="x2:Q", y2="y2:Q")
    rules = rules.encode(x=alt.X("x:Q", scale=scale), y=alt.Y("y:Q", scale=scale))
    top = charts.written(charts.named_chart("lines"), 11, align="left", baseline="top", dx=4)
    top = top.transform_filter("datum.line == 'top 30%' && datum.y == 0").encode(x="x:Q", y="y2:Q", text="line:N")
    return charts.picture(charts.template(SCATTER_PX, rules, top, several, numbers, points), lines=lines, ranks=ranks)


def _listed(names: pd.Series) -> str:
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return f"{', '.join(names[:MOST_LISTED])}{more}"


def _cells(base: alt.Chart, measure: Measure, font_px: int, click: bool) -> list[alt.Chart]:
    """Returns colored cells, their numbers, and the ring around the selected one; an undefined value has no color."""
    ticks = [-1, 0, 1] if measure.signed else [0, 0.5, 1]
    legend = alt.Legend(orient="top", direction="horizontal", format=".1~f", gradientLength=200, values=ticks, offset=4)
    scale = charts.around_zero(1) if measure.signed else alt.Scale(domain=[0, 1], clamp=True)
    colour = alt.Color("value:Q", title=None, scale=scale, legend=legend if click else None)
    cursor = "pointer" if click else "default"
    rect = base.mark_rect(**charts.CELL, cursor=cursor, invalid="show")
    # the test for undefined values first: Vega-Lite adds its own, which paints them as 0, after it
    rect = rect.encode(color=alt.condition("!isValid(datum.value)", alt.value(UNDEFINED), colour))
    numbers = charts.on_cells(base, font_px, "value", "number:N", cursor=cursor)
    if not click:
        return [rect, *numbers]
    ring = base.transform_filter("datum.selected").mark_rect(filled=False, stroke=MARK, strokeWidth=2.5)
    return [rect.add_params(alt.selection_point(name="pair", fields=["first", "second"])), *numbers, ring]


def _ringed(cells: pd.DataFrame, selected: Collection[str]) -> pd.DataFrame:
    pairs = zip(cells["first"], cells["second"], strict=True)
    return cells.assign(selected=[{first, second} == set(selected) for first, second in pairs])


def _tooltip(measure: Measure) -> list[alt.Tooltip]:
    own = [f"number:N|{measure.title}"] if measure.column == "as_published" else []
    return charts.tips("pair:N|Rankings", *own, TOOLTIP)

"""Charts of how much rankings agree: takes a DataFrame (`pages.ui.correlations.tables`), returns a picture, on fixed
scales.

A clicked cell is the selection `pair`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import altair as alt
import pandas as pd

from engine.importance.rankings import n_top
from engine.views.colors import DARK, GREY, MARK, UNDEFINED
from pages.ui.figures import charts
from pages.ui.page.tables import RANK_TITLE, shared_prefix

ROOM_FOR_ZEROS = 24  # columns: with more, cells show ".62" in place of "0.62"
ROWS_PX, NAMES_PX = (22, 52, 400), 70  # a matrix's row at least, at most, and all of a small one; slanted names
ACROSS = 4  # small matrices side by side
SMALL_PX, TITLE_PX, UNDER_PX = 26, 20, 30  # of a small matrix: a row, the title above, the space below
KINDS = ("task", "row", "column")  # of words in the small matrices
SCATTER_PX = 340  # so that it ends above the fold of a small window
NUMBERED, MOST_LISTED = 210, 12  # of a dot of several: the least size of a number in it; names in its tooltip
LEGEND_PX = 75  # Streamlit counts legend and axes as part of the height
NUMBERED_HEADS, NUMBERED_ROW_PX = 16, 18  # of the map of shared heads: with more heads or lower rows, no numbers
N_NAMED, FAR = 3, 0.1  # heads named in the scatter, and how far from the diagonal at least, of all ranks
NEAR_EDGE = 0.15  # of all ranks: a name stands on the other side of a dot that is nearer to an edge
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
    "within": Measure("within", "Rank correlation within a layer"),
    "overlap": Measure("overlap", "Share of the top 30% in both", signed=False),
}


def matrix(cells: pd.DataFrame, names: Sequence[str], selected: Collection[str], measure: Measure) -> charts.Picture:
    """Returns rankings x rankings of `tables.cells`, every two below the diagonal; `selected`: labels of the pair that
    has a ring."""
    wide, shown = len(names) > ROOM_FOR_ZEROS, _ringed(cells, selected)
    if wide:
        shown = shown.assign(number=shown["number"].str.replace("0.", ".", regex=False))
    return charts.picture(_matrix(tuple(names), measure, 8 if wide else 11), cells=shown)


@charts.kept
def _matrix(names: tuple[str, ...], measure: Measure, font_px: int) -> charts.Template:
    short = f"slice(datum.label, {shared_prefix(names)})"
    axis = partial(PLAIN, title=None, labelLimit=160, labelOverlap=False, labelExpr=short)
    rows, columns = list(names[1:]), list(names[:-1])
    x = alt.X("b:N", scale=alt.Scale(domain=columns), title="and", axis=axis(labelAngle=-45 if len(columns) > 3 else 0))
    y = alt.Y("a:N", scale=alt.Scale(domain=rows), title="Ranking", axis=axis())
    base = charts.named_chart("cells").encode(x=x, y=y, tooltip=_tooltip(measure))
    low, high, few = ROWS_PX
    row_px = max(low, min(high, few // len(rows)))
    return charts.template(row_px * len(rows) + NAMES_PX + LEGEND_PX, *_cells(base, measure, font_px, click=True))


def shared_map(rows: pd.DataFrame, n_tasks: int, selected: str) -> charts.Picture:
    """Returns layers x heads of `tables.shared_rows`, colored by the number of tasks; the head `selected` has a ring,
    and a clicked one is the selection `head`."""
    n_layers, n_heads = int(rows["layer"].max()) + 1, int(rows["head"].max()) + 1
    shown = rows.assign(selected=rows["name"].eq(selected))
    return charts.picture(_shared_map(n_layers, n_heads, n_tasks), heads=shown)


@charts.kept
def _shared_map(n_layers: int, n_heads: int, n_tasks: int) -> charts.Template:
    row_px = charts.row_height(n_layers)
    ends = alt.Scale(domain=[0, n_tasks])
    legend = alt.Legend(orient="top", direction="horizontal", format="d", gradientLength=200, tickCount=min(n_tasks, 4))
    base = charts.head_grid("n:Q|In the top 30% of; tasks:N|Tasks")
    rect = base.mark_rect(**charts.CELL, cursor="pointer")
    rect = rect.encode(color=alt.Color("n:Q", title="Tasks", scale=ends, legend=legend))
    clicked = alt.selection_point(name="head", fields=["layer", "head"], empty=False)
    has_room = n_heads <= NUMBERED_HEADS and row_px >= NUMBERED_ROW_PX
    numbers = charts.on_cells(base, 11, "n", "n:Q", cursor="pointer") if has_room else []
    ring = base.transform_filter("datum.selected").mark_rect(filled=False, stroke=MARK, strokeWidth=2.5)
    height = row_px * n_layers + LEGEND_PX + charts.AXIS_PX
    return charts.template(height, rect.add_params(clicked), *numbers, ring)


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


def rank_scatter(ranks: pd.DataFrame, a: str, b: str, noun: str, selected: str = "") -> charts.Picture:
    """Returns rank in `a` against rank in `b`, one dot per component, with the diagonal, and both top 30% if no ties
    reach across their ends. Several components with both ranks are one gray dot with their number. Named are those
    farthest from the diagonal, and the one `selected`, which has a ring."""
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
    ranks = ranks.assign(label=_labels(ranks, n, selected), selected=ranks["name"].eq(selected))
    tooltip = charts.tips(f"name:N|{noun[0].upper()}{noun[1:]}", f"rank_a:Q|Rank in {a}", f"rank_b:Q|Rank in {b}")
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
    ring = base.transform_filter("datum.selected")
    ring = ring.mark_point(size=220, filled=False, stroke=MARK, strokeWidth=2.5, opacity=1)
    layers = (rules, top, several, numbers, points, ring, *_names(base, n))
    return charts.picture(charts.template(SCATTER_PX, *layers), lines=lines, ranks=ranks)


def _labels(ranks: pd.DataFrame, n: int, selected: str) -> list[str]:
    """Returns the name of each dot that has one in the scatter, and "" for the others."""
    apart = (ranks["rank_a"] - ranks["rank_b"]).abs().where(ranks["n"].eq(1) & ~ranks["name"].eq(selected))
    named = apart[apart > FAR * n].nlargest(N_NAMED).index
    return [name if at in named or name == selected else "" for at, name in ranks["name"].items()]


def _names(base: alt.Chart, n: int) -> list[alt.Chart]:
    """Returns the labels, each on the side of its dot away from the diagonal, unless an edge is near."""
    named = base.transform_filter("datum.label").transform_calculate(
        is_left=f"datum.rank_a > {(1 - NEAR_EDGE) * n} || datum.rank_b > datum.rank_a && datum.rank_a > {NEAR_EDGE * n}"
    )
    sides = (("datum.is_left", "right", -8), ("!datum.is_left", "left", 8))
    texts = [charts.written(named.transform_filter(side), 11, align=align, dx=dx) for side, align, dx in sides]
    return [each for text in texts for each in charts.haloed(text.encode(text="label:N"))]


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
    own = [f"number:N|{measure.title}"] if measure.column == "within" else []
    return charts.tips("pair:N|Rankings", *own, TOOLTIP)

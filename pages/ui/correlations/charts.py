"""Charts of how much rankings agree: DataFrame in (`pages.ui.correlations.tables`), picture out, on fixed scales.

Cells are pale, so that their numbers can be read in both themes. What is clicked is the selection `pair`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

import altair as alt
import pandas as pd

from engine.importance.rankings import n_top
from pages.ui.shared.charts import (
    CELL,
    INK,
    PALE,
    TEMPLATES,
    Picture,
    Template,
    around_zero,
    named_chart,
    picture,
    template,
    written,
)
from pages.ui.shared.colours import GREY, MARK, UNDEFINED

ROOM_FOR_ZEROS = 24  # columns: with more, cells hold ".62" in place of "0.62"
ROWS_PX, NAMES_PX = (22, 40, 300), 70  # a row of the matrix at least, at most, and all where few; slanted names
ACROSS = 5  # small matrices beside one another
SMALL_PX, TITLE_PX, UNDER_PX = 22, 20, 30  # of a small matrix: a row, what is above it, what is under it
KINDS = ("task", "row", "column")  # of words in the small matrices
LEGEND_PX = 105  # Streamlit counts legend and axes as part of the height
PLAIN = {"ticks": False, "domain": False, "grid": False, "labelFlush": False}
TOOLTIP = [
    alt.Tooltip("pair:N", title="Rankings"),
    alt.Tooltip("srcc:N", title="SRCC"),
    alt.Tooltip("interval:N", title="95 % interval"),
    alt.Tooltip("p:N", title="p (random relabelling)"),
    alt.Tooltip("shared:N", title="Top 30 % shared"),
]


@dataclass(frozen=True)
class Measure:
    """What the cells of a matrix hold: `signed` from -1 to 1, or a share."""

    column: str
    title: str
    signed: bool = True


MEASURES = {
    "srcc": Measure("srcc", "SRCC"),
    "as_published": Measure("as_published", "Coefficient as published"),
    "overlap": Measure("overlap", "Share of the top 30 % in both", signed=False),
}


def matrix(cells: pd.DataFrame, names: Sequence[str], selected: Collection[str], measure: Measure) -> Picture:
    """Rankings x rankings, the value in every cell; `selected` names the labels of the pair that has a ring."""
    wide = len(names) > ROOM_FOR_ZEROS
    shown = _ringed(cells, selected)
    if wide:
        shown = shown.assign(number=shown["number"].str.replace("0.", ".", regex=False))
    return picture(_matrix(tuple(names), measure, 8 if wide else 11), cells=shown)


@lru_cache(TEMPLATES)
def _matrix(names: tuple[str, ...], measure: Measure, font_px: int) -> Template:
    axis = {"title": None, "labelLimit": 160, "labelOverlap": False, **PLAIN}
    base = named_chart("cells").encode(
        x=alt.X("b:N", sort=list(names), title="and", axis=alt.Axis(labelAngle=-45, **axis)),
        y=alt.Y("a:N", sort=list(names), title="Ranking", axis=alt.Axis(**axis)),
        tooltip=_tooltip(measure),
    )
    low, high, few = ROWS_PX
    row_px = max(low, min(high, few // len(names)))
    return template(row_px * len(names) + NAMES_PX + LEGEND_PX, *_cells(base, measure, font_px, click=True))


def mean_matrix(cells: pd.DataFrame, counts: Sequence[str], measure: Measure) -> Picture:
    """Shots x shots, the mean over tasks (`tables.mean_cells`)."""
    return picture(_mean_matrix(tuple(counts), measure), cells=cells)


@lru_cache(TEMPLATES)
def _mean_matrix(counts: tuple[str, ...], measure: Measure) -> Template:
    base = named_chart("cells").encode(
        x=alt.X("b:N", sort=list(counts), title="Solved examples", axis=alt.Axis(labelAngle=0, **PLAIN)),
        y=alt.Y("a:N", sort=list(counts), title="Solved examples", axis=alt.Axis(**PLAIN)),
        tooltip=[
            alt.Tooltip("a:N", title="Solved examples"),
            alt.Tooltip("b:N", title="and"),
            alt.Tooltip("number:N", title=f"Mean {measure.title}"),
            alt.Tooltip("n:Q", title="Tasks"),
            alt.Tooltip("lowest:N", title="Lowest"),
            alt.Tooltip("highest:N", title="Highest"),
        ],
    )
    return template(68 * len(counts) + 60, *_cells(base, measure, 15, click=False))


def small_matrices(
    cells: pd.DataFrame, tasks: Sequence[str], counts: Sequence[str], selected: Collection[str], measure: Measure
) -> Picture:
    """Shots x shots for every task. One chart with places of its own: a facet's width cannot follow the window."""
    k, block = len(counts), TITLE_PX + SMALL_PX * len(counts) + UNDER_PX
    step = k + 1.1  # in cells: room for the counts at the left of the next one
    corner = {task: (at % ACROSS * step, at // ACROSS * block + TITLE_PX) for at, task in enumerate(tasks)}
    shown = _ringed(cells[cells["at"].isin(corner)], selected)
    left, top = ([corner[task][side] for task in shown["at"]] for side in (0, 1))
    shown = shown.assign(x=left + shown["b"].map(list(counts).index), y=top + SMALL_PX * shown["a"].map(counts.index))
    shown = shown.assign(x2=shown["x"] + 1, y2=shown["y"] + SMALL_PX, xm=shown["x"] + 0.5, ym=shown["y"] + SMALL_PX / 2)
    words = [{"x": x, "y": y - 3, "text": task, "kind": "task"} for task, (x, y) in corner.items()]
    for x, y in corner.values():
        for at, count in enumerate(counts):
            words.append({"x": x - 0.15, "y": y + SMALL_PX * (at + 0.5), "text": count, "kind": "row"})
            words.append({"x": x + at + 0.5, "y": y + SMALL_PX * k + 9, "text": count, "kind": "column"})
    rows, across = -(-len(tasks) // ACROSS), min(len(tasks), ACROSS)
    bare = {"title": None, "axis": None}
    x = bare | {"scale": alt.Scale(domain=[-0.5, max(across, 3) * step - 1], nice=False, zero=False)}
    y = bare | {"scale": alt.Scale(domain=[rows * block, 0], nice=False, zero=False)}
    base = named_chart("cells").encode(
        x=alt.X("x:Q", **x), y=alt.Y("y:Q", **y), x2="x2:Q", y2="y2:Q", tooltip=_tooltip(measure)
    )
    middle = named_chart("cells").encode(x=alt.X("xm:Q", **x), y=alt.Y("ym:Q", **y), tooltip=_tooltip(measure))
    text = named_chart("words").transform_calculate(ink="'ink'")
    text = text.encode(x=alt.X("x:Q", **x), y=alt.Y("y:Q", **y), text="text:N", fill=INK)
    rect, _, ring = _cells(base, measure, 10, click=True)
    tasks_at, rows_at, columns_at = (text.transform_filter(f"datum.kind == '{kind}'") for kind in KINDS)
    drawn = template(
        rows * block + LEGEND_PX,
        rect,
        _numbers(middle, 10, click=True),
        ring,
        tasks_at.mark_text(align="left", baseline="bottom", fontSize=12, fontWeight=600),
        rows_at.mark_text(align="right", fontSize=10, opacity=0.8),
        columns_at.mark_text(fontSize=10, opacity=0.8),
    )
    return picture(drawn, cells=shown, words=pd.DataFrame(words))


def rank_scatter(ranks: pd.DataFrame, a: str, b: str, noun: str) -> Picture:
    """Rank in `a` against rank in `b`, one point a component, with the diagonal and the edges of both top 30 %."""
    n, last = len(ranks), max(1, int(ranks["layer"].max()))
    scale = alt.Scale(domain=[0, n + 1], nice=False)
    axis = alt.Axis(tickMinStep=1, format="d", grid=False)
    x = alt.X("rank_a:Q", title=f"Rank in {a} (1 = first to go)", scale=scale, axis=axis)
    y = alt.Y("rank_b:Q", title=f"Rank in {b}", scale=scale, axis=axis)
    viridis, legend = alt.Scale(scheme="viridis", domain=[0, last]), alt.Legend(format="d", tickMinStep=1)
    size = 70 if n <= 500 else 12
    points = named_chart("ranks").mark_point(filled=True, size=size, opacity=0.85, stroke=GREY, strokeWidth=0.7)
    points = points.encode(
        x=x,
        y=y,
        color=alt.Color("layer:Q", title="Layer", scale=viridis, legend=legend),
        tooltip=[
            alt.Tooltip("name:N", title=noun),
            alt.Tooltip("rank_a:Q", title=f"Rank in {a}"),
            alt.Tooltip("rank_b:Q", title=f"Rank in {b}"),
        ],
    )
    edge = n - n_top(n) + 0.5
    ends = [(0, 0, n + 1, n + 1, "agreement"), (edge, 0, edge, n + 1, "top 30 %"), (0, edge, n + 1, edge, "top 30 %")]
    lines = pd.DataFrame(ends, columns=["x", "y", "x2", "y2", "line"])
    dashes = alt.Scale(domain=["agreement", "top 30 %"], range=[[1, 0], [3, 3]])
    rules = named_chart("lines").mark_rule(color=GREY)
    rules = rules.encode(
        x=alt.X("x:Q", scale=scale),
        x2="x2:Q",
        y=alt.Y("y:Q", scale=scale),
        y2="y2:Q",
        strokeDash=alt.StrokeDash("line:N", scale=dashes, legend=None),
        tooltip=alt.Tooltip("line:N", title="Line"),
    )
    return picture(template(340, rules, points), lines=lines, ranks=ranks)


def _cells(base: alt.Chart, measure: Measure, font_px: int, click: bool) -> list[alt.Chart]:
    """Coloured cells, their numbers, and the ring around what is selected; an undefined value has no colour."""
    gradient = {"gradientLength": 220, "gradientOpacity": PALE, "titleLimit": 400}
    legend = alt.Legend(orient="top", direction="horizontal", tickCount=5, format=".1f", **gradient)
    scale = around_zero(1) if measure.signed else alt.Scale(domain=[0, 1])
    colour = alt.Color("value:Q", title=measure.title, scale=scale, legend=legend if click else None)
    rect = base.mark_rect(**CELL, fillOpacity=PALE, cursor="pointer" if click else "default", invalid="show")
    # the test for the undefined first: Vega-Lite puts its own, which paints them as 0, behind it
    rect = rect.encode(color=alt.condition("!isValid(datum.value)", alt.value(UNDEFINED), colour))
    numbers = _numbers(base, font_px, click)
    if not click:
        return [rect, numbers]
    ring = base.transform_filter("datum.selected").mark_rect(filled=False, stroke=MARK, strokeWidth=2.5)
    return [rect.add_params(alt.selection_point(name="pair", fields=["first", "second"])), numbers, ring]


def _numbers(base: alt.Chart, font_px: int, click: bool) -> alt.Chart:
    return written(base, font_px, cursor="pointer" if click else "default").encode(text="number:N")


def _ringed(cells: pd.DataFrame, selected: Collection[str]) -> pd.DataFrame:
    pairs = zip(cells["first"], cells["second"], strict=True)
    return cells.assign(selected=[{first, second} == set(selected) for first, second in pairs])


def _tooltip(measure: Measure) -> list[alt.Tooltip]:
    own = [alt.Tooltip("number:N", title=measure.title)] if measure.column == "as_published" else []
    return [TOOLTIP[0], *own, *TOOLTIP[1:]]

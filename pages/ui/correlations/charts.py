"""Charts of how much rankings agree: DataFrame in (`pages.ui.correlations.tables`), Altair chart out, on fixed scales.

Cells are pale, so that their numbers can be read in both themes. What is clicked is the selection `pair`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import altair as alt
import pandas as pd

from engine.importance.rankings import n_top
from pages.ui.induction.charts import RING
from pages.ui.shared.charts import CELL, INK, PALE, named_chart, with_data, written

ROOM_FOR_ZEROS = 24  # columns: with more, cells hold ".62" in place of "0.62"
ROWS_PX, NAMES_PX = (22, 40, 300), 70  # a row of the matrix at least, at most, and all where few; slanted names
ACROSS = 5  # small matrices beside one another
SMALL_PX, TITLE_PX, UNDER_PX = 22, 20, 30  # of a small matrix: a row, what is above it, what is under it
LEGEND_PX = 105  # Streamlit counts legend and axes as part of the height
PLAIN = {"ticks": False, "domain": False, "grid": False, "labelFlush": False}
TOOLTIP = [
    alt.Tooltip("pair:N", title="Rankings"), alt.Tooltip("srcc:N", title="SRCC"),
    alt.Tooltip("interval:N", title="95 % interval"), alt.Tooltip("p:N", title="p (random relabelling)"),
    alt.Tooltip("shared:N", title="Top 30 % shared"),
]  # fmt: skip


@dataclass(frozen=True)
class Measure:
    """What the cells of a matrix hold, and the fixed ends of its colours."""

    column: str
    title: str
    domain: tuple[float, float]


MEASURES = {
    "srcc": Measure("srcc", "SRCC", (-1, 1)),
    "as_published": Measure("as_published", "Coefficient as published", (-1, 1)),
    "overlap": Measure("overlap", "Share of the top 30 % in both", (0, 1)),
}


def matrix(cells: pd.DataFrame, names: Sequence[str], selected: Collection[str], measure: Measure) -> alt.LayerChart:
    """Rankings x rankings, the value in every cell; `selected` names the labels of the pair that has a ring."""
    wide = len(names) > ROOM_FOR_ZEROS
    shown = _ringed(cells, selected)
    if wide:
        shown = shown.assign(number=shown["number"].str.replace("0.", ".", regex=False))
    names, names_px = list(names), {"labelLimit": 160, "labelOverlap": False}
    base = named_chart("cells").encode(
        x=alt.X("b:N", sort=names, title="and", axis=alt.Axis(title=None, labelAngle=-45, **names_px, **PLAIN)),
        y=alt.Y("a:N", sort=names, title="Ranking", axis=alt.Axis(title=None, **names_px, **PLAIN)),
        tooltip=_tooltip(measure),
    )
    chart = alt.layer(*_cells(base, measure, 8 if wide else 11, click=True))
    low, high, few = ROWS_PX
    row_px = max(low, min(high, few // len(names)))
    return with_data(chart.properties(height=row_px * len(names) + NAMES_PX + LEGEND_PX), cells=shown)


def mean_matrix(cells: pd.DataFrame, counts: Sequence[str], measure: Measure) -> alt.LayerChart:
    """Shots x shots, the mean over tasks (`agreement_frames.mean_cells`)."""
    base = named_chart("cells").encode(
        x=alt.X("b:N", sort=list(counts), title="Solved examples", axis=alt.Axis(labelAngle=0, **PLAIN)),
        y=alt.Y("a:N", sort=list(counts), title="Solved examples", axis=alt.Axis(**PLAIN)),
        tooltip=[alt.Tooltip("a:N", title="Solved examples"), alt.Tooltip("b:N", title="and"),
                 alt.Tooltip("number:N", title=f"Mean {measure.title}"), alt.Tooltip("n:Q", title="Tasks"),
                 alt.Tooltip("lowest:N", title="Lowest"), alt.Tooltip("highest:N", title="Highest")],
    )  # fmt: skip
    chart = alt.layer(*_cells(base, measure, 15, click=False))
    return with_data(chart.properties(height=68 * len(counts) + 60), cells=cells)


def small_matrices(
    cells: pd.DataFrame, tasks: Sequence[str], counts: Sequence[str], selected: Collection[str], measure: Measure
) -> alt.LayerChart:
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
    chart = alt.layer(
        rect,
        _numbers(middle, 10, click=True),
        ring,
        text.transform_filter("datum.kind == 'task'").mark_text(
            align="left", baseline="bottom", fontSize=12, fontWeight=600
        ),
        text.transform_filter("datum.kind == 'row'").mark_text(align="right", fontSize=10, opacity=0.8),
        text.transform_filter("datum.kind == 'column'").mark_text(fontSize=10, opacity=0.8),
    )
    return with_data(chart.properties(height=rows * block + LEGEND_PX), cells=shown, words=pd.DataFrame(words))


def rank_scatter(ranks: pd.DataFrame, a: str, b: str, noun: str) -> alt.LayerChart:
    """Rank in `a` against rank in `b`, one point a component, with the diagonal and the edges of both top 30 %."""
    n, last = len(ranks), max(1, int(ranks["layer"].max()))
    scale = alt.Scale(domain=[0, n + 1], nice=False)
    axis = alt.Axis(tickMinStep=1, format="d", grid=False)
    x = alt.X("rank_a:Q", title=f"Rank in {a} (1 = first to go)", scale=scale, axis=axis)
    y = alt.Y("rank_b:Q", title=f"Rank in {b}", scale=scale, axis=axis)
    points = named_chart("ranks").mark_point(filled=True, size=70 if n <= 500 else 12, opacity=0.85,
                                                   stroke="#8a949e", strokeWidth=0.7).encode(
        x=x, y=y,
        color=alt.Color("layer:Q", title="Layer", scale=alt.Scale(scheme="viridis", domain=[0, last]),
                        legend=alt.Legend(format="d", tickMinStep=1)),
        tooltip=[alt.Tooltip("name:N", title=noun), alt.Tooltip("rank_a:Q", title=f"Rank in {a}"),
                 alt.Tooltip("rank_b:Q", title=f"Rank in {b}")],
    )  # fmt: skip
    edge = n - n_top(n) + 0.5
    lines = pd.DataFrame({"x": [0, edge, 0], "x2": [n + 1, edge, n + 1], "y": [0, 0, edge], "y2": [n + 1, n + 1, edge],
                          "line": ["agreement", "top 30 %", "top 30 %"]})  # fmt: skip
    rules = named_chart("lines").mark_rule(color="#8a949e").encode(
        x=alt.X("x:Q", scale=scale), x2="x2:Q", y=alt.Y("y:Q", scale=scale), y2="y2:Q",
        strokeDash=alt.StrokeDash("line:N", scale=alt.Scale(domain=["agreement", "top 30 %"], range=[[1, 0], [3, 3]]),
                                  legend=None),
        tooltip=alt.Tooltip("line:N", title="Line"),
    )  # fmt: skip
    return with_data(alt.layer(rules, points).properties(height=340), lines=lines, ranks=ranks)


def _cells(base: alt.Chart, measure: Measure, font_px: int, click: bool) -> list[alt.Chart]:
    """Coloured cells, their numbers, and the ring around what is selected; an undefined value has no colour."""
    signed = measure.domain[0] < 0
    colour = alt.Color(
        "value:Q",
        title=measure.title,
        scale=alt.Scale(domain=list(measure.domain), **({"domainMid": 0} if signed else {})),
        legend=alt.Legend(orient="top", direction="horizontal", tickCount=5, format=".1f", gradientLength=220,
                          gradientOpacity=PALE, titleLimit=400) if click else None,
    )  # fmt: skip
    rect = base.mark_rect(**CELL, fillOpacity=PALE, cursor="pointer" if click else "default", invalid="show")
    # the test for the undefined first: Vega-Lite puts its own, which paints them as 0, behind it
    rect = rect.encode(color=alt.condition("!isValid(datum.value)", alt.value("#8a949e44"), colour))
    numbers = _numbers(base, font_px, click)
    if not click:
        return [rect, numbers]
    ring = base.transform_filter("datum.selected").mark_rect(filled=False, stroke=RING, strokeWidth=2.5)
    return [rect.add_params(alt.selection_point(name="pair", fields=["first", "second"])), numbers, ring]


def _numbers(base: alt.Chart, font_px: int, click: bool) -> alt.Chart:
    return written(base, font_px, cursor="pointer" if click else "default").encode(text="number:N")


def _ringed(cells: pd.DataFrame, selected: Collection[str]) -> pd.DataFrame:
    pairs = zip(cells["first"], cells["second"], strict=True)
    return cells.assign(selected=[{first, second} == set(selected) for first, second in pairs])


def _tooltip(measure: Measure) -> list[alt.Tooltip]:
    own = [alt.Tooltip("number:N", title=measure.title)] if measure.column == "as_published" else []
    return [TOOLTIP[0], *own, *TOOLTIP[1:]]

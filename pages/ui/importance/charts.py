"""Charts of importance over many tasks and shot counts: rows of `pages.ui.importance.tables` in, pictures out."""

import json
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from engine.questions.requests import TaskSpec
from engine.studies.surveys import in_words, shots_in_words
from engine.views.colors import CHANCE, GREY
from pages.ui.figures import charts
from pages.ui.page.tables import RANK_TITLE, number

LOST = "Accuracy points lost (negative: gained)"
TITLES = {"heads": "Gradient of Bansal et al.", "heads-one-divisor": "Gradient",
          "heads-oracle": LOST}  # fmt: skip
ACROSS, WITH_SHOTS = 6, 3  # maps side by side: the most, and with room for the shots in the same line
WIDTH_PX = 850  # of the page at 1280 px, for which heights are chosen; widths follow the window
LEGEND_PX, LINE_PX = (
    48,
    18,
)  # a legend on top, which Streamlit counts as part of the height, like charts.AXIS_PX; and its title above it
TASK_PX, SHOTS_PX, GAP_PX = 25, 22, 12  # two lines of title above a map, also with a slide's type, and the space below
ROW_PX = 17  # of a task in the FFN map
UNDER_PX = 64  # of the axis under a map
CELL_PX = 26  # the highest row of a map
ROOM_FOR_NUMBERS = 28  # layers on the width of the page: with more, cells of the FFN map hold only the sign
UNCLEAR = 0.6  # opacity of the number of a change that may be chance
NUMBER_PX = 22  # width of a cell that has room for a number
MEAN = "mean of all"  # the last row of the FFN map
POINTS = 100.0  # of accuracy: one scale for heads and FFNs, and for all models
SHARE = ".2~p"  # such as "5.1%" or "0.012%"
RANK = f"rank:Q|{RANK_TITLE}"
WHERE = "task:N|Task; shots:Q|Shots"


def score_maps(
    rows: pd.DataFrame,
    title: str,
    ringed: Collection[int] = (),
    is_slide: bool = False,
    width: float = 1,
    ring_colour: str = GREY,
    selected: str = "",
) -> charts.Picture:
    """Returns a small map, layers x heads, for each task and shot count of `head_rows`, colored by the share of the
    task's total; by an oracle in points around 0, with a ring on the heads `ringed` (flat indices) and the number in
    cells that have room; unclear ones are gray. The cells of the head `selected` have a dark edge. `width`: share
    of the page's."""
    is_oracle = "is_clear" in rows
    maps, row_px, px_per_head = _places(rows, width)
    maps = maps.assign(total=0.01) if is_oracle else maps
    highest, share = float((maps["highest"] / maps["total"]).max()), f"{title}, share of the task's total"
    highest = POINTS if is_oracle else highest
    named, form = (title, ".3~r") if is_oracle else (share, SHARE)
    coloured = rows.loc[rows["is_clear"], "score"] if is_oracle else rows["score"]
    is_signed = is_oracle or bool((rows["score"] < 0).any())  # a loss is orange, with or without a gain next to it
    colour = _colour("tint", named, is_signed, highest, form, bool((coloured < 0).any()), width)
    n_layers, n_heads = int(rows["layer"].max()) + 1, int(rows["head"].max()) + 1
    exactly = partial(alt.Scale, nice=False, zero=False)
    across, down = (float(maps[end].max()) for end in ("end", "bottom"))
    last_row, first_column = maps.loc[maps["y"] == maps["y"].max(), "x"], maps.loc[maps["x"] == 0, "y"].unique()
    heads, layers = _every(n_heads, 18 / px_per_head), _every(n_layers, 13 / row_px)
    x_axis = _numbered([(left + at + 0.5, at) for left in last_row for at in heads])
    y_axis = _numbered([(top + row_px * (at + 0.5), at) for top in first_column for at in layers])
    # in the plural: a channel titled as a tip is has its label for screen readers dropped
    x = alt.X("x:Q", title="Heads", axis=x_axis, scale=exactly(domain=[0, across]))
    y = alt.Y("y:Q", title="Layers", axis=y_axis, scale=exactly(domain=[down, 0]))
    told = "shade:Q|Points lost|.1f" if is_oracle else f"shade:Q|Share of the total|{SHARE}"
    tooltip = charts.tips(WHERE, f"name:N|Head; {told}")  # by an oracle most heads tie
    tooltip += charts.tips("each:N|By task") if "each" in rows else ()
    ranked = RANK.replace("|Rank", "|Task rank")
    tooltip += () if is_oracle else charts.tips(ranked, f"score:Q|{title}|{charts.MAGNITUDE}")
    # values shared by a map's cells are in the expressions, not in each row: that would double the drawing time
    lists = {name: json.dumps(maps[name].tolist()) for name in ("x", "y", "task", "shots", "total")}
    base = charts.named_chart("heads").transform_calculate(
        x=f"{lists['x']}[datum.map] + datum.head",
        y=f"{lists['y']}[datum.map] + {row_px} * datum.layer",
        task=f"{lists['task']}[datum.map]",
        shots=f"{lists['shots']}[datum.map]",
        name="'L' + datum.layer + 'H' + datum.head",
        shade=f"datum.score / {lists['total']}[datum.map]",
    )
    tint = "datum.is_clear ? datum.shade : null" if is_oracle else "datum.shade"
    base = base.transform_calculate(x2="datum.x + 1", y2=f"datum.y + {row_px}", tint=tint)
    edge: dict[str, Any] = charts.CELL if row_px >= 6 else {"strokeWidth": 0}
    rect = base.mark_rect(**edge, cursor="pointer", invalid="show")
    rect = rect.encode(x=x, y=y, x2="x2:Q", y2="y2:Q", color=_if_clear(colour), tooltip=tooltip)
    clicked = alt.selection_point(name="head", fields=["layer", "head"], empty=False)
    rect = rect.add_params(clicked)
    places = base.encode(x=x, y=y, tooltip=tooltip)
    numbers = _rings_and_numbers(places, row_px, px_per_head, ring_colour) if is_oracle else []
    edged = places.transform_filter("datum.is_selected").transform_calculate(ink="'ink'")
    edged = edged.mark_rect(filled=False, strokeWidth=2.5, cursor="pointer")
    edged = edged.encode(x2="x2:Q", y2="y2:Q", stroke=alt.Stroke("ink:N", legend=None, scale=charts.INK["scale"]))
    frame = charts.named_chart("maps").mark_rect(filled=False, stroke=GREY, strokeWidth=1)
    frame = frame.encode(x=x, x2="x2:Q", y=y, y2="bottom:Q", tooltip=alt.value(None))
    words = charts.inked(charts.named_chart("maps").encode(x=x, y=y))
    above: dict[str, Any] = {"align": "left", "baseline": "bottom"}
    names = words.transform_filter("datum.first").mark_text(
        **above, dy=-SHOTS_PX if maps["count"].any() else -5, fontSize=12, fontWeight=600
    )
    names, counts = names.encode(text="title:N"), words.mark_text(**above, dy=-3, fontSize=11, opacity=0.8)
    counts = counts.encode(text="count:N")
    chart = alt.layer(rect, *numbers, frame, edged, names, counts)
    chart = chart.properties(
        height=down + _legend_px(width) + (UNDER_PX if is_oracle and not is_slide else charts.AXIS_PX)
    )
    numbered = rows.merge(maps.assign(map=maps.index)[["task", "shots", "map"]], on=["task", "shots"], how="left")
    numbered = numbered.assign(is_ringed=(n_heads * numbered["layer"] + numbered["head"]).isin(list(ringed)))
    numbered = numbered.assign(is_selected=numbered["name"].eq(selected))
    if is_oracle:
        numbered["number"] = [number(100 * score, 0) for score in numbered["score"]]
    columns = ["map", "layer", "head", "score", "rank", "is_selected"]
    columns += ["is_clear", "is_ringed", "number"] if is_oracle else []
    columns += ["each"] if "each" in rows else []
    return charts.with_data(chart, heads=numbered[columns], maps=maps)


def _rings_and_numbers(base: alt.Chart, row_px: int, px_per_head: float, colour: str) -> list[alt.Chart]:
    """Returns the rings of an oracle's maps, and the number of each head if cells have room."""
    middle = base.transform_calculate(x="datum.x + 0.5", y=f"datum.y + {row_px / 2}")
    look: dict[str, Any] = {"stroke": colour, "strokeWidth": 2, "cornerRadius": row_px / 2, "cursor": "pointer"}
    inner = base.transform_calculate(x="datum.x + 0.1", x2="datum.x2 - 0.1", y="datum.y + 1", y2="datum.y2 - 1")
    rings = inner.transform_filter("datum.is_ringed").mark_rect(filled=False, **look).encode(x2="x2:Q", y2="y2:Q")
    if px_per_head < NUMBER_PX:
        return [rings]
    return [rings, *_numbers(middle, cursor="pointer")]


def _numbers(base: alt.Chart, **mark: Any) -> list[alt.Chart]:
    """Returns the number of each cell, pale in those whose change may be chance."""
    shade = alt.condition("datum.is_clear", alt.value(1), alt.value(UNCLEAR))
    return [each.encode(opacity=shade) for each in charts.on_cells(base, 10, "tint", "number:N", **mark)]


def ffn_map(rows: pd.DataFrame, mean: pd.DataFrame, width: float = 1) -> charts.Picture:
    """Returns tasks x layers of `ffn_rows`, in accuracy points lost, with their `ffn_mean` below, and the number in
    each cell, or in small ones a minus sign if removal clearly helps; unclear cells are gray. Colors are the same on
    both sides of 0, by the square root: one FFN may cost far more than all others. `width`: share of the page's."""
    mean = mean.assign(task="mean", row=MEAN)
    named = rows.assign(row=[in_words(TaskSpec(*of)) for of in zip(rows["task"], rows["shots"], strict=True)])
    cells = pd.concat([named, mean]) if named["row"].nunique() > 1 else named
    points = 100 * cells["score"]
    numbers = [number(value, 0) for value in points]
    n_layers = int(rows["layer"].max()) + 1
    if n_layers > width * ROOM_FOR_NUMBERS:
        is_gain = (points < 0) & cells["is_clear"]
        numbers = ["−" if gains else "" for gains in is_gain]
    cells = cells.assign(points=points, tint=points.where(cells["is_clear"]), number=numbers)
    axis = partial(alt.Axis, ticks=False, domain=False)
    italic = {"condition": {"test": f"datum.value == '{MEAN}'", "value": "italic"}, "value": "normal"}
    every_task = axis(labelLimit=240, labelOverlap=False, labelBound=False, labelFlush=False, labelFontStyle=italic)
    base = charts.named_chart("ffns").encode(
        x=alt.X("layer:O", title="FFN of layer", axis=axis(labelAngle=0, labelOverlap=True)),
        y=alt.Y("row:N", title=None, sort=None, axis=every_task),
        tooltip=charts.tips(WHERE, "name:N|FFN; points:Q|Points lost|.1f", RANK),
    )
    scale, legend = (
        charts.around_zero(POINTS, type="sqrt"),
        _legend(".3~r", POINTS, True, bool((cells["tint"] < 0).any()), width),
    )
    colour = alt.Color("tint:Q", title=LOST, scale=scale, legend=legend)
    rect = base.mark_rect(**charts.CELL, invalid="show").encode(color=_if_clear(colour))
    numbered = _numbers(base)
    height = ROW_PX * cells["row"].nunique() + _legend_px(width) + UNDER_PX
    return charts.with_data(alt.layer(rect, *numbered).properties(height=height), ffns=cells)


def _if_clear(colour: alt.Color) -> Any:
    """Returns the color of cells, and pale gray for those without a `tint`, whose change of accuracy may be chance."""
    return alt.condition("!isValid(datum.tint)", alt.value(CHANCE), colour)


def _places(rows: pd.DataFrame, width: float) -> tuple[pd.DataFrame, int, float]:
    """Returns (one row per map: its corners, x in heads and y in pixels, titles, highest score and sum; pixels of a
    layer's row; about those of a head's column), in a `width` that is a share of the page's.

    One chart that places its maps, not a facet: a facet's width cannot follow the window.
    """
    names, shots = list(dict.fromkeys(rows["task"])), sorted(set(rows["shots"]))
    n_layers, n_heads = int(rows["layer"].max()) + 1, int(rows["head"].max()) + 1
    per_row = max(1, min(len(names), ACROSS // len(shots)))  # tasks in a row of maps
    gap, wide = n_heads / 12, n_heads / 5
    task_width = len(shots) * n_heads + (len(shots) - 1) * gap + wide
    px_per_head = width * WIDTH_PX / (per_row * task_width)
    row_px = int(np.clip(0.75 * px_per_head, 3, max(3, min(CELL_PX, 420 // n_layers))))
    maps = rows.assign(score=rows["score"].abs()).groupby(["task", "shots"], sort=False)["score"]
    maps = maps.agg(highest="max", total="sum").replace(0, 1.0).reset_index()
    down, across = np.divmod(maps["task"].map(names.index), per_row)
    x = across * task_width + maps["shots"].map(shots.index) * (n_heads + gap)
    is_one_line = len(shots) == 1 and per_row <= WITH_SHOTS
    above = TASK_PX + (0 if is_one_line else SHOTS_PX)
    y = down * (above + row_px * n_layers + GAP_PX) + above
    count = ["" if is_one_line else shots_in_words(shots) for shots in maps["shots"]]
    title = [in_words(TaskSpec(*of)) if is_one_line else of[0] for of in zip(maps["task"], maps["shots"], strict=True)]
    maps = maps.assign(x=x, x2=x + n_heads, y=y, bottom=y + row_px * n_layers, count=count, title=title)
    return maps.assign(first=~maps["task"].duplicated(), end=per_row * task_width - wide), row_px, px_per_head


def _every(n: int, least: float) -> range:
    """Returns the numbers under n that an axis names: each, or every second, fifth, ... if `least` > 1 fit on one."""
    return range(0, n, next((step for step in (1, 2, 5, 10, 20) if step >= least), 50))


def _numbered(places: Sequence[tuple[float, int]]) -> alt.Axis:
    """Returns an axis with these numbers at these places of a continuous scale."""
    values, numbers = zip(*places, strict=True)
    label = f"{json.dumps(numbers)}[indexof({json.dumps(values)}, datum.value)]"
    look: dict[str, Any] = {"ticks": False, "domain": False, "grid": False, "labelOverlap": False, "labelFlush": False}
    return alt.Axis(values=list(values), labelExpr=label, **look)


def _colour(
    field: str, title: str, is_signed: bool, largest: float, form: str, has_negative: bool = True, width: float = 1
) -> alt.Color:
    """Returns colors from 0 to `largest`, by the square root: most heads score far below the best few. If scores are
    signed, around 0; `has_negative`: whether a negative one is drawn in color."""
    scale = charts.around_zero(largest, type="sqrt") if is_signed else alt.Scale(type="sqrt", domain=[0, largest])
    legend = _legend(form, largest, is_signed, has_negative, width)
    return alt.Color(f"{field}:Q", title=title, scale=scale, legend=legend)


def _legend_px(width: float) -> int:
    """Returns the height of a legend over a chart in a share of the page's `width`."""
    return LEGEND_PX if width == 1 else LEGEND_PX + LINE_PX


def _legend(format: str, largest: float, is_signed: bool, has_negative: bool, width: float) -> alt.Legend:
    """Returns a bar that names values evenly, or of colors around 0 squares on the only side that occurs; next to its
    title, or below it if the chart does not have all of the page's `width`."""
    ticks = [0, largest / 4, largest]  # a quarter's root is in the middle
    ticks = [-largest, -largest / 4, *ticks] if is_signed and has_negative else ticks
    squares = {"type": "symbol", "symbolType": "square", "symbolSize": 200, "symbolStrokeWidth": 0}
    look: dict[str, Any] = {
        **(squares if is_signed and not has_negative else {}),
        "orient": "top",
        "direction": "horizontal",
        "titleOrient": "left" if width == 1 else "top",
        "titleLimit": 500,
        "offset": 4,
        "labelFontSize": 12,  # as axes have; larger by itself
        "titleFontSize": 12,
    }
    return alt.Legend(gradientLength=200, gradientThickness=12, values=ticks, format=format, **look)

"""The forms of charts that are made of cells, in Vega-Lite: a map of heads, a matrix, and the attention of a head.

Each form takes a `Part` first, as those of `engine.views.forms.kit` do.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from engine.views.colors import DARK, GREY, LIGHT, MARK, UNKNOWN
from engine.views.forms.channels import (
    ABOVE,
    AXIS_PX,
    LEGEND_PX,
    ROW_PX,
    axis_format,
    if_set,
    ordinal_channel,
    picture,
    tips,
)
from engine.views.pictures import Picture
from engine.views.view import Part

MAP_PX, PATTERN_PX = 420, 240  # the most that a map is high; how high a pattern is
FFN = "FFN"  # the last column of a map
MOST_NUMBERS = 150  # written on cells
CELLS_PX, NUMBER_PX = 700, 28  # of all cells side by side in a part as wide as the page, and of a number on one
SLANTED_PX = 60  # under a chart whose labels are turned
LABEL_PX = 20  # between two labels that are turned
MOST_LETTERS = 90  # on an axis without turning its labels
CROSS = "M-1,-1L1,1M-1,1L1,-1"


def head_map(
    part: Part,
    value: str,
    signed: bool = False,
    crosses: str = "",
    outlined: str = "",
    shade: str = "",
    words: str = "",
    dots: str = "",
    selects: str = "",
) -> Picture:
    """Layers and heads, colored by `value`: around 0 if it is `signed`; an FFN, a row whose head is None, in a last
    column. Fields: `crosses` of pruned cells, `outlined` of those with an edge, `dots` of those with a dot, `words` of
    what is written on them in place of the value, `shade` of the color in its place, without a legend. `selects`: the
    name of the selection by a click, of the field `name`; the `selected` row has a ring."""
    n_rows = 1 + max((int(row["layer"]) for row in part.rows), default=0)
    height = max(9, min(30, MAP_PX // n_rows))
    axis = {"labelAngle": 0, "labelOverlap": True, "ticks": False, "domain": False}
    across: dict[str, Any] = {"field": "head", "type": "ordinal", "title": "Head", "axis": axis}
    if any(row["head"] is None for row in part.rows):
        named = [row | {"column": FFN if row["head"] is None else str(row["head"])} for row in map(dict, part.rows)]
        part, across = replace(part, rows=named), across | {"field": "column", "sort": None}
    encoding = {
        "x": across,
        "y": {"field": "layer", "type": "ordinal", "title": "Layer", "axis": axis},
        "tooltip": tips(part),
    }
    layers = [_cells(part, shade or value, signed, outlined, not shade) | _click(selects, "name")]
    if crosses:
        layers += _crosses(crosses, height)
    layers += _numbers(part, "head", value, shade or value, words)
    if dots:
        dot = {"type": "point", "filled": True, "size": 14, "opacity": 1, "yOffset": 0.32 * height}
        layers += [{"mark": dot | {"color": DARK, "stroke": LIGHT}, "transform": [{"filter": f"datum['{dots}']"}]}]
    layers += _ring() if selects else []
    legend_px = LEGEND_PX * (part.width < 1 and not shade)
    return picture(part, layers, encoding, {"height": n_rows * height + AXIS_PX + legend_px})


def matrix(part: Part, x: str, y: str, value: str, signed: bool = False, selects: str = "") -> Picture:
    """A cell for each row, colored by `value`: around 0 if it is `signed`; its number is written on it if there is
    room. `selects`: the name of the selection by a click, of the fields `x` and `y`; the `selected` row has a ring."""
    n_down, n_across = len({row[y] for row in part.rows}), len({row[x] for row in part.rows})
    skips = n_across * LABEL_PX > CELLS_PX * part.width
    is_long = sum(map(len, {str(row[x]) for row in part.rows})) > MOST_LETTERS * part.width
    encoding = {
        "x": ordinal_channel(part, x)
        | {"axis": {"labelOverlap": skips, "labelAngle": -35 * is_long, "labelLimit": 160}},
        "y": ordinal_channel(part, y) | {"axis": {"labelOverlap": True, "labelLimit": 200, **ABOVE}},
        "tooltip": tips(part),
    }
    layers = [_cells(part, value, signed, "") | _click(selects, x, y), *_numbers(part, x, value, value)]
    layers += _ring() if selects else []
    more_px = ROW_PX + LEGEND_PX * (part.width < 1) + SLANTED_PX * is_long
    return picture(part, layers, encoding, {"height": max(60, min(28 * n_down, 560)) + AXIS_PX + more_px})


def pattern(part: Part, n: int) -> Picture:
    """The attention of a head on a text of `n` tokens, a row for each weight: from `destination` down to `source`
    across; a row that is `marked` in orange."""
    across: dict[str, Any] = {"domain": [0, n], "nice": False}
    axis = {"grid": False, "tickMinStep": 1, "tickCount": 4}
    encoding = {
        "x": {
            "field": "source",
            "type": "quantitative",
            "title": "looks at token index",
            "scale": across,
            "axis": axis,
        },
        "y": {
            "field": "destination",
            "type": "quantitative",
            "title": "from token index",
            "scale": across | {"reverse": True},
            "axis": axis,
        },
        "x2": {"field": "x2"},
        "y2": {"field": "y2"},
        "tooltip": tips(part),
    }
    shade = {"field": "attention", "type": "quantitative", "legend": None}
    roots = {"domain": [0, 1], "type": "sqrt"}  # shares of a few percent are visible
    cells = {
        "mark": "rect",
        "transform": [{"filter": "!datum.marked"}],
        "encoding": {"color": shade | {"scale": roots}},
    }
    marked = {
        "mark": {"type": "rect", "color": MARK, "stroke": MARK, "strokeWidth": 1},  # seen at two pixels
        "transform": [{"filter": "datum.marked"}],
        "encoding": {"opacity": shade | {"scale": roots | {"range": [0.2, 1]}}},
    }
    ends = [{"calculate": f"datum.{of} + 1", "as": to} for of, to in (("source", "x2"), ("destination", "y2"))]
    kwargs = {"height": PATTERN_PX + AXIS_PX, "transform": ends, "view": {"stroke": GREY, "strokeWidth": 1}}
    return picture(part, [cells, marked], encoding, kwargs)


def _cells(part: Part, value: str, signed: bool, outlined: str, has_legend: bool = True) -> dict[str, Any]:
    """The cells of a map or matrix: gray if the number is missing."""
    column = part.column(value)
    legend = axis_format(column) | {"titleLimit": 320, "orient": "right" if part.width == 1 else "bottom"}
    color = {"field": value, "type": "quantitative", "title": column.title, "legend": legend if has_legend else None,
             "scale": _scale(part, value, signed)}  # fmt: skip
    known = {"condition": {"test": f"isValid(datum['{value}'])", **color}, "value": UNKNOWN}
    edge = {"stroke": (MARK, GREY), "strokeOpacity": (1, 0.45), "strokeWidth": (3, 0.5)}
    mark = {"type": "rect", "invalid": "show"} | {name: plain for name, (_, plain) in edge.items()}
    outlines = {name: if_set(outlined, *values) for name, values in edge.items()} if outlined else {}
    return {"mark": mark, "encoding": {"color": known, **outlines}}


def _scale(part: Part, value: str, signed: bool) -> dict[str, Any]:
    """Colors from 0, or around 0 from blue through gray to orange: Vega would go through green."""
    known = [abs(row[value]) for row in part.rows if row.get(value) is not None and math.isfinite(row[value])]
    reach = max(known, default=0) or 1
    return {"domain": [-reach, reach], "domainMid": 0, "interpolate": "rgb"} if signed else {"domain": [0, reach]}


def _click(selects: str, *fields: str) -> dict[str, Any]:
    """The selection of a cell by a click, by these fields; nothing without a name."""
    if not selects:
        return {}
    return {"params": [{"name": selects, "select": {"type": "point", "fields": list(fields)}}]}


def _ring() -> list[dict[str, Any]]:
    """A ring around the cell of the `selected` row: dark with a light edge, visible on any color."""
    strokes = ({"stroke": LIGHT, "strokeWidth": 5}, {"stroke": DARK, "strokeWidth": 2.5})
    return [
        {"mark": {"type": "rect", "filled": False, **stroke}, "transform": [{"filter": "datum.selected"}]}
        for stroke in strokes
    ]


def _numbers(part: Part, x: str, value: str, shade: str, words: str = "") -> list[dict[str, Any]]:
    """The numbers on cells of the color `shade`, or the `words` in their place, if there is room: black or white,
    whichever is easier to read there."""
    n_across = len({row[x] for row in part.rows})
    if len(part.rows) > MOST_NUMBERS or n_across * NUMBER_PX > CELLS_PX * part.width:
        return []
    color = f"scale('color', datum['{shade}'])"
    ink = {"expr": f"contrast({color}, 'black') < contrast({color}, 'white') ? 'white' : 'black'"}
    form = part.column(value).format
    text = {"field": value, "type": "quantitative"} | ({"format": form} if form else {})
    text = {"field": words, "type": "nominal"} if words else text
    known = [{"filter": f"isValid(datum['{value}'])"}]
    return [{"mark": {"type": "text", "fontSize": 10}, "transform": known,
             "encoding": {"text": text, "fill": {"value": ink}}}]  # fmt: skip


def _crosses(field: str, row_px: int) -> list[dict[str, Any]]:
    """Dark crosses with a light edge, visible on any cell and in both themes."""
    mark = {"type": "point", "shape": CROSS, "size": (0.5 * row_px) ** 2, "opacity": 1}
    strokes = ({"stroke": LIGHT, "strokeWidth": 4}, {"stroke": DARK, "strokeWidth": 1.8})
    return [{"mark": mark | stroke, "transform": [{"filter": f"datum['{field}']"}]} for stroke in strokes]

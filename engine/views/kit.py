"""The forms of charts, in Vega-Lite: a view names fields, and their columns give titles and formats. Streamlit's theme
colors them on screen.

Each form takes a `Part` first, so that `Part(draw=partial(curves, x="level", y="acc"))` is drawn by it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.views.colors import DARK, GREY, LAYERS, LIGHT, MARK, UNKNOWN, palette
from engine.views.pictures import WRITTEN, Picture
from engine.views.view import Column, Part

AXIS_PX = 85  # an x axis with its title, which Streamlit counts as part of the height
ROW_PX, MAP_PX = 24, 420  # a row of bars; the most that a map is high
FFN = "FFN"  # the last column of a map
CURVES_PX, SCATTER_PX, LINES_PX, PATTERN_PX = 320, 380, 150, 240
MOST_POINTS, MOST_NUMBERS, MOST_SERIES = 200, 150, 12  # drawn on a line; written on cells; named in a legend
CELLS_PX, NUMBER_PX = 700, 28  # of all cells side by side in a part as wide as the page, and of a number on one
LEGEND_PX, SLANTED_PX = 50, 60  # under a chart that has no room for it at the side; of labels that are turned
LABEL_PX = 20  # between two labels that are turned
MOST_LETTERS = 90  # on an axis without turning its labels
# the title of rows: above them, as few rows would cut an upright one
ABOVE = {"titleAngle": 0, "titleAnchor": "end", "titleAlign": "right", "titleBaseline": "bottom"}
ABOVE |= {"titleX": -15, "titleY": -6}
CROSS = "M-1,-1L1,1M-1,1L1,-1"


def bars(part: Part, y: str, x: str, low: str = "", high: str = "", clear: str = "") -> Picture:
    """Horizontal bars, a row each, with their interval from `low` to `high`; those not `clear` are gray."""
    x_bar = _number(part, x) | (_interval_title(part, x) if low else {})
    bar = {"mark": {"type": "bar", "height": {"band": 0.7}}, "encoding": {"x": x_bar, **_color_if(clear)}}
    return _rows(part, y, [bar, *([_interval(part, x, low, high)] if low else [])])


def intervals(part: Part, y: str, x: str, low: str, high: str, clear: str = "") -> Picture:
    """Points with their intervals, a row each; those not `clear` are gray."""
    zero = {
        "mark": {"type": "rule", "color": GREY},
        "encoding": {"x": {"datum": 0}, "y": {"value": 0}, "y2": {"value": "height"}},
    }
    point = {"mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
             "encoding": {"x": _number(part, x) | _interval_title(part, x), **_color_if(clear)}}  # fmt: skip
    return _rows(part, y, [zero, _interval(part, x, low, high, clear), point])


def curves(
    part: Part,
    x: str,
    y: str,
    by: str = "",
    low: str = "",
    high: str = "",
    rules: Mapping[str, float] | None = None,
    roles: Mapping[str, str] | None = None,
    share: bool = False,
    log: bool = False,
) -> Picture:
    """A line over the numbers `x`, or one for each value of `by`; a missing number interrupts it. `low` and `high`:
    its band. `rules`: named horizontal lines. `roles`: series by their role in the palette (`full="full model"`).
    `share`: `y` is a share, drawn from 0 to 1. `log`: the axis of `x` is logarithmic."""
    scale = {"domain": [0, 1]} if share else {"zero": False}
    across = {"type": "log", "nice": False} if log else {"zero": False, "nice": False}
    encoding: dict[str, Any] = {"x": _number(part, x, across), "y": _number(part, y, scale)}
    if all(isinstance(row[x], int) for row in part.rows):
        encoding["x"]["axis"]["tickMinStep"] = 1
    if by:
        encoding["color"] = _series(part, by, roles or {})
    point = len(part.rows) < MOST_POINTS
    line = {"mark": {"type": "line", "point": point}, "encoding": encoding | {"tooltip": tips(part)}}
    layers: list[dict[str, Any]] = []
    if low:
        band = {"y": _number(part, low, scale) | {"title": part.column(y).title}, "y2": {"field": high}}
        layers.append({"mark": {"type": "area", "opacity": 0.15}, "encoding": encoding | band})
    layers.append(line)
    datasets: dict[str, list[dict[str, Any]]] = {}
    if rules:
        datasets["rules"] = [{"name": name, "at": at} for name, at in rules.items()]
        layers += _rules()
    return _picture(part, layers, {}, {"height": CURVES_PX}, datasets)


def lines(
    part: Part,
    x: str,
    fields: Mapping[str, str],
    y: str,
    ends: tuple[float, float],
    last: float,
    layers: Mapping[str, int] | None = None,
    band: tuple[float, float] | None = None,
) -> Picture:
    """A line over the numbers `x`, which end at `last`, for each of these `fields` (field: name) of a row; the axis
    `y` is titled so, and has these `ends`. The last line stands out, or all have the colors of their `layers`. `band`:
    a stretch of `x` that is shaded."""
    across = _number(part, x, {"domain": [0, last], "nice": False, "clamp": True})
    across["axis"] |= {"grid": False, "tickCount": 6, "labelExpr": "datum.value ? datum.label : '0'"}
    up = {"field": "value", "type": "quantitative", "title": y, "scale": {"domain": list(ends), "nice": False}}
    up["axis"] = {"tickCount": 4, "minExtent": 30}
    looks_up = {"data": {"name": "lines"}, "key": "field", "fields": ["name", "layer"]}
    transform = [{"fold": list(fields), "as": ["field", "value"]}, {"lookup": "field", "from": looks_up}]
    legend: dict[str, Any] = {"orient": "top", "direction": "horizontal", "titleOrient": "left", "padding": 0,
                              "symbolType": "stroke", "symbolStrokeWidth": 3, "symbolOpacity": 1}  # fmt: skip
    if layers is None:
        scale = {"domain": list(fields.values()), "range": [*[GREY] * (len(fields) - 1), MARK]}
        color = {"field": "name", "type": "nominal", "title": None, "scale": scale,
                 "legend": legend if len(fields) > 1 else None}  # fmt: skip
    else:
        scale = {"domain": [0, max(1, *layers.values())], "range": list(LAYERS), "interpolate": "lab"}
        named = sorted({*layers.values()})
        legend |= {"type": "symbol", "values": named, "format": "d"}
        color = {"field": "layer", "type": "quantitative", "title": "Layer", "scale": scale, "legend": legend}
    tips = [{"field": "name", "title": "Line"}, _tip(part, x), {"field": "value", "title": y, "format": ".3f"}]
    drawn = {"mark": {"type": "line", "strokeWidth": 2 if layers is None else 1.6}, "transform": transform,
             "encoding": {"y": up, "color": color, "detail": {"field": "field"}, "tooltip": tips}}  # fmt: skip
    names = [{"field": field, "name": name, "layer": (layers or {}).get(field, 0)} for field, name in fields.items()]
    # always a layer: a chart that grows keeps its form, and only its data changes
    mark = {"type": "rect", "color": GREY, "opacity": 0.22}
    shaded = {"data": {"name": "band"}, "mark": mark, "encoding": {"x2": {"field": "end"}, "tooltip": {"value": None}}}
    datasets = {"lines": names, "band": [{x: band[0], "end": band[1]}] if band else []}
    return _picture(part, [shaded, drawn], {"x": across}, {"height": LINES_PX + AXIS_PX}, datasets)


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
    return _picture(part, layers, encoding, {"height": n_rows * height + AXIS_PX + legend_px})


def matrix(part: Part, x: str, y: str, value: str, signed: bool = False, selects: str = "") -> Picture:
    """A cell for each row, colored by `value`: around 0 if it is `signed`; its number is written on it if there is
    room. `selects`: the name of the selection by a click, of the fields `x` and `y`; the `selected` row has a ring."""
    n_down, n_across = len({row[y] for row in part.rows}), len({row[x] for row in part.rows})
    skips = n_across * LABEL_PX > CELLS_PX * part.width
    is_long = sum(map(len, {str(row[x]) for row in part.rows})) > MOST_LETTERS * part.width
    encoding = {
        "x": _ordinal(part, x) | {"axis": {"labelOverlap": skips, "labelAngle": -35 * is_long, "labelLimit": 160}},
        "y": _ordinal(part, y) | {"axis": {"labelOverlap": True, "labelLimit": 200, **ABOVE}},
        "tooltip": tips(part),
    }
    layers = [_cells(part, value, signed, "") | _click(selects, x, y), *_numbers(part, x, value, value)]
    layers += _ring() if selects else []
    more_px = ROW_PX + LEGEND_PX * (part.width < 1) + SLANTED_PX * is_long
    return _picture(part, layers, encoding, {"height": max(60, min(28 * n_down, 560)) + AXIS_PX + more_px})


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
    return _picture(part, [cells, marked], encoding, kwargs)


def scatter(part: Part, x: str, y: str, color: str = "layer") -> Picture:
    """A point for each row, such as a head, colored by its layer or another number."""
    encoding = {"x": _number(part, x, {"zero": False}), "y": _number(part, y, {"zero": False}), "tooltip": tips(part)}
    scale = {"range": list(LAYERS), "interpolate": "lab"}
    encoding["color"] = {"field": color, "type": "quantitative", "title": part.column(color).title, "scale": scale}
    mark = {"type": "point", "filled": True, "size": 55, "opacity": 0.8}
    return _picture(part, [{"mark": mark}], encoding, {"height": SCATTER_PX})


def _rows(part: Part, y: str, layers: Sequence[Mapping[str, Any]]) -> Picture:
    """A chart with a line for each row."""
    n = len({row[y] for row in part.rows})
    title = part.column(y).title
    axis = {"title": title, "labelLimit": 320, "labelFlush": False, "ticks": False, "domain": False, **ABOVE}
    encoding = {"y": {"field": y, "type": "nominal", "sort": None, "axis": axis}, "tooltip": tips(part)}
    height = (max(2, n) + bool(title)) * ROW_PX + AXIS_PX
    room = {"right": 12}  # for a number at the end of the axis
    return _picture(part, layers, encoding, {"height": height, "padding": room})


def _picture(
    part: Part,
    layers: Sequence[Mapping[str, Any]],
    encoding: Mapping[str, Any],
    kwargs: Mapping[str, Any],
    datasets: Mapping[str, list[dict[str, Any]]] | None = None,
) -> Picture:
    template = {"data": {"name": "rows"}, "layer": list(layers), "encoding": encoding, **kwargs, "config": WRITTEN}
    return Picture(template, {"rows": [{name: json_value(each) for name, each in row.items()} for row in part.rows],
                              **(datasets or {})})  # fmt: skip


def json_value(value: Any) -> Any:
    """The value as JSON has it: None for a number that is undefined."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _number(part: Part, field: str, scale: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The channel of a number."""
    column = part.column(field)
    shape = {"title": column.title, "axis": _axis_format(column), "scale": scale or {}}
    return {"field": field, "type": "quantitative", **shape}


def _axis_format(column: Column) -> dict[str, Any]:
    """The format of an axis: shares in percent, and large counts as in "1.2M"."""
    if column.format.endswith("%"):
        return {"format": "~%"}
    return {"format": "~s"} if column.format == ",d" else {}


def _ordinal(part: Part, field: str) -> dict[str, Any]:
    """The channel of numbers in their order, or of names as they come."""
    order = {"sort": None} if any(isinstance(row[field], str) for row in part.rows) else {}
    return {"field": field, "type": "ordinal", "title": part.column(field).title} | order


def tips(part: Part) -> list[dict[str, Any]]:
    """The tooltip: every column of the table."""
    return [_tip(part, name) for name in part.shown]


def _tip(part: Part, name: str) -> dict[str, Any]:
    """The line of the tooltip with this field."""
    column = part.column(name)
    is_number = any(isinstance(row.get(name), int | float) or hasattr(row.get(name), "item") for row in part.rows)
    form = {"format": column.format} if column.format and is_number else {}
    return {"field": name, "type": "quantitative" if is_number else "nominal", "title": column.title} | form


def _series(part: Part, by: str, roles: Mapping[str, str]) -> dict[str, Any]:
    """The color of the series: each role's own, others in the remaining places of the palette."""
    names = list(dict.fromkeys(row[by] for row in part.rows))
    domain = palette([name for name in names if name not in roles.values()], **roles)
    top = {"orient": "top", "title": None} if part.width < 1 else {}
    legend = {"values": names, "symbolOpacity": 1, "labelLimit": 320, **top} if len(names) <= MOST_SERIES else None
    return {
        "field": by,
        "type": "nominal",
        "title": part.column(by).title,
        "scale": {"domain": domain},
        "legend": legend,
    }


def _interval(part: Part, x: str, low: str, high: str, clear: str = "") -> dict[str, Any]:
    x_low = _number(part, low) | _interval_title(part, x)
    return {
        "mark": {"type": "rule", "strokeWidth": 1.5, "color": GREY},
        "encoding": {"x": x_low, "x2": {"field": high}, **_color_if(clear)},
        "transform": [{"filter": f"isValid(datum['{low}'])"}],
    }


def _interval_title(part: Part, x: str) -> dict[str, str]:
    return {"title": f"{part.column(x).title} (95% interval)"}


def _color_if(clear: str) -> dict[str, Any]:
    """The color of marks, gray unless their field `clear` is set; the theme's own without a field."""
    return {"color": _if_set(clear, MARK, GREY)} if clear else {}


def _if_set(field: str, value: Any, otherwise: Any) -> dict[str, Any]:
    return {"condition": {"test": f"datum['{field}']", "value": value}, "value": otherwise}


def _rules() -> list[dict[str, Any]]:
    """Named horizontal lines."""
    y = {"field": "at", "type": "quantitative"}
    common = {"y": y, "color": {"value": GREY}, "tooltip": {"value": None}}
    line = {"type": "rule", "strokeDash": [5, 4], "color": GREY}
    words = {"type": "text", "align": "left", "dx": 4, "dy": -6}
    text = {"text": {"field": "name"}, "x": {"value": 0}}
    return [
        {"data": {"name": "rules"}, "mark": line, "encoding": common},
        {"data": {"name": "rules"}, "mark": words, "encoding": common | text},
    ]


def _scale(part: Part, value: str, signed: bool) -> dict[str, Any]:
    """Colors from 0, or around 0 from blue through gray to orange: Vega would go through green."""
    known = [abs(row[value]) for row in part.rows if row.get(value) is not None and math.isfinite(row[value])]
    reach = max(known, default=0) or 1
    return {"domain": [-reach, reach], "domainMid": 0, "interpolate": "rgb"} if signed else {"domain": [0, reach]}


def _cells(part: Part, value: str, signed: bool, outlined: str, has_legend: bool = True) -> dict[str, Any]:
    """The cells of a map or matrix: gray if the number is missing."""
    column = part.column(value)
    legend = _axis_format(column) | {"titleLimit": 320, "orient": "right" if part.width == 1 else "bottom"}
    color = {"field": value, "type": "quantitative", "title": column.title, "legend": legend if has_legend else None,
             "scale": _scale(part, value, signed)}  # fmt: skip
    known = {"condition": {"test": f"isValid(datum['{value}'])", **color}, "value": UNKNOWN}
    edge = {"stroke": (MARK, GREY), "strokeOpacity": (1, 0.45), "strokeWidth": (3, 0.5)}
    mark = {"type": "rect", "invalid": "show"} | {name: plain for name, (_, plain) in edge.items()}
    outlines = {name: _if_set(outlined, *values) for name, values in edge.items()} if outlined else {}
    return {"mark": mark, "encoding": {"color": known, **outlines}}


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

"""The forms of charts over axes, in Vega-Lite: a view names fields, and their columns give titles and formats.
Streamlit's theme colors them on screen. Those made of cells are in `engine.views.forms.maps`.

Each form takes a `Part` first, so that `Part(draw=partial(curves, x="level", y="acc"))` is drawn by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.views.colors import GREY, LAYERS, MARK, palette
from engine.views.forms.channels import ABOVE, AXIS_PX, ROW_PX, if_set, number_channel, picture, tip, tips
from engine.views.pictures import Picture
from engine.views.view import Part

CURVES_PX, SCATTER_PX, LINES_PX = 320, 380, 150
MOST_POINTS, MOST_SERIES = 200, 12  # drawn on a line; named in a legend


def bars(part: Part, y: str, x: str, low: str = "", high: str = "", clear: str = "") -> Picture:
    """Horizontal bars, a row each, with their interval from `low` to `high`; those not `clear` are gray."""
    x_bar = number_channel(part, x) | (_interval_title(part, x) if low else {})
    bar = {"mark": {"type": "bar", "height": {"band": 0.7}}, "encoding": {"x": x_bar, **_color_if(clear)}}
    return _rows(part, y, [bar, *([_interval(part, x, low, high)] if low else [])])


def intervals(part: Part, y: str, x: str, low: str, high: str, clear: str = "") -> Picture:
    """Points with their intervals, a row each; those not `clear` are gray."""
    zero = {
        "mark": {"type": "rule", "color": GREY},
        "encoding": {"x": {"datum": 0}, "y": {"value": 0}, "y2": {"value": "height"}},
    }
    point = {"mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
             "encoding": {"x": number_channel(part, x) | _interval_title(part, x), **_color_if(clear)}}  # fmt: skip
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
    encoding: dict[str, Any] = {"x": number_channel(part, x, across), "y": number_channel(part, y, scale)}
    if all(isinstance(row[x], int) for row in part.rows):
        encoding["x"]["axis"]["tickMinStep"] = 1
    if by:
        encoding["color"] = _series(part, by, roles or {})
    point = len(part.rows) < MOST_POINTS
    line = {"mark": {"type": "line", "point": point}, "encoding": encoding | {"tooltip": tips(part)}}
    layers: list[dict[str, Any]] = []
    if low:
        band = {"y": number_channel(part, low, scale) | {"title": part.column(y).title}, "y2": {"field": high}}
        layers.append({"mark": {"type": "area", "opacity": 0.15}, "encoding": encoding | band})
    layers.append(line)
    datasets: dict[str, list[dict[str, Any]]] = {}
    if rules:
        datasets["rules"] = [{"name": name, "at": at} for name, at in rules.items()]
        layers += _rules()
    return picture(part, layers, {}, {"height": CURVES_PX}, datasets)


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
    across = number_channel(part, x, {"domain": [0, last], "nice": False, "clamp": True})
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
    tips = [{"field": "name", "title": "Line"}, tip(part, x), {"field": "value", "title": y, "format": ".3f"}]
    drawn = {"mark": {"type": "line", "strokeWidth": 2 if layers is None else 1.6}, "transform": transform,
             "encoding": {"y": up, "color": color, "detail": {"field": "field"}, "tooltip": tips}}  # fmt: skip
    names = [{"field": field, "name": name, "layer": (layers or {}).get(field, 0)} for field, name in fields.items()]
    # always a layer: a chart that grows keeps its form, and only its data changes
    mark = {"type": "rect", "color": GREY, "opacity": 0.22}
    shaded = {"data": {"name": "band"}, "mark": mark, "encoding": {"x2": {"field": "end"}, "tooltip": {"value": None}}}
    datasets = {"lines": names, "band": [{x: band[0], "end": band[1]}] if band else []}
    return picture(part, [shaded, drawn], {"x": across}, {"height": LINES_PX + AXIS_PX}, datasets)


def scatter(part: Part, x: str, y: str, color: str = "layer") -> Picture:
    """A point for each row, such as a head, colored by its layer or another number."""
    encoding = {
        "x": number_channel(part, x, {"zero": False}),
        "y": number_channel(part, y, {"zero": False}),
        "tooltip": tips(part),
    }
    scale = {"range": list(LAYERS), "interpolate": "lab"}
    encoding["color"] = {"field": color, "type": "quantitative", "title": part.column(color).title, "scale": scale}
    mark = {"type": "point", "filled": True, "size": 55, "opacity": 0.8}
    return picture(part, [{"mark": mark}], encoding, {"height": SCATTER_PX})


def _rows(part: Part, y: str, layers: Sequence[Mapping[str, Any]]) -> Picture:
    """A chart with a line for each row."""
    n = len({row[y] for row in part.rows})
    title = part.column(y).title
    axis = {"title": title, "labelLimit": 320, "labelFlush": False, "ticks": False, "domain": False, **ABOVE}
    encoding = {"y": {"field": y, "type": "nominal", "sort": None, "axis": axis}, "tooltip": tips(part)}
    height = (max(2, n) + bool(title)) * ROW_PX + AXIS_PX
    room = {"right": 12}  # for a number at the end of the axis
    return picture(part, layers, encoding, {"height": height, "padding": room})


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
    x_low = number_channel(part, low) | _interval_title(part, x)
    return {
        "mark": {"type": "rule", "strokeWidth": 1.5, "color": GREY},
        "encoding": {"x": x_low, "x2": {"field": high}, **_color_if(clear)},
        "transform": [{"filter": f"isValid(datum['{low}'])"}],
    }


def _interval_title(part: Part, x: str) -> dict[str, str]:
    return {"title": f"{part.column(x).title} (95% interval)"}


def _color_if(clear: str) -> dict[str, Any]:
    """The color of marks, gray unless their field `clear` is set; the theme's own without a field."""
    return {"color": if_set(clear, MARK, GREY)} if clear else {}


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

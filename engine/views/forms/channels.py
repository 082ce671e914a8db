"""What all forms of charts are made of: the picture of a part, its channels, and its tooltip."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from engine.views.pictures import WRITTEN, Picture
from engine.views.view import Column, Part

AXIS_PX = 85  # an x axis with its title, which Streamlit counts as part of the height
LEGEND_PX = 50  # under a chart that has no room for it at the side
ROW_PX = 24  # a row of bars, or a title above rows
# the title of rows: above them, as few rows would cut an upright one
ABOVE = {"titleAngle": 0, "titleAnchor": "end", "titleAlign": "right", "titleBaseline": "bottom"}
ABOVE |= {"titleX": -15, "titleY": -6}


def picture(
    part: Part,
    layers: Sequence[Mapping[str, Any]],
    encoding: Mapping[str, Any],
    kwargs: Mapping[str, Any],
    datasets: Mapping[str, list[dict[str, Any]]] | None = None,
) -> Picture:
    """The picture of a part: `layers` with one `encoding`. `kwargs`: other fields of the chart, such as its height.
    `datasets`: further rows by name."""
    template = {"data": {"name": "rows"}, "layer": list(layers), "encoding": encoding, **kwargs, "config": WRITTEN}
    return Picture(template, {"rows": [{name: json_value(each) for name, each in row.items()} for row in part.rows],
                              **(datasets or {})})  # fmt: skip


def json_value(value: Any) -> Any:
    """The value as JSON has it: None for a number that is undefined."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def number_channel(part: Part, field: str, scale: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The channel of a number."""
    column = part.column(field)
    shape = {"title": column.title, "axis": axis_format(column), "scale": scale or {}}
    return {"field": field, "type": "quantitative", **shape}


def ordinal_channel(part: Part, field: str) -> dict[str, Any]:
    """The channel of numbers in their order, or of names as they come."""
    order = {"sort": None} if any(isinstance(row[field], str) for row in part.rows) else {}
    return {"field": field, "type": "ordinal", "title": part.column(field).title} | order


def axis_format(column: Column) -> dict[str, Any]:
    """The format of an axis: shares in percent, and large counts as in "1.2M"."""
    if column.format.endswith("%"):
        return {"format": "~%"}
    return {"format": "~s"} if column.format == ",d" else {}


def if_set(field: str, value: Any, otherwise: Any) -> dict[str, Any]:
    """A channel that is `value` where the row's `field` is set."""
    return {"condition": {"test": f"datum['{field}']", "value": value}, "value": otherwise}


def tips(part: Part) -> list[dict[str, Any]]:
    """The tooltip: every column of the table."""
    return [tip(part, name) for name in part.shown]


def tip(part: Part, name: str) -> dict[str, Any]:
    """The line of the tooltip with this field."""
    column = part.column(name)
    is_number = any(isinstance(row.get(name), int | float) or hasattr(row.get(name), "item") for row in part.rows)
    form = {"format": column.format} if column.format and is_number else {}
    return {"field": name, "type": "quantitative" if is_number else "nominal", "title": column.title} | form

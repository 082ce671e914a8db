"""Common elements of the screens' charts: takes a DataFrame, returns a `Picture`, without streamlit, on fixed scales: a
slider moves only the data.
"""

import json
from collections.abc import Collection
from functools import lru_cache
from typing import Any

import altair as alt
import pandas as pd

from engine.views.colors import DARK, GREY, LAYERS, LIGHT
from engine.views.kit import AXIS_PX as AXIS_PX
from engine.views.kit import CROSS
from engine.views.pictures import WRITTEN, Picture, Template

CELL: dict[str, Any] = {"stroke": GREY, "strokeOpacity": 0.45, "strokeWidth": 0.5}
# text marks are black in either theme; the last of the palette's eight colors is the theme's own text color, nearly
INK = alt.Fill("ink:N", legend=None, scale=alt.Scale(domain=[*"1234567", "ink"]))
# numbers of any size, such as "0.042" and "3,880": d3's "s" would write a half as "500m", its "g" thousands as "3.9e+3"
MAGNITUDE, ROUGHLY = ",.3~r", ",.2~r"
MOST_NAMED = 12  # layers in a legend
kept = lru_cache(64)  # around functions that make a template: keeps the last 64 of each


def tips(*each: str) -> list[alt.Tooltip]:
    """Returns the lines of a tooltip: "field|title" or "field|title|format", or several in one text joined by "; "."""
    parts = [f"{line}|".split("|")[:3] for line in "; ".join(each).split("; ")]
    return [alt.Tooltip(field, title=title, format=form or alt.Undefined) for field, title, form in parts]


def head_grid(*tooltip: str) -> alt.Chart:
    """Returns layers x heads of the frame `heads`, without marks; a tooltip (as for `tips`) begins with the name."""
    axis = alt.Axis(labelAngle=0, labelOverlap=True, ticks=False, domain=False)
    x = alt.X("head:O", title="Head", axis=axis)
    return named_chart("heads").encode(x=x, y=layer_rows(), tooltip=tips("name:N|Head", *tooltip))


def written(base: alt.Chart, size_px: int, **mark: Any) -> alt.Chart:
    """Returns text in the theme's own color; give it `text`."""
    return inked(base.mark_text(fontSize=size_px, **mark))


def haloed(text: alt.Chart) -> list[alt.Chart]:
    """Returns text with an edge of the background's color behind it, readable on lines in both themes."""
    ground = alt.value(alt.ExprRef("background"))
    return [text.encode(fill=ground, stroke=ground, strokeWidth=alt.value(4)), text]


def on_cells(base: alt.Chart, size_px: int, value: str, text: Any, **mark: Any) -> list[alt.Chart]:
    """Returns numbers on cells that are filled by `value`: black or white, whichever is easier to read there (a
    contrast of at least 4.5), and in the theme's own text color if a cell has no value."""
    shade = f"scale('color', datum['{value}'])"
    ink = alt.value(alt.ExprRef(f"contrast({shade}, 'black') < contrast({shade}, 'white') ? 'white' : 'black'"))
    known = f"isValid(datum['{value}'])"
    filled = base.transform_filter(known).mark_text(fontSize=size_px, **mark).encode(fill=ink, text=text)
    return [filled, written(base.transform_filter(f"!{known}"), size_px, **mark).encode(text=text)]


def inked(base: alt.Chart) -> alt.Chart:
    """Returns the chart in the theme's own text color, for marks of text."""
    return base.transform_calculate(ink="'ink'").encode(fill=INK)


def named_chart(data: str) -> alt.Chart:
    """Returns a chart of the frame that `with_data` adds under this name."""
    return alt.Chart(alt.NamedData(data))


def with_data(chart: alt.TopLevelMixin, **frames: pd.DataFrame) -> Picture:
    """Returns the chart with its frames by name."""
    return picture(_without_config(chart), **frames)


def template(height: float, *layers: alt.Chart, **look: Any) -> Template:
    """Returns the Vega-Lite of the layers; to be made once: serializing takes a hundred times as long as the rest."""
    return _without_config(alt.layer(*layers).properties(height=height, **look))


def picture(of: Template, **frames: pd.DataFrame) -> Picture:
    """Returns the template with these frames by name.

    Constant names let the browser put new numbers into the picture on screen. Altair's own names are
    digests of the content: each change would redraw the chart, and in quick succession lose track of its data.
    """
    rows = {name: frame.to_json(orient="records", double_precision=15) for name, frame in frames.items()}
    return Picture(of, {name: json.loads(text) for name, text in rows.items()})


def around_zero(reach: float, **more: Any) -> alt.Scale:
    """Returns colors from -reach to reach through gray: Vega would go from blue to orange through green."""
    return alt.Scale(domain=[-reach, reach], domainMid=0, interpolate="rgb", **more)


def by_layer(n_layers: int, layers: Collection[int] | None = None, **legend: Any) -> alt.Color:
    """Returns the color of a head or FFN by its `layer`, the same on every screen. The legend names the `layers` that
    are drawn (None: all), or six of all if the model has more than `MOST_NAMED`."""
    last, drawn = max(1, n_layers - 1), set(range(n_layers) if layers is None else layers)
    named = sorted(drawn if n_layers <= MOST_NAMED else drawn & {round(last * at / 5) for at in range(6)})
    scale = alt.Scale(domain=[0, last], range=list(LAYERS), interpolate="lab")
    look: dict[str, Any] = {"type": "symbol", "values": named, "format": "d", "symbolOpacity": 1, **legend}
    return alt.Color("layer:Q", title="Layer", scale=scale, legend=alt.Legend(**look) if named else None)


def crosses(base: alt.Chart, row_px: int) -> list[alt.Chart]:
    """Returns dark crosses with a light edge on pruned components, visible on any cell and in both themes."""
    size = (0.5 * row_px) ** 2
    pruned = base.transform_filter("datum.pruned")
    return [
        pruned.mark_point(shape=CROSS, size=size, stroke=LIGHT, strokeWidth=4, opacity=0.9),
        pruned.mark_point(shape=CROSS, size=size, stroke=DARK, strokeWidth=1.8, opacity=1),
    ]


def layer_rows() -> alt.Y:
    """Returns the axis of layers from top to bottom, 0 on top."""
    return alt.Y("layer:O", title="Layer", axis=alt.Axis(labelOverlap=True, ticks=False, domain=False))


def row_height(n_layers: int) -> int:
    """Returns the pixels of a layer's row in a map."""
    return max(9, min(30, 420 // n_layers))


def _without_config(chart: alt.TopLevelMixin) -> Template:
    found = chart.to_dict(validate=False)  # which takes three times as long as the rest; the tests validate
    if "datasets" in found:
        raise ValueError("rows are in the chart itself, where those of the picture would replace them: name them")
    return {**found, "config": WRITTEN}

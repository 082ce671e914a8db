"""Common elements of the screens' charts: takes a DataFrame, returns a `Picture`, without streamlit, on fixed scales: a
slider moves only the data.
"""

import json
from functools import lru_cache
from typing import Any

import altair as alt
import pandas as pd

from engine.views.forms.channels import AXIS_PX as AXIS_PX
from engine.views.pictures import WRITTEN, Picture, Template

# text marks are black in either theme; the last of the palette's eight colors is the theme's own text color, nearly
INK = alt.Fill("ink:N", legend=None, scale=alt.Scale(domain=[*"1234567", "ink"]))
kept = lru_cache(64)  # around functions that make a template: keeps the last 64 of each


def tips(*each: str) -> list[alt.Tooltip]:
    """Returns the lines of a tooltip: "field|title" or "field|title|format", or several in one text joined by "; "."""
    parts = [f"{line}|".split("|")[:3] for line in "; ".join(each).split("; ")]
    return [alt.Tooltip(field, title=title, format=form or alt.Undefined) for field, title, form in parts]


def written(base: alt.Chart, size_px: int, **mark: Any) -> alt.Chart:
    """Returns text in the theme's own color; give it `text`."""
    return inked(base.mark_text(fontSize=size_px, **mark))


def inked(base: alt.Chart) -> alt.Chart:
    """Returns the chart in the theme's own text color, for marks of text."""
    return base.transform_calculate(ink="'ink'").encode(fill=INK)


def named_chart(data: str) -> alt.Chart:
    """Returns a chart of the frame that `picture` adds under this name."""
    return alt.Chart(alt.NamedData(data))


def template(height: float, *layers: alt.Chart, **kwargs: Any) -> Template:
    """Returns the Vega-Lite of the layers; to be made once: serializing takes a hundred times as long as the rest."""
    return _without_config(alt.layer(*layers).properties(height=height, **kwargs))


def picture(of: Template, **frames: pd.DataFrame) -> Picture:
    """Returns the template with these frames by name.

    Constant names let the browser put new numbers into the picture on screen. Altair's own names are
    digests of the content: each change would redraw the chart, and in quick succession lose track of its data.
    """
    rows = {name: frame.to_json(orient="records", double_precision=15) for name, frame in frames.items()}
    return Picture(of, {name: json.loads(text) for name, text in rows.items()})


def row_height(n_layers: int) -> int:
    """Returns the pixels of a layer's row in a map."""
    return max(9, min(30, 420 // n_layers))


def _without_config(chart: alt.TopLevelMixin) -> Template:
    found = chart.to_dict(validate=False)  # which takes three times as long as the rest; the tests validate
    if "datasets" in found:
        raise ValueError("rows are in the chart itself, where those of the picture would replace them: name them")
    return {**found, "config": WRITTEN}

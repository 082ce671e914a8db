"""Charts as data: a Vega-Lite template and the rows that it draws, on screen, in a file, and in a notebook.

On screen Streamlit's theme supplies the colors; a saved file gets those of the light theme.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from textwrap import wrap
from typing import Any

from engine.views.colors import QUIET, light_theme

FILE_WIDTH_PX, CAPTION_LETTERS = 900, 130  # letters of a caption that fit into the width
SLIDE_WIDTHS_PX = {1: FILE_WIDTH_PX, 2: 450, 4: 640}  # by the number of charts: one, two side by side, and a square
LABELS = {"labelFontSize": 13, "titleFontSize": 13, "labelLimit": 300}
SLIDE_TYPE = {"axis": LABELS, "legend": LABELS, "header": LABELS, "text": {"fontSize": 13}, "title": {"fontSize": 14}}
FILE_FONT = "Liberation Sans, Arial, Helvetica, sans-serif"  # the first comes with vl-convert: the same on any machine
# percentages as everywhere else in the app, "41.2%"; the rest is Vega's own
SIGNS = {"decimal": ".", "thousands": ",", "grouping": [3], "currency": ["$", ""], "percent": "%"}
WRITTEN = {"locale": {"number": SIGNS}}
Template = Mapping[str, Any]


@dataclass(frozen=True)
class Picture:
    """A chart in Vega-Lite: `template`, shared by pictures that differ only in their data, and the rows of `datasets`
    by name."""

    template: Template
    datasets: Mapping[str, list[dict[str, Any]]]

    @property
    def spec(self) -> dict[str, Any]:
        """Returns both in one."""
        return {**self.template, "datasets": self.datasets}


def rasterized(drawing: bytes) -> bytes:
    """Returns an SVG drawing as a PNG picture at twice its size."""
    import vl_convert

    return vl_convert.svg_to_png(drawing.decode(), scale=2)


def to_svg(drawn: Picture, title: str, caption: str = "") -> bytes:
    """Returns the picture as an SVG drawing."""
    import vl_convert

    return vl_convert.vegalite_to_svg(file_spec(drawn, title, caption)).encode()


def slide_specs(drawn: Mapping[str, Picture]) -> list[str]:
    """Returns the Vega-Lite of the pictures of a slide, as JSON: with larger type, and with titles if there are
    several."""
    width = SLIDE_WIDTHS_PX.get(len(drawn), SLIDE_WIDTHS_PX[4])
    found = []
    for name, picture in drawn.items():
        spec = file_spec(picture, name if len(drawn) > 1 else "")
        config = {**spec["config"], **{of: {**spec["config"].get(of, {}), **each} for of, each in SLIDE_TYPE.items()}}
        found.append(json.dumps({**spec, "width": picture.template.get("width", width), "config": config}))
    return found


def file_spec(drawn: Picture, title: str, caption: str = "") -> dict[str, Any]:
    """Returns the Vega-Lite of the picture in a file: with its colors, its title, and below it the caption in lines."""
    words = {"text": title, "subtitle": wrap(caption, CAPTION_LETTERS), "anchor": "start"}
    return {
        **drawn.spec,
        "width": drawn.template.get("width", FILE_WIDTH_PX),
        "title": words,
        "config": {**WRITTEN, **_file_config()},
    }


@cache
def _file_config() -> dict[str, Any]:
    """Returns Vega's config for a saved picture: the light theme's colors."""
    theme = light_theme()
    categories, ramp = theme["chartCategoricalColors"], theme["chartSequentialColors"]
    diverging, text = theme["chartDivergingColors"], theme["textColor"]
    return {
        "background": theme["backgroundColor"],
        "font": FILE_FONT,
        "range": {"category": categories, "ramp": ramp, "heatmap": ramp, "diverging": diverging},
        "mark": {"color": categories[0]},
        "axis": {"gridColor": theme["borderColor"], "labelColor": text, "titleColor": text},
        "view": {"stroke": None},
        "title": {"color": text, "subtitleColor": QUIET, "subtitleFontSize": 12, "subtitlePadding": 5, "offset": 14},
    }

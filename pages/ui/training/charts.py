"""The charts of the Training screen: those of its view, with a marker that moves in the browser.

The marker listens to a field of the page (`MOMENT`), which the slider writes while it moves: no run of the page is
needed. What comes after it is faint.
"""

from collections.abc import Sequence
from typing import Any

import streamlit as st

from engine.views.colors import GREY
from engine.views.pictures import Picture
from engine.views.view import Part
from pages.ui.figures.drawing import draw_chart
from pages.ui.figures.sheet import Sheet
from pages.ui.page.tables import plain

MOMENT = "training-moment"  # the id of a field in the page with the tokens at the slider's position
LATER = 0.2  # opacity of what comes after the marker


def draw_parts(parts: Sequence[Part], names: Sequence[str], sheet: Sheet) -> None:
    """Draws the parts, those of the runs of these names side by side, and adds them to the sheet."""
    for first in range(0, len(parts), len(names)):
        line = parts[first : first + len(names)]
        st.markdown(line[0].caption)
        for part, name, at in zip(line, names, st.columns(len(names), gap="medium"), strict=True):
            picture = sheet.add_part(part)
            assert picture is not None
            with at:
                if not first:
                    st.markdown(f"**{plain(name)}**")
                draw_chart(with_marker(picture), f"training {part.title}", f"{part.title}. {part.caption}")


def with_marker(picture: Picture) -> Picture:
    """Returns the picture with a line at the slider's moment, and its own lines faint after it."""
    layers = list[dict[str, Any]]()
    for each in picture.template["layer"]:
        if each["mark"]["type"] == "line":
            layers.append({**each, "encoding": {**each["encoding"], "opacity": {"value": LATER}}})
            past = {"filter": "datum.tokens <= toNumber(moment)"}
            each = {**each, "transform": [past, *each["transform"]]}
        layers.append(each)
    moment = {"calculate": "toNumber(moment)", "as": "tokens"}
    rule = {"type": "rule", "strokeWidth": 1.5, "color": GREY, "aria": False}
    layers.append({"data": {"values": [{}]}, "transform": [moment], "mark": rule, "encoding": {}})
    param = {"name": "moment", "value": "0", "bind": {"element": f"#{MOMENT}"}}
    return Picture({**picture.template, "layer": layers, "params": [param]}, picture.datasets)

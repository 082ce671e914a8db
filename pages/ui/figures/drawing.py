"""Pictures and tables on screen."""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import streamlit as st

from engine.views.pictures import Picture
from pages.ui.page.marks import mark
from pages.ui.page.presentation import presenting
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.tables import written

LARGER, TALLEST_PX = 1.4, 340  # on a slide: the page's type size, and the most a picture is stretched to
SMALLEST_PX, NOTE_PX = 18, 12  # notes on an axis, and sizes that are expressions, stay as they are
LABELS_PX = 54  # the least width of labels left of a chart, so that charts one above the other share an axis
LABELS = {"labelFontSize": SMALLEST_PX, "titleFontSize": 20}
TYPE = {"text": {"fontSize": SMALLEST_PX}, "axis": LABELS, "legend": LABELS, "header": LABELS}  # if no other is set


def draw_chart(picture: Picture, key: str, words: str, at: DeltaGenerator | None = None, **selection: Any) -> None:
    """Draws a picture here or at `at`; `words` describe it to screen readers. `selection`: Streamlit's handling of
    clicks (on_select, selection_mode)."""
    where = st if at is None else at
    spec = {**larger(picture.template), "datasets": picture.datasets} if presenting() else picture.spec
    where.vega_lite_chart(spec, key=key, alt=words.replace("**", ""), **selection)
    mark("chart", "drawn", at, key=key)  # Streamlit makes a class of the key only if clicks select


def draw_table(
    frame: pd.DataFrame,
    titles: Mapping[str, Any],
    words: str,
    at: DeltaGenerator | None = None,
    formats: Mapping[str, Callable[..., str]] | None = None,
    **look: Any,
) -> None:
    """Draws the columns of a frame that `titles` has a title for, or a column of Streamlit's, written by `formats`;
    `words` say to screen readers what it is. `look`: what else Streamlit is told."""
    shown = frame[list(titles)]
    shown = written(shown, **formats) if formats else shown
    (st if at is None else at).dataframe(shown, column_config=dict(titles), hide_index=True, alt=words, **look)


def change_look(change: float, is_clear: bool) -> dict[str, Any]:
    """Returns how a metric draws a change: a clear loss is orange and a clear gain blue, as on every screen."""
    colour, arrow = (("orange", "down") if change < 0 else ("blue", "up")) if is_clear else ("off", "off")
    return {"delta_color": colour, "delta_arrow": arrow}


def larger(template: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the template for a slide: marks of text are enlarged like the page's type."""
    found = _larger(template)
    for side in ("height", "width"):
        if isinstance(size_px := template.get(side), int | float):
            found[side] = min(LARGER * size_px, max(TALLEST_PX, size_px))
    return found | {"config": {**template.get("config", {}), **TYPE}}


def _larger(value: Any) -> Any:
    if isinstance(value, Mapping):
        if isinstance(legend := value.get("legend"), Mapping):  # all legends of slides have type of the same size
            value = {**value, "legend": {name: each for name, each in legend.items() if name not in LABELS}}
        if isinstance(extent_px := value.get("minExtent"), int | float):
            value = {**value, "minExtent": max(LABELS_PX, extent_px)}
        return {name: _type(each) if _is_size(name, each) else _larger(each) for name, each in value.items()}
    return [_larger(each) for each in value] if isinstance(value, list) else value


def _is_size(name: str, value: Any) -> bool:
    return name == "fontSize" or (name == "labelFontSize" and not isinstance(value, Mapping) and value > NOTE_PX)


def _type(size_px: float) -> float:
    return max(SMALLEST_PX, LARGER * size_px)

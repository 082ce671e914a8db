"""Pictures and tables on screen."""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import streamlit as st

from engine.views.pictures import Picture
from pages.ui.page.marks import mark
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.tables import written


def draw_chart(picture: Picture, key: str, words: str, at: DeltaGenerator | None = None, **selection: Any) -> None:
    """Draws a picture here or at `at`; `words` describe it to screen readers. `selection`: Streamlit's handling of
    clicks (on_select, selection_mode)."""
    where = st if at is None else at
    where.vega_lite_chart(picture.spec, key=key, alt=words.replace("**", ""), **selection)
    mark("chart", "drawn", at, key=key)  # Streamlit makes a class of the key only if clicks select


def draw_table(
    frame: pd.DataFrame,
    titles: Mapping[str, Any],
    words: str,
    at: DeltaGenerator | None = None,
    formats: Mapping[str, Callable[..., str]] | None = None,
    **kwargs: Any,
) -> None:
    """Draws the columns of a frame that `titles` has a title for, or a column of Streamlit's, written by `formats`;
    `words` say to screen readers what it is. `kwargs`: what else Streamlit is told."""
    shown = frame[list(titles)]
    shown = written(shown, **formats) if formats else shown
    (st if at is None else at).dataframe(shown, column_config=dict(titles), hide_index=True, alt=words, **kwargs)


def change_style(change: float, is_clear: bool) -> dict[str, Any]:
    """Returns how a metric draws a change: a clear loss is orange and a clear gain blue, as on every screen."""
    color, arrow = (("orange", "down") if change < 0 else ("blue", "up")) if is_clear else ("off", "off")
    return {"delta_color": color, "delta_arrow": arrow}

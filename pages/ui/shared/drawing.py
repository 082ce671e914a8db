"""Pictures on screen."""

from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages.ui.shared.charts import Picture
from pages.ui.shared.colours import GREY_INK


def draw_chart(picture: Picture, key: str, words: str, at: DeltaGenerator | None = None, **selection: Any) -> None:
    """Draws a picture here or `at` a place; `words` say the same to screen readers. `selection`: what Streamlit is to
    do with clicks (on_select, selection_mode)."""
    where = st if at is None else at
    where.vega_lite_chart(picture.spec, key=key, alt=words.replace("**", ""), **selection)


def grey_ink() -> str:
    """The colour of words that count for nothing, to be read in the theme of the browser."""
    return GREY_INK[st.context.theme.type or "light"]

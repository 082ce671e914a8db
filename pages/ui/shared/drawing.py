"""Pictures on screen."""

from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages.ui.shared.charts import Picture


def draw_chart(picture: Picture, key: str, words: str, at: DeltaGenerator | None = None, **selection: Any) -> None:
    """Draws a picture here or `at` a place; `words` say the same to screen readers. `selection`: what Streamlit is to
    do with clicks (on_select, selection_mode)."""
    where = st if at is None else at
    where.vega_lite_chart(picture.spec, key=key, alt=words.replace("**", ""), **selection)

"""One score of the Induction screen in detail: its heads by depth and by size."""

import pandas as pd
import streamlit as st

from engine.heads.induction import SCORES
from pages.ui.controls.controls import one_of
from pages.ui.figures.sheet import Sheet
from pages.ui.induction import charts
from pages.ui.induction.selection import chart_with_heads
from pages.ui.induction.tables import in_words


def draw_closely(frame: pd.DataFrame, sheet: Sheet) -> None:
    """Draws the section."""
    named = {each: charts.TITLES[each] for each in SCORES}
    help, first = "For the two charts below and for the share left after pruning.", "prefix_matching"
    score = one_of(st.container(), "Score in detail", named, "induction_score", help, default=first)
    depth_at, many_at = st.columns(2, gap="large")
    words = in_words(frame, score)
    with depth_at:
        st.subheader("Where they are", help="The line is the mean of each layer.")
        chart_with_heads("depth", "By depth", charts.depth_strip(frame, score), words, sheet)
    with many_at:
        st.subheader("How many there are", help="Heads by score.")
        sheet.draw("Distribution", charts.distribution(frame, score), "induction_distribution", words)

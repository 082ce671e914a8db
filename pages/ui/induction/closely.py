"""One score of the Induction screen in detail: its heads by depth and by size."""

import pandas as pd
import streamlit as st

from engine.heads.induction import SCORES
from pages.ui.controls.controls import one_of
from pages.ui.figures.charts import Picture
from pages.ui.figures.drawing import draw_chart
from pages.ui.induction import charts
from pages.ui.induction.selection import chart_with_heads
from pages.ui.induction.tables import in_words


def draw_closely(frame: pd.DataFrame) -> dict[str, Picture]:
    """Draws the section; returns its charts for the downloads."""
    named = {each: charts.TITLES[each] for each in SCORES}
    help, first = "For the two charts below and for the share left after pruning.", "prefix_matching"
    score = one_of(st.container(), "One score, closely", named, "induction_score", help, default=first)
    depth_at, many_at = st.columns(2, gap="large")
    pictures = {"By depth": charts.depth_strip(frame, score), "Distribution": charts.distribution(frame, score)}
    with depth_at:
        st.subheader("Where they are", help="The line is the mean of each layer.")
        chart_with_heads("depth", pictures["By depth"], in_words(frame, score))
    with many_at:
        st.subheader("How many there are", help="Heads by score.")
        draw_chart(pictures["Distribution"], "induction_distribution", in_words(frame, score))
    return pictures

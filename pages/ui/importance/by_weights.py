"""The screen before any task is measured: the size of each head's weights, which takes no questions."""

from functools import partial
from typing import Any

import streamlit as st

from engine.importance.importance import Scores, weight_scores
from engine.measurement import Measurement
from engine.models.session import Target
from pages.ui.controls.heads import MOST, open_heads
from pages.ui.figures.drawing import draw_table
from pages.ui.figures.sheet import Sheet
from pages.ui.importance import charts, tables
from pages.ui.page.defaults import IN_SHORT
from pages.ui.page.runtime import budget_s
from pages.ui.page.tables import for_file, magnitude
from pages.ui.page.work import Work

NAME, SCORE = "Weight magnitude", "heads-weight"
HELP = (
    "The norm of each head's value and output matrices multiplied. It says how much a head can write, not whether a "
    "task needs it: measure importance to see that."
)


def weights(target: Target) -> Measurement[Scores]:
    """Returns the measurement that the section shows."""
    return weight_scores(target, SCORE)


def draw(target: Target, sheet: Sheet) -> list[str]:
    """Draws the map of weight magnitude and the largest heads; returns the finding. Nothing before the weights are
    read."""
    scores = _scores(target)
    if scores is None:
        return []
    rows = tables.weight_rows(scores)
    words = tables.weights_in_words(rows)
    sheet.tables[NAME] = for_file(rows)
    st.subheader(f"{NAME} :small[provisional; heads {IN_SHORT['heads']}]", help=HELP)
    map_at, top_at = st.columns([7, 5], gap="large")
    sheet.draw(NAME, charts.weight_map(rows, NAME), "importance_weight_map", words, map_at)
    titles: dict[str, Any] = {"rank": "Rank", "name": "Head", "score": NAME}
    best = rows.sort_values("rank").head(tables.SHOWN)
    draw_table(best, titles, words, top_at, {"score": partial(magnitude, digits=2)}, height="content")
    open_heads(best["name"].tolist()[:MOST], top_at)
    return [words]


def _scores(target: Target) -> Scores | None:
    """Returns the stored scores; reads the weights if background work is allowed, and draws the progress."""
    work = Work("importance weights", "Reading the weights", weights(target), 1, while_seen=True)
    stored = work.stored()
    if stored or not budget_s():
        return stored[-1] if stored else None
    return work.awaited()

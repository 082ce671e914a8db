"""The example question next to the map: one that pruning loses, and the line of the prompt that decides it."""

import numpy as np
import streamlit as st

from engine.views.questions import example_words
from pages.ui.prune.experiment import AnswersSoFar, Experiment


def draw_example(x: Experiment, measured: AnswersSoFar) -> None:
    """Draws the first question that pruning loses, or the first one."""
    full, pruned = measured.full, measured.pruned
    lost: list[int] = []
    if full is not None and pruned is not None:
        n = min(len(full), len(pruned))
        lost = np.flatnonzero(full.correct[:n] & ~pruned.correct[:n]).tolist()
    place = lost[0] if lost else 0
    [question] = x.questions.at(x.questions.order[place : place + 1])
    st.markdown(example_words(x.task, place, question, bool(lost), full, pruned))

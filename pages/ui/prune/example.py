"""The example question next to the map: one that pruning loses, the line of the prompt that decides it, and a link to
the Text screen, which shows it word by word."""

import numpy as np
import streamlit as st

from engine.views.questions import example_words, prompt_of
from pages.ui.controls.texts import open_text
from pages.ui.prune.experiment import AnswersSoFar, Experiment

HELP = "Opens the Text screen at this question and its answer: what the pruned model loses, word by word."


@st.fragment  # a click runs it alone
def draw_example(x: Experiment, measured: AnswersSoFar) -> None:
    """Draws the first question that pruning loses, or the first one, and the link to the Text screen."""
    full, pruned = measured.full, measured.pruned
    lost: list[int] = []
    if full is not None and pruned is not None:
        n = min(len(full), len(pruned))
        lost = np.flatnonzero(full.correct[:n] & ~pruned.correct[:n]).tolist()
    place = lost[0] if lost else 0
    [question] = x.questions.at(x.questions.order[place : place + 1])
    st.markdown(example_words(x.task, place, question, bool(lost), full, pruned))
    if st.button("Read it in Text", icon=":material/notes:", type="tertiary", key="example", help=HELP):
        answer = question.continuations[question.golds[0]].rstrip()
        open_text(f"A question of {x.task.title}", prompt_of(question) + answer)

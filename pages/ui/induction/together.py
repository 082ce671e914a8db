"""The joint effect of the strongest induction heads on a task: its accuracy without sets of them, next to random
sets."""

import time

import pandas as pd
import streamlit as st

from engine.accuracy.evaluation import Answers, accuracy
from engine.composed import deferred
from engine.importance.head_sets import HeadSet, n_sets, set_answers
from engine.measurement import Measurement
from engine.models.session import Target
from engine.questions.requests import TaskSpec
from engine.statistics import paired
from pages.ui.controls.sidebar import Setup
from pages.ui.figures import head_sets
from pages.ui.figures.charts import Picture
from pages.ui.figures.drawing import draw_chart
from pages.ui.induction.effects import N_QUESTIONS, questions_of
from pages.ui.page.tables import whole_percent
from pages.ui.page.work import Work, live

ABOUT = "Accuracy on the same questions without 1, 2, 4, … of them at once, in the background; finished work is kept."


def rows_of(target: Target, answers: dict[HeadSet, Answers]) -> pd.DataFrame:
    """Returns one row per set: heads, accuracy without them, change against the full model, gained, lost, p."""
    full, values = answers.get(HeadSet()), {}
    for each, found in answers.items():
        change = paired((full or found).correct, found.correct)
        values[each] = {"acc": accuracy(found).acc, "change": (change.gained - change.lost) / change.n}
        values[each] |= {"gained": change.gained, "lost": change.lost, "p": change.p_mcnemar}
    return head_sets.rows(target.shape, values)


def answers_without(setup: Setup, target: Target, task: TaskSpec) -> Measurement[dict[HeadSet, Answers]]:
    """Returns the measurement of the answers without each set so far, to the questions asked without single heads."""
    about = ("without sets", task, setup.data_dir)
    return deferred(target, about, lambda session: set_answers(target, questions_of(setup, task, session)))


def draw(setup: Setup, target: Target, task: TaskSpec) -> tuple[dict[str, Picture], dict[str, pd.DataFrame]]:
    """Draws the section; returns its chart and table for the downloads."""
    since_s = time.monotonic()
    st.subheader("What the best of them do together", help=f"{head_sets.HELP} {N_QUESTIONS} questions.")
    work = Work("effects together", "Heads together", answers_without(setup, target, task), priority=2)
    answers = max(work.stored(), key=len, default={})
    if len(answers) < n_sets(target.shape) and not work.under_way:
        work.offer("Ablate the strongest together, and others at random", "science", ABOUT)
    pictures: dict[str, Picture] = {}
    tables: dict[str, pd.DataFrame] = {}

    def draw_so_far() -> None:
        work.line()
        known = max((answers, work.found or {}), key=len)
        if len(known) < 2:
            return
        tables["Heads together"] = rows_of(target, known)
        shown = head_sets.by_size(tables["Heads together"], "acc")
        st.markdown(words := head_sets.in_words(shown, whole_percent))
        pictures["Heads together"] = head_sets.chart(shown, "Questions right", "%", (0, 1))
        draw_chart(pictures["Heads together"], "effects_together", words)

    live(work.watched(), draw_so_far, since_s)
    return pictures, tables

"""The joint effect of the strongest induction heads on a task: its accuracy without sets of them, next to random
sets."""

import time

import pandas as pd
import streamlit as st

from engine.accuracy.evaluation import Answers, accuracy
from engine.composed import deferred
from engine.measurement import Measurement
from engine.models.session import Session, Target
from engine.questions.requests import TaskSpec, get_requests, select
from engine.statistics import paired
from engine.studies.removal import HeadSet, set_answers
from pages.ui.controls.study import Setup
from pages.ui.figures import head_sets
from pages.ui.figures.sheet import Sheet
from pages.ui.induction.ablation import N_QUESTIONS
from pages.ui.page.defaults import SAMPLE
from pages.ui.page.tables import whole_percent
from pages.ui.page.work import Work

HELP = f"{head_sets.HELP} {N_QUESTIONS} questions."
SHOWS = "You will see the accuracy without the 1, 2, 4, … heads that match prefixes best, next to that without others."
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
    """Returns the measurement of the answers without each set so far."""
    about = ("without sets", task, setup.data_dir)

    def asked(session: Session) -> Measurement[dict[HeadSet, Answers]]:
        questions = select(get_requests(task, setup.data_dir, session.store), N_QUESTIONS, SAMPLE)
        return set_answers(target, questions)

    return deferred(target, about, asked)


def work_of(setup: Setup, target: Target, task: TaskSpec) -> Work[dict[HeadSet, Answers]]:
    """Returns the work that measures it."""
    return Work("effects together", "Heads together", answers_without(setup, target, task), priority=2)


def draw(setup: Setup, target: Target, task: TaskSpec, sheet: Sheet) -> None:
    """Draws the section."""
    since_s = time.monotonic()
    work = work_of(setup, target, task)

    def draw_known(answers: dict[HeadSet, Answers]) -> None:
        if not any(each.draw for each in answers):  # other sections may have stored a set: nothing to compare it with
            return
        sheet.tables["Heads together"] = frame = rows_of(target, answers)
        shown = head_sets.by_size(frame, "acc")
        st.caption("Accuracy without the heads that match prefixes best, and without others at random.", help=HELP)
        st.markdown(words := head_sets.in_words(shown, whole_percent))
        drawn = head_sets.chart(shown, "Questions right", "%", (0, 1))
        sheet.draw("Heads together", drawn, "effects_together", words)

    head_sets.draw_sets(target.shape, work, SHOWS, ABOUT, draw_known, since_s)

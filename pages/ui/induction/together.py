"""What the strongest induction heads do together for a task: its accuracy without sets of them, beside random sets."""

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pandas as pd
import streamlit as st

from engine.accuracy.evaluation import Answers, accuracy
from engine.importance.head_sets import HeadSet, n_sets, set_answers
from engine.models.rates import seconds_for
from engine.models.subject import Lab, Subject
from engine.progress import Progress
from engine.questions.amounts import all_characters
from engine.questions.requests import Questions, TaskSpec, get_requests, select
from engine.statistics import paired
from pages.ui.induction.effects import N_QUESTIONS
from pages.ui.shared import head_sets
from pages.ui.shared.charts import Picture
from pages.ui.shared.defaults import SAMPLE
from pages.ui.shared.drawing import draw_chart
from pages.ui.shared.runtime import lab
from pages.ui.shared.sidebar import Setup
from pages.ui.shared.tables import whole_percent
from pages.ui.shared.work import Work, live

ABOUT = "Accuracy on the same questions without 1, 2, 4, … of them at once, in the background; what is done is kept."


def rows_of(subject: Subject, answers: dict[HeadSet, Answers]) -> pd.DataFrame:
    """One row a set: which heads, accuracy without them, the change against the full model, gained, lost and p."""
    full, values = answers.get(HeadSet()), {}
    for each, found in answers.items():
        change = paired((full or found).correct, found.correct)
        values[each] = {"acc": accuracy(found).acc, "change": (change.gained - change.lost) / change.n}
        values[each] |= {"gained": change.gained, "lost": change.lost, "p": change.p_mcnemar}
    return head_sets.rows(subject.shape, values)


def questions_of(setup: Setup, task: TaskSpec, lab: Lab) -> Questions:
    """The questions that are asked: the same as without single heads."""
    return select(get_requests(task, setup.data_dir, lab.store), N_QUESTIONS, SAMPLE)


def measured(
    setup: Setup, subject: Subject, task: TaskSpec, lab: Lab, compute: bool = True
) -> Iterator[Progress[dict[HeadSet, Answers]]]:
    """Job: the answers without each set so far; of what is stored alone where `compute` is False."""
    yield from set_answers(lab, subject, questions_of(setup, task, lab), compute)


def takes_s(setup: Setup, subject: Subject, task: TaskSpec, n_known: int) -> float | None:
    """Seconds that what is missing takes here, None while that is not known."""
    each = all_characters(questions_of(setup, task, lab()))
    return seconds_for(lab().store, subject, "forward", each * (n_sets(subject.shape) - n_known))


def draw(setup: Setup, subject: Subject, task: TaskSpec) -> tuple[dict[str, Picture], dict[str, pd.DataFrame]]:
    """Draws the section; gives its chart and table for the downloads."""
    since_s = time.monotonic()
    st.subheader("What the best of them do together", help=f"{head_sets.HELP} {N_QUESTIONS} questions.")
    run = partial(measured, setup, subject, task, lab())
    bare = Work("effects together", f"{setup} {subject} {task}", "Heads together", run, priority=2)
    answers = max(bare.stored(), key=len, default={})
    work = replace(bare, takes=lambda: takes_s(setup, subject, task, len(answers)) if bare.is_read else None)
    if len(answers) < n_sets(subject.shape) and not work.under_way:
        work.offer("Ablate the strongest together, and others at random", "science", ABOUT)
    pictures: dict[str, Picture] = {}
    tables: dict[str, pd.DataFrame] = {}

    def draw_so_far() -> None:
        work.line()
        known = max((answers, work.found or {}), key=len)
        if len(known) < 2:
            return
        tables["Heads together"] = rows_of(subject, known)
        shown = head_sets.by_size(tables["Heads together"], "acc")
        st.markdown(words := head_sets.in_words(shown, whole_percent))
        pictures["Heads together"] = head_sets.chart(shown, "Questions right", "%", (0, 1))
        draw_chart(pictures["Heads together"], "effects_together", words)

    live(work.watched(), draw_so_far, since_s)
    return pictures, tables

"""The section of the Sweeps screen that compares criteria of the highlighted task."""

import time

import streamlit as st

from engine.questions.requests import TaskSpec
from engine.studies.compare import ALONG
from pages.ui.comparison.criteria import CriteriaView, choose_comparing, draw_comparison
from pages.ui.controls.many_tasks import setting_of
from pages.ui.controls.sidebar import Setup, wait_for_model
from pages.ui.downloads.footer import closing
from pages.ui.downloads.origin import Origin, about, tasks_in_words
from pages.ui.figures.sheet import Sheet
from pages.ui.page.streamlit_internals import DeltaGenerator

SECTION, TITLE = "compare", "Compare criteria"


def draw_section(setup: Setup, task: TaskSpec, n_questions: int, at: DeltaGenerator) -> None:
    """Draws the section, from its controls, most of them in the row `at`, to its downloads."""
    comparing = choose_comparing("sweeps", at, st.container(), task)
    if comparing is None:
        return
    target, since_s = wait_for_model(setup, prunes=True), time.monotonic()
    of, drawn = CriteriaView("sweep compare", setting_of(setup, n_questions), target, comparing), Sheet()
    draw_comparison(of, drawn, since_s)
    questions, pruned = f"{n_questions:,} questions", f"pruned: {ALONG[comparing.axis]}"
    subject = about(target, tasks_in_words([task]), questions, pruned)
    closing(Origin("Sweeps", [of.request], {TITLE: of.measurement}, subject), drawn)

"""The sidebar, on every page, below the list of screens: work that goes on, and what the store has to say."""

import streamlit as st

from engine.progress import in_time
from pages.ui.controls.offers import under_way
from pages.ui.page.job_words import share_done
from pages.ui.page.marks import mark
from pages.ui.page.runtime import store, trainings
from pages.ui.page.tables import plain, whole_percent

TRAINING_S = 2.0  # between redraws of the progress of a run


def draw_sidebar(is_training: bool) -> None:
    """Draws the sidebar; `is_training`: whether the open screen shows the training runs itself."""
    with st.sidebar:
        with st.container():
            if not is_training and trainings().running is not None:
                _draw_training()
        if coming := under_way():
            st.caption(f"{coming} is being downloaded")
        if store().notice:
            st.warning(plain(store().notice), icon=":material/save:")
        mark("sidebar", "drawn")


@st.fragment(run_every=TRAINING_S)
def _draw_training() -> None:
    """Draws the progress of the run that is being trained, and a link to its charts."""
    job = trainings().running
    if job is not None:
        left = f", about {in_time(job.left_s)} left" if job.done and job.left_s is not None else ""
        st.progress(share_done(job), plain(f"{job.title}: {whole_percent(share_done(job))}{left}"))
        st.page_link("pages/training.py", label="Watch it learn", icon=":material/school:")

"""The sidebar, on every page, below the list of screens: work that goes on, and what the app keeps on this computer."""

import streamlit as st

from engine.memory import resident_bytes
from engine.progress import in_time
from pages.ui.controls.offers import under_way
from pages.ui.page.job_words import share_done
from pages.ui.page.marks import mark
from pages.ui.page.runtime import session, store, trainings
from pages.ui.page.tables import plain, whole_percent

HELP = (
    "Results are kept in {}; HEADROOM\\_CACHE sets another folder.\n\n{}, when this page was drawn. The rest is "
    "libraries (about half a gigabyte once a model is loaded), running jobs and caches. Memory that a long job frees "
    "is returned to the system."
)
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
        held, kept = resident_bytes(), store().counted_bytes()
        about = HELP.format(plain(str(store().directory)), memory_in_words(held))
        st.caption(f"Results {kept / 1e6:,.1f} MB · memory {held / 1e9:.1f} GB", help=about)
        mark("sidebar", "drawn")


@st.fragment(run_every=TRAINING_S)
def _draw_training() -> None:
    """Draws the progress of the run that is being trained, and a link to its charts."""
    job = trainings().running
    if job is not None:
        left = f", about {in_time(job.left_s)} left" if job.done and job.left_s is not None else ""
        st.progress(share_done(job), plain(f"{job.title}: {whole_percent(share_done(job))}{left}"))
        st.page_link("pages/training.py", label="Watch it learn", icon=":material/school:")


def memory_in_words(held: int) -> str:
    """Returns the memory that this process holds, such as "This app holds 0.8 GB: model 0.2, the rest 0.6"; of several
    models also which they are."""
    here = session().models.held
    if not here or here[0].device != "cpu":
        return f"This app holds {held / 1e9:.1f} GB"
    weights = sum(each.identity.weight_bytes(each.spec.precision) - each.placing.disk_bytes for each in here)
    model = f"{weights / 1e9:.1f}" if weights >= 0.05e9 else "under 0.1"
    models, names = ("model", "") if len(here) == 1 else ("models", ", ".join(each.spec.in_words for each in here))
    names = f" ({plain(names)})" if names else ""
    return f"This app holds {held / 1e9:.1f} GB: {models} {model}{names}, the rest {(held - weights) / 1e9:.1f}"

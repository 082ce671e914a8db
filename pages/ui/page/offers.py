"""A model of the hub that is not on this computer: looked up, and downloaded, by whoever agrees to it on a screen.

A link can bring a page here, but only a click goes on: it asks the hub how large the model is, and a second one has it
fetched. Both are done apart from the one worker, so that other models stay usable meanwhile.
"""

import time
from collections.abc import Iterator
from functools import partial

import streamlit as st

from engine.checkpoints import hub
from engine.jobs import Job, Jobs, Snapshot
from engine.models.loading import LoadSpec, aside_folder
from engine.placement.placement import refusal
from engine.progress import Progress, in_time
from pages.ui.page.runtime import show_error, store
from pages.ui.page.work import live

LOOK_HELP = "One small request to the hub, for the names and sizes of the model's files."
FETCH_HELP = "Into the hub's own cache on this computer, where other programs find it too. You can go on working."
STOP_HELP = "Stops at once. What has arrived is kept."


@st.cache_resource(show_spinner=False)
def lookups() -> Jobs:
    """Who asks the hub, for all tabs."""
    return Jobs()


@st.cache_resource(show_spinner=False)
def downloads() -> Jobs:
    """Who downloads, for all tabs: one model at a time."""
    return Jobs()


def is_here(spec: LoadSpec) -> bool:
    """Whether the model is on this computer; where not, what it takes is drawn."""
    since_s = time.monotonic()
    if not hub.is_away(spec.model):
        return True
    offer = offered(spec.model)
    if offer is None:
        live([spec.model], partial(_draw_look_up, spec.model), since_s, by=lookups())
    else:
        live([spec.model], partial(_draw_offer, spec, offer), since_s, by=downloads())
    return False


def offered(model: str) -> hub.Offer | None:
    """What the hub has said of a model; None where it was not asked."""
    job = lookups().snapshot(model)
    return None if job is None or job.state != "done" else job.value


def under_way() -> str:
    """The model that is being downloaded, "" where none is."""
    job = downloads().running
    return "" if job is None else job.key


def _look_up(model: str) -> Iterator[Progress[hub.Offer]]:
    yield Progress(1, 1, hub.look_up(model))


def _ask(model: str) -> None:
    lookups().put(model, Job(model, partial(_look_up, model), title=f"Looking up {model}"), again=True)


def _fetch(offer: hub.Offer) -> None:
    model = str(offer.name)
    downloads().put(model, Job(model, partial(hub.download, offer), title=f"Downloading {model}"), again=True)


def _draw_look_up(model: str) -> None:
    job = lookups().snapshot(model)
    st.markdown(f"**{model} is not on this computer.** Nothing was asked of {hub.host()} yet.")
    if job is not None and not job.finished:
        st.caption(f"Asking {hub.host()} …")
        return
    if job is not None and job.error:
        show_error(job.error)
    asks = {"on_click": _ask, "args": (model,), "help": LOOK_HELP, "key": f"look up {model}"}
    if st.button("Look it up", icon=":material/search:", **asks):
        st.rerun()


def _draw_offer(spec: LoadSpec, offer: hub.Offer) -> None:
    job, missing = downloads().snapshot(spec.model), offer.missing_bytes
    if job is not None and not job.finished:
        _draw_progress(spec.model, job, offer.total_bytes)
        return
    total = offer.total_bytes
    there = f" ({hub.in_bytes(total - missing)} of {hub.in_bytes(total)} are here already)" if missing < total else ""
    sizes = f"{hub.in_bytes(missing)}{there}; {hub.in_bytes(offer.free_bytes)} free on the disk"
    st.markdown(f"**{spec.model} is not on this computer.** To download from {hub.host()}: {sizes}.")
    if job is not None and job.error:
        show_error(job.error)
    if why := refusal(offer, spec.precision, aside_folder(store())):
        show_error(why)
    fetches = {"on_click": _fetch, "args": (offer,), "help": FETCH_HELP, "key": f"download {spec.model}"}
    asks = {"on_click": _ask, "args": (spec.model,), "help": LOOK_HELP, "key": f"look up {spec.model}"}
    with st.container(horizontal=True):
        label = f"Download {hub.in_bytes(missing)}"
        is_clicked = st.button(label, icon=":material/download:", type="primary", disabled=bool(why), **fetches)
        if st.button("Look it up again", icon=":material/refresh:", **asks) or is_clicked:
            st.rerun()


def _draw_progress(model: str, job: Snapshot[object], total: int) -> None:
    words = f"{model}: {hub.in_bytes(job.done)} of {hub.in_bytes(total)}"
    if job.state == "queued":
        words = f"{model}: waits for the download under way"
    elif job.left_s is not None:
        words += f", about {in_time(job.left_s)} left"
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.progress(min(1.0, job.done / total) if total else 0.0, words)
        st.button("Cancel", key=f"cancel {model}", on_click=downloads().cancel, args=(model,), help=STOP_HELP)
    st.caption("Other models can be used meanwhile: choose one in the sidebar. It goes on when this page is closed.")

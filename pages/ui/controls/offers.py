"""A model that cannot be read yet: of the Hub and not on this computer, or a GGUF file that was not converted.

A link can open such a page, but only a click continues with a Hub model: it asks the Hub for the model's size, and a
second click downloads it. Both run in threads of their own, so that other models stay usable meanwhile. A GGUF file is
converted by the measuring thread, which has the libraries, and without a click unless it is large.
"""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import streamlit as st

from engine.checkpoints import hub
from engine.checkpoints.conversion import convert, converted_bytes, describe_conversion, disk_refusal, unconverted
from engine.checkpoints.gguf_header import Header
from engine.jobs import Jobs
from engine.models.loading import LoadSpec, aside_folder, stamp
from engine.placement.placement import refusal
from engine.progress import Progress, in_time
from engine.slots import Job, JobStatus
from pages.ui.page.job_words import named, share_done
from pages.ui.page.runtime import jobs, show_error, store
from pages.ui.page.tables import plain, whole_percent
from pages.ui.page.work import Action, Work, live, mark_job

LOOK_HELP = "One small request to the hub, for the names and sizes of the model's files."
FETCH_HELP = "Into the hub's own cache on this computer, where other programs find it too. You can go on working."
STOP_HELP = "Stops at once. Downloaded data is kept."
CONVERT_HELP = "Writes an ordinary model folder next to the results. The file itself is not changed."
STOP_CONVERTING_HELP = "Stops at once. Nothing is kept."
LARGE_BYTES = 2_000_000_000  # from which a GGUF file is converted only after a click


@st.cache_resource(show_spinner=False)
def lookups() -> Jobs:
    """Returns the jobs that query the Hub, for all tabs."""
    return Jobs()


@st.cache_resource(show_spinner=False)
def downloads() -> Jobs:
    """Returns the jobs that download, for all tabs: one model at a time."""
    return Jobs()


def is_here(spec: LoadSpec) -> bool:
    """Returns whether the model is on this computer and can be read; if not, draws how to get it, or its conversion."""
    since_s = time.monotonic()
    if (header := unconverted(spec.model, store())) is not None:
        work = _conversion(spec.model, header)
        if converted_bytes(header) < LARGE_BYTES and disk_refusal(header, store()) is None:
            work.start()
        live([work.slot], partial(_draw_conversion, work, header), since_s)
        return False
    if not hub.is_away(spec.model):
        return True
    offer = offered(spec.model)
    if offer is None:
        live([spec.model], partial(_draw_look_up, spec.model), since_s, by=lookups())
    else:
        live([spec.model], partial(_draw_offer, spec, offer), since_s, by=downloads())
    return False


def offered(model: str) -> hub.Offer | None:
    """Returns the Hub's answer about a model; None if it was not asked."""
    job = lookups().status(model)
    return None if job is None or job.state != "done" else job.value


def under_way() -> str:
    """Returns the model that is being downloaded, or ""."""
    job = downloads().running
    return "" if job is None else job.key


def _look_up(model: str) -> Iterator[Progress[hub.Offer]]:
    yield Progress(1, 1, hub.look_up(model))


def _start_look_up(model: str) -> None:
    lookups().put(model, Job(model, partial(_look_up, model), title=f"Looking up {model}"), again=True)


def _start_download(offer: hub.Offer) -> None:
    model = str(offer.name)
    downloads().put(model, Job(model, partial(hub.download, offer), title=f"Downloading {model}"), again=True)


def _draw_look_up(model: str) -> None:
    job = lookups().status(model)
    st.markdown(f"**{model} is not on this computer.** No connection to {hub.host()} has been made.")
    if job is not None and not job.finished:
        st.caption(f"Asking {hub.host()} …")
        return
    if job is not None and job.error:
        show_error(job.error)
    if st.button(
        "Look it up",
        icon=":material/search:",
        on_click=_start_look_up,
        args=(model,),
        help=LOOK_HELP,
        key=f"look up {model}",
    ):
        st.rerun()


def _draw_offer(spec: LoadSpec, offer: hub.Offer) -> None:
    job, missing = downloads().status(spec.model), offer.missing_bytes
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
    with st.container(horizontal=True):
        label = f"Download {hub.in_bytes(missing)}"
        is_clicked = st.button(
            label,
            icon=":material/download:",
            type="primary",
            disabled=bool(why),
            on_click=_start_download,
            args=(offer,),
            help=FETCH_HELP,
            key=f"download {spec.model}",
        )
        is_clicked |= st.button(
            "Look it up again",
            icon=":material/refresh:",
            on_click=_start_look_up,
            args=(spec.model,),
            help=LOOK_HELP,
            key=f"look up {spec.model}",
        )
        if is_clicked:
            st.rerun()


def _draw_progress(model: str, job: JobStatus[object], total: int) -> None:
    words = f"{model}: {hub.in_bytes(job.done)} of {hub.in_bytes(total)}"
    if job.state == "queued":
        words = f"{model}: waits for the download under way"
    elif job.left_s is not None:
        words += f", about {in_time(job.left_s)} left"
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.progress(min(1.0, job.done / total) if total else 0.0, words)
        st.button("Cancel", key=f"cancel {model}", on_click=downloads().cancel, args=(model,), help=STOP_HELP)
    st.caption("You can use other models meanwhile. The download continues when this page is closed.")


def _conversion(model: str, header: Header) -> Work[Path]:
    action = Action(f"convert {stamp(LoadSpec(model))}", partial(convert, header.file, store()))
    return Work(f"conversion of {model}", f"Converting {header.file.name}", action)


def _draw_conversion(work: Work[Path], header: Header) -> None:
    job, refused = work.now(), disk_refusal(header, store())
    st.markdown(f"**{plain(header.file.name)} is converted once.** {plain(describe_conversion(header, store()))}.")
    if job is not None and not job.finished:
        with st.container(horizontal=True, vertical_alignment="bottom"):
            left = "" if job.left_s is None else f", about {in_time(job.left_s)} left"
            st.progress(share_done(job), plain(f"{named(job, work.title)}: {whole_percent(share_done(job))}{left}"))
            st.button(
                "Cancel",
                key=f"cancel {work.slot}",
                on_click=jobs().cancel,
                args=(work.slot,),
                help=STOP_CONVERTING_HELP,
            )
            mark_job(work.slot, job)
        return
    if why := refused or (job.error if job is not None else None):
        show_error(why)
    label = f"Convert {hub.in_bytes(converted_bytes(header))}"
    if st.button(
        label,
        icon=":material/transform:",
        type="primary",
        on_click=work.restart,
        help=CONVERT_HELP,
        key=f"convert {work.slot}",
        disabled=bool(refused),
    ):
        st.rerun()

"""Runs in a folder that are not measured yet: the button, its job, and the record written into the folder."""

import time
from collections.abc import Iterator, Sequence
from functools import partial

import streamlit as st

from engine.measurement import with_value
from engine.models.session import Session
from engine.progress import Progress
from engine.training.folders import write
from engine.training.trajectory import Trajectory, encode
from pages.ui.page.runtime import errors_shown, session
from pages.ui.page.tables import plain
from pages.ui.page.work import Action, Work, under_way
from pages.ui.training.runs import RunSource

ABOUT = (
    "Losses, the in-context gain, all heads' scores, passages and ablations of each snapshot, in the background: the "
    "charts grow meanwhile, and finished work is kept."
)
REDRAW_S = 10.0
# seconds per snapshot and million parameters on two cores, and per snapshot: opening it, scores, passages
PER_MILLION_S, EACH_S = 6.0, 4.0


def measure(source: RunSource, session: Session) -> Iterator[Progress[Trajectory]]:
    """Job: measures the run at each of its snapshots; at the end the record is in the run's folder."""
    from engine.training.measuring import target_at, trajectory
    from engine.training.trajectory import series_of

    series = series_of(str(source.folder))
    found, _ = yield from with_value(trajectory(target_at(session, series), series).steps(session, True))
    if found is not None:
        write(source.record, encode(found))


def work_of(source: RunSource) -> Work[Trajectory]:
    """Returns the work that measures a run."""
    slot = f"trajectory {source.folder}"
    action = Action(slot, partial(measure, source, session()))
    return Work(slot, f"Measuring {source.name}", action, 2, takes=partial(takes_s, source))


def takes_s(source: RunSource) -> float | None:
    """Returns roughly the seconds that it takes, None if there is nothing to measure; a new run has no timings."""
    run = source.run
    if run is None or not (steps := run.steps()):
        return None
    size = sum(file.stat().st_size for file in run.snapshot(steps[-1]).glob("*.safetensors")) / 4e6
    return len(steps) * (EACH_S + PER_MILLION_S * size)


def so_far(source: RunSource) -> Trajectory | None:
    """Returns the results of the measurement under way."""
    return work_of(source).found if source.folder is not None else None


def draw_unmeasured(waiting: Sequence[tuple[RunSource, str]], drawn_s: float) -> None:
    """Draws for each unmeasured run (with its label) its progress, or the button that starts it; while one is measured,
    the page is redrawn now and then, so that its charts grow."""
    for source, label in waiting:
        work = work_of(source)
        with errors_shown():
            run = source.run
        n = len(run.steps()) if run is not None else 0
        if not n:
            st.caption(f"{plain(label)}: it has no snapshot yet.")
        elif not work.line():
            with st.container(horizontal=True, vertical_alignment="center"):
                st.markdown(f"**{plain(label)}** is not measured yet: {n} snapshots.", width="content")
                work.offer("Measure", "science", ABOUT, key=f"measure {source.name}")
    if under_way([work_of(source).slot for source, _ in waiting]) and time.monotonic() > drawn_s + REDRAW_S:
        st.rerun()

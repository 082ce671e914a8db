"""Running jobs on screen: progress in words, a cancel button, and a part of the page that redraws itself meanwhile."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import streamlit as st

from engine.jobs import Progress, Snapshot
from pages.ui.shared.runtime import end_run, jobs, show_error, store

POLL_S = 1.0
AT_ONCE_S = 0.3  # what is stored shows within the same run
NO_FORECAST_S = 2.0  # before that the seconds left would jump about


def live(
    slots: Sequence[str], draw: Callable[[], None], since_s: float, every_s: float = POLL_S, always: bool = False
) -> None:
    """Runs `draw` now, and again every second (or `every_s`) for as long as a job in one of `slots` is under way, or
    `always`, where `draw` itself starts one when it is time.

    When a job ends after `since_s` (`time.monotonic()` before the page read what it shows), the whole page runs once
    more, so that everything shows the result and polling stops in time.
    """
    busy = always or any(snapshot is not None and not snapshot.finished for snapshot in map(jobs().snapshot, slots))

    @st.fragment(run_every=every_s if busy else None)
    def part() -> None:
        draw()
        now = [snapshot is not None and not snapshot.finished for snapshot in map(jobs().snapshot, slots)]
        if any(now) and not busy:
            st.rerun()  # started from in here ("Go on"): only a run of the whole page starts the polling
        ends = [snapshot.finished_s for snapshot in map(jobs().snapshot, slots) if snapshot is not None]
        if any(end_s is not None and end_s > since_s for end_s in ends):
            st.rerun()

    part()


def wait_for(slot: str, what: str, retry: Callable[[], object]) -> Any:
    """The value of the slot's job; until it is there, its progress is shown in place of the rest of the page."""
    since_s = time.monotonic()
    snapshot = jobs().snapshot(slot)
    if snapshot is not None and snapshot.state == "done":
        return snapshot.value

    def draw() -> None:
        now = jobs().snapshot(slot)
        if now is not None:
            progress_line(slot, now, what, retry)

    live([slot], draw, since_s)
    end_run()


def known_or_measured(
    slot: str, key: str, run: Callable[..., Iterator[Progress]]
) -> tuple[list[Any], Callable[[], object]]:
    """(values there are so far, what starts the measuring) of a job that runs twice.

    `run(compute=False)` reads what is stored, at once, and again when the key changes or something was stored since;
    `run(compute=True)` measures the rest in the slot itself, when it is started. While it measures nothing is read: the
    measuring would have to give way each time.
    """
    reading, own, now = f"{slot}, stored", jobs().snapshot(slot), f"{key}, {store().n_puts} stored"
    read = jobs().snapshot(reading)
    measuring = own is not None and own.key == key and not own.finished
    if not (measuring and read is not None and read.key.startswith(f"{key}, ")):
        jobs().submit(reading, now, partial(run, compute=False), priority=1)
    read = jobs().join(reading, AT_ONCE_S)
    stored = [read.value] if read is not None and read.key.startswith(f"{key}, ") else []
    here = [own.value] if (own := jobs().snapshot(slot)) is not None and own.key == key else []
    values = [value for value in (*stored, *here) if value is not None]
    return values, partial(jobs().submit, slot, key, partial(run, compute=True), priority=2)


def watched(*slots: str) -> list[str]:
    """The slots of `known_or_measured` whose end changes the page.

    A read that has ended is drawn already; to draw it once more would find what was stored meanwhile, read again, and
    so on for as long as anything is measured.
    """
    reads = [f"{slot}, stored" for slot in slots]
    return [*slots, *(read for read in reads if (job := jobs().snapshot(read)) is not None and not job.finished)]


def unfinished_line(slot: str, key: str, what: str, start: Callable[..., object]) -> bool:
    """Draws `progress_line` while the slot's job of this key is not done; whether there is one."""
    job = jobs().snapshot(slot)
    unfinished = job is not None and job.key == key and job.state != "done"
    if unfinished:
        progress_line(slot, job, what, partial(start, again=True))
    return unfinished


def progress_line(slot: str, snapshot: Snapshot, what: str, retry: Callable[[], object] | None = None) -> None:
    """One line on how a job stands: progress and cancel while it runs, a retry when it ended early, else nothing."""
    if snapshot.state in ("queued", "running"):
        with st.container(horizontal=True, vertical_alignment="bottom"):
            st.progress(min(1.0, snapshot.done / snapshot.total) if snapshot.total else 0.0, in_words(snapshot, what))
            st.button(
                "Cancel",
                key=f"cancel {slot}",
                on_click=jobs().cancel,
                args=(slot,),
                help="Stops after the chunk in hand; what is finished stays stored.",
            )
        return
    if snapshot.error:
        show_error(snapshot.error)
    elif snapshot.state == "cancelled":
        st.caption(f"{what}: stopped at {snapshot.done:,} of {snapshot.total:,}. What was finished is kept.")
    if snapshot.state in ("failed", "cancelled") and retry is not None:
        st.button(
            "Go on", key=f"retry {slot}", icon=":material/play_arrow:", on_click=retry, help="Starts it once more."
        )


def in_words(snapshot: Snapshot, what: str) -> str:
    """Such as "Full model: 312 of 500, about 12 s left"."""
    if snapshot.state == "queued":
        return f"{what}: {snapshot.message or 'waiting'}"
    what = snapshot.message or what
    words = f"{what}: {snapshot.done:,} of {snapshot.total:,}" if snapshot.done else f"{what} …"
    if snapshot.done and snapshot.seconds > NO_FORECAST_S:
        words += f", about {snapshot.seconds * (snapshot.total - snapshot.done) / snapshot.done:,.0f} s left"
    return words

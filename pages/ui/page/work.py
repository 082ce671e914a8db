"""Work for the measuring thread and its display: starts it, reads its results, draws its progress and redraws."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

import streamlit as st

from engine.errors import HeadroomError
from engine.jobs import Jobs
from engine.measurement import Measurement, StoredPart, Workload
from engine.models.session import Session, Target
from engine.progress import Progress
from engine.questions.tasks import agree_to_fetch
from engine.slots import UNSEEN_S, Job, JobStatus
from engine.turns import ASKED
from pages.ui.page.job_words import LONG_S, cost_in_words, describe_job, named, share_done, stopped
from pages.ui.page.marks import mark
from pages.ui.page.reads import read_cached
from pages.ui.page.runtime import budget_s, faults_shown, jobs, notes, session, show_error, store
from pages.ui.page.tables import plain

T = TypeVar("T")
POLL_S = 1.0
LOADING_S = 4e-8  # for each parameter
AT_ONCE_S = 0.3  # stored results show within the same run
FIRST_HELP = "Pauses the running job and resumes it afterwards. Finished work is kept."
FETCH_TASKS = "fetch_tasks"  # in the session: whether its jobs may download task rows
FORECASTS = "forecasts"  # in the tab's notes, by slot: the work's key and the number of results stored; its seconds
READ_WHOLE = "read whole"  # in the tab's notes, by slot: the work's key, and its last completed read
PROMISES = "promises"  # in the tab's notes, by slot: the work's key, and its forecast when its line was first drawn
SHOWN = "work shown"  # in the session: keys of the work that its page shows, and when it was drawn last


@dataclass(frozen=True)
class Action(Generic[T]):
    """Work that is not a measurement: `start` yields its Progress, and `key` changes with its subject. What only
    `reads` does not wait for computations."""

    key: str
    start: Callable[[], Iterator[Progress[T]]]
    reads: bool = False

    @classmethod
    def of(cls, key: str, compute: Callable[[], T], message: str = "", reads: bool = False) -> "Action[T]":
        """Returns an action in one step, whose value is that of `compute`."""

        def start() -> Iterator[Progress[T]]:
            yield Progress(0, 1, message=message)
            yield Progress(1, 1, compute())

        return cls(key, start, reads)

    def run(self, session: Session) -> Iterator[Progress[T]]:
        """Yields Progress."""
        return self.start()


@dataclass(frozen=True)
class Work(Generic[T]):
    """Work for the measuring thread.

    A slot holds the work of one key at a time, and another key replaces it. Each tab has its own slots; tabs that show
    the same work share it.
    """

    slot: str  # its place on the screen
    title: str  # its name in progress lines
    of: Measurement[T] | Action[T]  # the computation
    priority: int = 0  # lower runs first
    while_seen: bool = False  # background work, which pauses while no page shows it (calls `now`)
    takes: Callable[[], float | None] | None = None  # replaces the measurement's own forecast
    is_uneven: bool = False  # its parts differ too much for a pace, unlike its forecast
    owner: str = ""  # key of the work whose stored results this one reads, if any
    about: str = ""  # its subject, such as a task, for tabs that wait for it; by default its title

    @property
    def key(self) -> str:
        return self.of.key

    def takes_s(self, by_size: bool = False) -> float | None:
        """Returns the forecast seconds of the missing part, or None if unknown; `by_size`: a model that was not timed
        is judged by its size."""
        takes_s = self._forecast_s()
        if takes_s is None and by_size and isinstance(self.of, Measurement):
            takes_s = self._seconds_by_size(self.of.target)
        return takes_s

    def _forecast_s(self) -> float | None:
        if self.takes is not None or isinstance(self.of, Action):
            return self.takes() if self.takes is not None else None
        read = self._last_read()
        if read is not None:
            return None if read.value is None else read.value.left.seconds(store(), self.of.target) or None
        forecasts, of_now = notes().setdefault(FORECASTS, {}), (self.key, store().n_puts)
        if forecasts.get(self.slot, (None,))[0] != of_now:
            forecasts[self.slot] = of_now, self.of.seconds(session())
        return forecasts[self.slot][1]

    def _seconds_by_size(self, target: Target) -> float | None:
        """Returns the forecast seconds of the missing part by the model's size; None before the stored results have
        been read."""
        read = self._last_read()
        if read is None or read.value is None:
            return None
        return read.value.left.seconds_by_size(store(), target) or None

    def start(self, again: bool = False) -> JobStatus[T]:
        """Starts it, unless it is under way or finished; `again`: once more after it ended."""
        return jobs().put(self.slot, self._job(self.priority, self.while_seen), again)

    def start_ahead(self, by_size: bool = False) -> bool:
        """Starts it as background work, if its forecast is within the budget for that; returns whether it is."""
        takes_s = self.takes_s(by_size)
        if takes_s is None or takes_s > budget_s():
            return False
        self.start()
        return True

    def restart(self) -> None:
        """Starts it at the user's request: once more after it was stopped or failed, and to its end whether or not a
        page shows it."""
        jobs().put(self.slot, self._job(min(self.priority, ASKED)), again=True)

    def _job(self, priority: int, while_seen: bool = False) -> Job:
        """Returns the job, which may download task rows if the session that starts it has agreed to that."""
        may_fetch = bool(st.session_state.get(FETCH_TASKS))
        run = partial(_with_consent, may_fetch, partial(self.of.run, session()))
        reads = isinstance(self.of, Action) and self.of.reads
        read_stored = None if isinstance(self.of, Action) else partial(_if_complete, partial(self.of.read, session()))
        about = (self.title, while_seen, self.owner, self.about, may_fetch)
        return Job(self.key, run, priority, *about, reads, read_stored)

    def offer(
        self, label: str, icon: str, help: str, least_s: float = LONG_S, by_size: bool = False, **kwargs: Any
    ) -> None:
        """Draws the button that starts it, with its cost (`takes_s`) if that is `least_s` or more; then the whole page
        runs, as only that starts the repeated redrawing.

        It is started by a callback, which runs before anything is drawn: a run that is abandoned for another before it
        has reached the button would lose the click.
        """
        takes_s, kwargs = self.takes_s(by_size), {"key": f"offer {self.slot}", "on_click": self.restart, **kwargs}
        if st.button(label + cost_in_words(takes_s, least_s), icon=f":material/{icon}:", help=help, **kwargs):
            st.rerun()

    def ask(self, is_known: bool, label: str, icon: str, help: str) -> None:
        """Draws the progress, or the button that starts it, until the whole page knows the result."""
        if not is_known and self.job_value is not None:
            st.rerun()
        if not is_known and self.is_first_read:
            self.reading_line()
        elif not is_known and not self.line():
            self.offer(label, icon, help, by_size=True, least_s=0.0)

    def now(self) -> JobStatus[T] | None:
        """Returns its state; None if it was never started, or the slot now holds other work. Asking counts as showing
        it: the work continues."""
        return jobs().see(self.slot, self.key)

    @property
    def job_value(self) -> T | None:
        """Returns what its job has found so far."""
        job = self.now()
        return None if job is None else job.value

    @property
    def under_way(self) -> bool:
        job = self.now()
        return job is not None and job.under_way

    def value(self, patience_s: float = AT_ONCE_S) -> T | None:
        """Returns its result, starting it if necessary; None if that takes longer."""
        self.start()
        jobs().join(self.slot, patience_s)
        job = self.now()
        return job.value if job is not None and job.state == "done" else None

    def awaited(self, patience_s: float = AT_ONCE_S) -> T | None:
        """Returns its result; until then None, and draws its progress."""
        since_s = time.monotonic()
        value = self.value(patience_s)
        if value is None:
            live([self.slot], self.line, since_s)
        return value

    def line(self) -> bool:
        """Draws its state while it is not done, and returns whether it is not: progress and Cancel while it runs,
        Resume after Cancel, Retry after an error."""
        job = self.now()
        if job is None or job.state == "done":
            return False
        if not job.finished:
            ahead, slot, job = jobs().ahead_of(self.slot), self.slot, self._promised(job)
            with st.container(horizontal=True, vertical_alignment="bottom"):
                st.progress(share_done(job), plain(describe_job(job, self.title, ahead)))
                if _is_of_others(self.key, ahead):
                    kwargs = {"on_click": jobs().put_first, "args": (slot,), "help": FIRST_HELP}
                    st.button("Run this first", key=f"first {slot}", **kwargs)
                stops = "Stops at once. Finished work is kept."
                st.button("Cancel", key=f"cancel {slot}", on_click=jobs().cancel, args=(slot,), help=stops)
                mark_job(self.slot, job)
            return True
        if job.error:
            show_error(job.error)
        elif job.state == "canceled":
            st.caption(f"{plain(named(job, self.title))}: {stopped(job)}. Finished work is kept.")
        draw_restart(job, f"retry {self.slot}", "Starts it again. Finished work is kept.", on_click=self.restart)
        mark_job(self.slot, job)
        return True

    def _promised(self, job: JobStatus[T]) -> JobStatus[T]:
        """Returns the job with what is left of the forecast at its start, until its own pace, if any, is known."""
        if job.state != "running" or job.seconds < POLL_S or job.left_s is not None and not self.is_uneven:
            return job
        promises = notes().setdefault(PROMISES, {})
        if promises.get(self.slot, ("",))[0] != self.key:
            promises[self.slot] = self.key, self._whole_s()
        left_s = (promises[self.slot][1] or 0.0) - job.seconds
        return replace(job, forecast=(left_s, time.monotonic()) if left_s > 0 else None)  # overdue: unknown

    def _whole_s(self) -> float | None:
        """Returns the forecast seconds of the missing part, and of loading the model; None if they are unknown."""
        if self.takes is not None or isinstance(self.of, Action):
            return self.takes_s()
        with suppress(HeadroomError):  # which the job reports
            read = self._last_read()
            left = self.of.left(session()) if read is None else read.value and read.value.left
            return None if left is None else with_loading_s(self.of.target, left)
        return None

    def results_so_far(self) -> list[T]:
        """Returns the results so far, stored ones and those of this work. For measurements.

        Results are read at once, and again when something was stored since; earlier results come first until the read
        has ended. While the work is under way they are read once: it finds the others itself.
        """
        assert isinstance(self.of, Measurement)
        start = partial(read_cached, self.of)
        action = Action(f"{self.key}, {store().n_puts} stored", start, reads=True)
        reading, whole = Work(f"{self.slot}, stored", "", action, 1, owner=self.key), notes().setdefault(READ_WHOLE, {})
        if not (self.under_way and self._last_read() is not None):
            reading.start()
        jobs().join(reading.slot, AT_ONCE_S)
        last, before = self._last_read(), None
        read = None if last is None or last.value is None else last.value.value
        if last is not None and last.state == "done":
            whole[self.slot] = self.key, read
        elif whole.get(self.slot, ("",))[0] == self.key:
            before = whole[self.slot][1]
        return [value for value in (before, read, self.job_value) if value is not None]

    @property
    def is_read(self) -> bool:
        """Returns whether the stored results have been read, which implies that the questions are rendered."""
        read = self._last_read()
        return read is not None and read.state == "done"

    @property
    def fault(self) -> str:
        """Returns why the stored results could not be read; "" if they were, or are being."""
        read = self._last_read()
        return (read.error or "") if read is not None else ""

    @property
    def is_first_read(self) -> bool:
        """Returns whether `results_so_far` lacks what the first read in this slot finds, even if that has ended."""
        read, whole = self._last_read(), notes().get(READ_WHOLE, {})
        is_given = whole.get(self.slot, ("",))[0] == self.key
        return read is not None and not is_given and (read.state == "done" or not read.finished)

    def reading_line(self) -> None:
        """Draws what the reading of the stored results waits for, while it waits."""
        read, slot = self._last_read(), f"{self.slot}, stored"
        if read is not None and read.state == "queued":
            st.caption(plain(describe_job(read, "Stored results", jobs().ahead_of(slot))))

    def watched(self) -> list[str]:
        """Returns the slots whose end changes a page that shows `results_so_far`.

        A read that has ended is drawn already; drawing it again would find results stored meanwhile, read again, and so
        on for as long as anything is measured.
        """
        read = jobs().status(f"{self.slot}, stored")
        is_drawn = read is None or (read.finished and not self.is_first_read)
        return [self.slot] if is_drawn else [self.slot, f"{self.slot}, stored"]

    def _last_read(self) -> JobStatus[StoredPart[T]] | None:
        """Returns the last read of this work's stored results; None before the first, or if the slot has other work."""
        last = jobs().status(f"{self.slot}, stored")
        return last if last is not None and last.owner == self.key else None


def _if_complete(read: Callable[[], Iterator[Progress[StoredPart[T]]]]) -> Iterator[Progress[T]]:
    """Yields the steps of a read, with its value if no record is missing."""
    for step in read():
        yield step.map(lambda stored: stored.value if stored.is_complete else None)


def _with_consent(may_fetch: bool, run: Callable[[], Iterator[Progress[T]]]) -> Iterator[Progress[T]]:
    """Starts `run` in the measuring thread, with task downloads allowed if `may_fetch`."""
    agree_to_fetch(may_fetch)
    return run()


def with_loading_s(target: Target, left: Workload) -> float:
    """Returns the forecast seconds of some work, by the size of a model that was not timed, and of loading the model; 0
    if there is nothing to do."""
    takes_s, is_loaded = left.seconds_by_size(store(), target), session().models.holds(target.spec)
    return takes_s if is_loaded or not takes_s else takes_s + LOADING_S * target.identity.n_params


def under_way(slots: Sequence[str], by: Jobs | None = None) -> bool:
    """Returns whether a job in one of the slots is waiting or running, in the measuring thread or in `by`."""
    return any(job is not None and job.under_way for job in map((by or jobs()).status, slots))


def live(
    slots: Sequence[str],
    draw: Callable[[], object],
    since_s: float,
    every_s: float = POLL_S,
    always: bool = False,
    by: Jobs | None = None,
) -> None:
    """Runs `draw` now, and again every second (or `every_s`) for as long as a job in one of `slots` is under way, or
    `always`, if `draw` itself starts one when it is time.

    When a job ends after `since_s` (`time.monotonic()` before the page read what it shows), the whole page runs once
    more, so that everything shows the result and polling stops in time.
    """
    busy = always or under_way(slots, by)

    def has_ended() -> bool:
        ends = [job.finished_s for job in map((by or jobs()).status, slots) if job is not None]
        return any(end_s is not None and end_s > since_s for end_s in ends)

    @st.fragment(run_every=every_s if busy else None)
    def part() -> None:
        with faults_shown():
            if not has_ended():  # else what `draw` knows is out of date
                draw()
        if not busy and under_way(slots, by):
            st.rerun()  # started from in here ("Resume"): only a run of the whole page starts the polling
        if has_ended():
            st.rerun()

    part()


def mark_job(slot: str, job: JobStatus[Any]) -> None:
    """Draws the mark with the state of a job whose line is drawn."""
    mark("job", job.state, slot=slot, done=job.done, total=job.total)


def draw_restart(job: JobStatus[Any], key: str, help: str, **kwargs: Any) -> None:
    """Draws the button that starts a job again after it ended early: Retry after an error, Resume after Cancel."""
    label, icon = ("Retry", "refresh") if job.error else ("Resume", "play_arrow")
    st.button(label, key=key, icon=f":material/{icon}:", help=help, **kwargs)


def _is_of_others(key: str, ahead: JobStatus[Any] | None) -> bool:
    """Returns whether work waits for something that this page does not show. Notes that the page shows this one."""
    shown = st.session_state.setdefault(SHOWN, {})
    now_s = time.monotonic()
    for other in [other for other, at_s in shown.items() if now_s > at_s + UNSEEN_S]:
        del shown[other]
    shown[key] = now_s
    return ahead is not None and ahead.key not in shown

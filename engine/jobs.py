"""The jobs of all tabs, as pages ask for them. Pages only read frozen `JobStatus`s.

A *slot* is one place on a screen ("accuracy", "importance", "curve"); each tab has slots of its own. A slot holds one
job: a job with another key replaces it at once (latest wins), a job with the same key is left alone, so a page may
submit on every run. The same job in two tabs is run once, for both, until neither wants it.

Jobs are run by the threads of `engine.lanes`. While a job waits that may find all of its records stored
(`Job.read_stored`), the reading thread reads them, and the job is done if none is missing.

A page looks at its jobs each time it is drawn, which keeps background jobs (`while_seen`) running.
"""

import itertools
import math
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from engine.errors import HeadroomError
from engine.lanes import Lanes
from engine.progress import LeftToMeasuring, Progress
from engine.slots import HeldJob, Job, JobStatus, Place, Slots, spent
from engine.turns import rank

SLICE_S = 0.05  # of a wait
MOST_CLOSED = 4  # closed tabs whose jobs a new tab, such as a reloaded page, takes over


class Jobs:
    """The jobs of all tabs and their threads. Safe to use from any thread; `status` never waits.

    `at_rest` is called by a thread that has worked for a while once nothing is left (`engine.lanes.LONG_S`). `page`
    names the page that looks (None: no page does), `is_open` says whether that one is still to be seen. `tab`
    names the tab that asks, whose slots are meant; `is_here` says whether a tab is still open. `meanwhile` is called
    every SLICE_S while a thread waits for a job, and may end that wait by an exception.
    """

    def __init__(
        self,
        at_rest: Callable[[], None] = lambda: None,
        page: Callable[[], Hashable] = lambda: None,
        is_open: Callable[[Any], bool] = lambda page: False,
        tab: Callable[[], Hashable] = lambda: None,
        is_here: Callable[[Any], bool] = lambda tab: True,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> None:
        self._page, self._is_open, self._tab, self._is_here, self._meanwhile = page, is_open, tab, is_here, meanwhile
        self._lanes = Lanes(at_rest, is_open)
        self._changed = self._lanes.changed  # guards everything; notified whenever a status changes
        self._slots = Slots(is_here)
        self._numbers = itertools.count()

    def put(self, slot: str, asked: Job, again: bool = False) -> JobStatus[Any]:
        """The status of the job now in the slot. Putting a job counts as looking at it. A tab that puts a new job of
        priority 0, or one `again`, is first in turn.

        The same key is a no-op whatever became of it: otherwise a page that submits on every run would repeat a failing
        job for ever and restart what the user has just canceled. `again` restarts a finished job (a retry). What was
        once asked for to its end is run to its end. A job that another tab has in the same slot is shared.
        """
        with self._changed:
            if self._lanes.are_closed:
                raise HeadroomError("no new work is accepted: the app is closing down; start it again")
            at = self._at(slot)
            old = self._slots.held.get(at)
            is_same = old is not None and old.status.key == asked.key and not (again and old.status.finished)
            if old is not None and not is_same:
                self._release(at)
            job = old if old is not None and is_same else self._slots.of_others(slot, asked, again)
            if job is None:
                job = HeldJob(asked, next(self._numbers))
                waits = bool(self._lanes.of(job).jobs)
                self._lanes.put(job)
                if waits and asked.read_stored is not None:
                    self._lanes.put(self._reader(job, asked))
            if job is not old:
                self._slots.hold(at, job)
                if again or asked.priority <= 0:  # else the page itself reads something or works ahead
                    for lane in self._lanes.all:
                        lane.turns.ask(at[0])
            job.while_seen = job.while_seen and asked.while_seen
            job.priority = min(job.priority, asked.priority)
            self._look_at(job)
            self._changed.notify_all()
            return job.status

    def see(self, slot: str, key: str) -> JobStatus[Any] | None:
        """As `status`, and notes that a page looks at the job, which keeps it running. None if the slot has another
        key."""
        job = self._slots.held.get(self._at(slot))
        if job is None or job.status.key != key:
            return None
        if job.while_seen and not job.status.finished:
            with self._changed:
                self._look_at(job)
        return job.status

    def ahead_of(self, slot: str) -> JobStatus[Any] | None:
        """What the slot's queued job waits for: the job that runs, or that will run first. None where it waits for
        nothing. If that is of another open tab, its time left is no more than what is left of its turn."""
        with self._changed:
            job = self._slots.held.get(self._at(slot))
            if job is None or job.status.state != "queued":
                return None
            lane = self._lanes.of(job)
            first = lane.running or lane.turns.first(lane.queue)
            if first is job or first is None:
                return None
            ahead = first.status
            if not {*first.tabs} & {*job.tabs} and any(map(self._is_here, first.tabs)):
                ahead = replace(ahead, elsewhere=True)
                turn = first.turn if first is lane.running and rank(first) >= rank(job) else None
                ends_s, now_s = None if turn is None else turn.ends_s(), time.monotonic()
                if ends_s is not None and now_s >= ends_s:  # a step that lasts, such as a load: nobody knows how long
                    ahead = replace(ahead, forecast=None)
                elif ends_s is not None and (ahead.left_s is None or now_s + ahead.left_s > ends_s):
                    ahead = replace(ahead, forecast=(ends_s - now_s, now_s))
            return ahead

    def put_first(self, slot: str) -> None:
        """Has the slot's job go before all others: what runs gives way, and goes on later."""
        with self._changed:
            job = self._slots.held.get(self._at(slot))
            if job is not None and not job.status.finished:
                job.priority, job.goes_first = min(each.priority for each in [*self._lanes.of(job).jobs, job]) - 1, True
                self._changed.notify_all()

    def status(self, slot: str) -> JobStatus[Any] | None:
        """How the slot's job stands, or None when the slot was never used."""
        job = self._slots.held.get(self._at(slot))
        return job.status if job is not None else None

    @property
    def running(self) -> JobStatus[Any] | None:
        """The job that computes, of whichever tab; None while none does."""
        job = self._lanes.measuring.running
        return None if job is None else job.status

    def cancel(self, slot: str) -> None:
        """Asks the slot's job to stop. It counts as running until its current chunk ends; `join` waits for that. If
        another open tab wants it, it goes on for that one and is canceled here at once."""
        with self._changed:
            at = self._at(slot)
            job = self._slots.held.get(at)
            if job is None or job.status.finished:
                return
            if self._slots.is_wanted(job, at):
                self._slots.release(at)
                self._slots.hold(at, job.canceled_for(at))
            else:
                self._abandon(job)
                if job.status.state == "running":
                    job.status = replace(job.status, stopping=True)
            self._changed.notify_all()

    def drop(self, slot: str) -> None:
        """Abandons the slot's job and leaves the slot as if never used: the screen has moved on to something else.

        Unlike after `cancel`, which is the user's word, the same key may be submitted again.
        """
        with self._changed:
            self._release(self._at(slot))
            self._changed.notify_all()

    def forget_closed(self) -> None:
        """Forgets what closed tabs hold, other than work that was asked for to its end and goes on, and except for the
        last MOST_CLOSED of these tabs."""
        with self._changed:
            closed = {tab for tab, _ in self._slots.held if not self._is_here(tab)}
            for tab in self._lanes.measuring.turns.by_last_asked(closed)[MOST_CLOSED:]:
                over, are_all = self._slots.left_behind(tab)
                for at in over:
                    self._release(at)
                for lane in self._lanes.all if are_all else ():
                    lane.turns.forget(tab)
            self._changed.notify_all()

    def join(
        self, slot: str, timeout: float | None = None, until: Callable[[JobStatus[Any]], bool] | None = None
    ) -> JobStatus[Any] | None:
        """The slot's status once its job is finished or `until` holds of it, or as it is after `timeout` seconds."""

        at = self._at(slot)

        def arrived() -> bool:
            job = self._slots.held.get(at)
            return job is None or job.status.finished or (until is not None and until(job.status))

        with self._changed:
            job = self._slots.held.get(at)
            if job is None:
                return None
            self._look_at(job)
            job.n_waiting += 1
        end_s = math.inf if timeout is None else time.monotonic() + timeout
        try:
            while True:
                left_s = max(0.0, end_s - time.monotonic())
                with self._changed:
                    if self._changed.wait_for(arrived, min(SLICE_S, left_s)) or left_s <= SLICE_S:
                        return self.status(slot)
                self._meanwhile()
        finally:
            with self._changed:
                job.n_waiting -= 1
                job.seen_s = time.monotonic()

    def close(self, timeout: float | None = 10.0) -> None:
        """Cancels everything and waits for the threads to end, so that generators are closed and the model is clean."""
        with self._changed:
            self._lanes.are_closed = True
            for job in [*self._slots.held.values(), *(job for lane in self._lanes.all for job in lane.jobs)]:
                self._abandon(job)
            self._changed.notify_all()
        for thread in filter(None, (lane.thread for lane in self._lanes.all)):
            thread.join(timeout)

    def _reader(self, job: HeldJob, waiting: Job) -> HeldJob:
        """A job that reads the results of one that waits, and ends that if none is missing."""

        def read() -> Iterator[Progress[Any]]:
            assert waiting.read_stored is not None
            value: Any = None
            with suppress(LeftToMeasuring):
                for step in waiting.read_stored() if job.status.state == "queued" else ():
                    value = step.value
                    yield replace(step, value=None)
            with self._changed:
                if value is not None and job in self._lanes.measuring.queue:
                    self._lanes.measuring.queue.remove(job)
                    self._lanes.end(job, state="done", value=value)

        reader = HeldJob(replace(waiting, start=read, while_seen=False, reads=True), job.number)
        reader.places = job.places  # of the same tabs, whichever these are by then
        return reader

    def _at(self, slot: str) -> Place:
        """The place of a slot of the tab that asks."""
        return self._tab(), slot

    def _release(self, at: Place) -> None:
        """Empties a slot; its job is abandoned if no open tab wants it."""
        if (job := self._slots.release(at)) is not None:
            self._abandon(job)

    def _abandon(self, job: HeldJob) -> None:
        """Takes the job out of the queue, or has its thread stop it."""
        job.canceled.set()
        if job.status.state in ("queued", "left"):
            if job in self._lanes.of(job).queue:
                self._lanes.of(job).queue.remove(job)
            job.start = spent
            job.status = replace(job.status, state="canceled", finished_s=time.monotonic())

    def _look_at(self, job: HeldJob) -> None:
        """Notes that a page looks at a job; one that was left is queued again."""
        job.seen_s = time.monotonic()
        if (page := self._page()) is not None:
            job.pages = {each for each in job.pages if self._is_open(each)} | {page}
        if job.status.state == "left":
            self._lanes.put(job)
            self._lanes.publish(job, state="queued")

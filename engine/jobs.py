"""The measuring thread, and one that only reads. Pages only read frozen `JobStatus`s.

A job is a generator that yields `Progress` after each chunk of work. Between two of them, and wherever it asks
`engine.progress.may_stop` (between two layers of a pass), the thread sees whether it is to stop. It closes the
generator itself, so `finally` blocks and context managers (mask hooks) run before the next job starts.

A *slot* is one place on a screen ("accuracy", "importance", "curve"); each tab has slots of its own. A slot holds one
job: a job with another key replaces it at once (latest wins), a job with the same key is left alone, so a page may
submit on every run. The same job in two tabs is run once, for both, until neither wants it.

Slots of a tab are served in order of priority (0 before 1), then of submission; tabs take turns (`engine.turns`). A job
of lower priority yields at once, and a job whose turn is over yields after its piece: its generator is closed and later
restarted. It is not kept open, because a paused generator could hold a mask on the model that the next job measures.
Its finished work is in the store, so restarting only costs the reading.

Jobs that only read stored records (`Job.reads`) have the reading thread, which serves them in the same way: reading
never waits for a computation. One that comes to what only the measuring thread may do
(`engine.progress.leave_to_measuring`) is left to that. While a job waits that may find all of its records stored
(`Job.read_stored`), they are read there, and it is done if none is missing.

A background job (`while_seen`) also yields when no page has looked at it for UNSEEN_S and no page that did is open; it
resumes when a page looks again. A page looks each time it is drawn. A page in a hidden tab, whose timers browsers slow
down, counts as open.
"""

import itertools
import logging
import math
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from typing import Any

from engine.errors import HeadroomError
from engine.progress import LeftToMeasuring, Progress, Stopped, TimeLeft, count_piece, is_to_stop, only_reads, tell
from engine.slots import HeldJob, Job, JobStatus, Lane, Place, Slots, closed, ending, spent
from engine.turns import Turn, precedes, rank

LONG_S = 1.0  # of work: then there may be something to tidy up
SLICE_S = 0.05  # of a wait
UNSEEN_S = 4.0  # a page draws what it shows every second
MOST_CLOSED = 4  # closed tabs whose jobs a new tab, such as a reloaded page, takes over
_log = logging.getLogger(__name__)


class Jobs:
    """Queues with a daemon thread each. Safe to use from any thread; `status` never waits.

    `at_rest` is called by a thread when LONG_S or more was worked since the last time and nothing is left.
    `page` names the page that looks (None: no page does), `is_open` says whether that one is still to be seen. `tab`
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
        self._at_rest, self._page, self._is_open = at_rest, page, is_open
        self._tab, self._is_here, self._meanwhile = tab, is_here, meanwhile
        self._changed = threading.Condition()  # guards everything below; notified whenever a status changes
        self._slots = Slots(is_here)
        self._measuring, self._reading = Lane("headroom-jobs"), Lane("headroom-reads")
        self._numbers = itertools.count()
        self._worked_s = 0.0
        self._closed = False

    def put(self, slot: str, asked: Job, again: bool = False) -> JobStatus[Any]:
        """The status of the job now in the slot. Putting a job counts as looking at it. A tab that puts a new job of
        priority 0, or one `again`, is first in turn.

        The same key is a no-op whatever became of it: otherwise a page that submits on every run would repeat a failing
        job for ever and restart what the user has just canceled. `again` restarts a finished job (a retry). What was
        once asked for to its end is run to its end. A job that another tab has in the same slot is shared.
        """
        with self._changed:
            if self._closed:
                raise HeadroomError("no new work is accepted: the app is closing down; start it again")
            at = self._at(slot)
            old = self._slots.held.get(at)
            is_same = old is not None and old.status.key == asked.key and not (again and old.status.finished)
            if old is not None and not is_same:
                self._release(at)
            job = old if old is not None and is_same else self._slots.of_others(slot, asked, again)
            if job is None:
                job = HeldJob(asked, next(self._numbers))
                waits = bool(self._of(job).jobs)
                self._of(job).put(job, self._work)
                if waits and asked.read_stored is not None:
                    self._reading.put(self._reader(job, asked), self._work)
            if job is not old:
                self._slots.hold(at, job)
                if again or asked.priority <= 0:  # else the page itself reads something or works ahead
                    for lane in self._lanes:
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
            lane = self._of(job)
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
                job.priority, job.goes_first = min(each.priority for each in [*self._of(job).jobs, job]) - 1, True
                self._changed.notify_all()

    def status(self, slot: str) -> JobStatus[Any] | None:
        """How the slot's job stands, or None when the slot was never used."""
        job = self._slots.held.get(self._at(slot))
        return job.status if job is not None else None

    @property
    def running(self) -> JobStatus[Any] | None:
        """The job that computes, of whichever tab; None while none does."""
        job = self._measuring.running
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
            for tab in self._measuring.turns.by_last_asked(closed)[MOST_CLOSED:]:
                over, are_all = self._slots.left_behind(tab)
                for at in over:
                    self._release(at)
                for lane in self._lanes if are_all else ():
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
            self._closed = True
            for job in [*self._slots.held.values(), *(job for lane in self._lanes for job in lane.jobs)]:
                self._abandon(job)
            self._changed.notify_all()
        for thread in filter(None, (lane.thread for lane in self._lanes)):
            thread.join(timeout)

    @property
    def _lanes(self) -> tuple[Lane, Lane]:
        return self._measuring, self._reading

    def _of(self, job: HeldJob) -> Lane:
        """The lane in which a job runs."""
        return self._reading if job.reads else self._measuring

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
                if value is not None and job in self._measuring.queue:
                    self._measuring.queue.remove(job)
                    self._end(job, state="done", value=value)

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
            if job in self._of(job).queue:
                self._of(job).queue.remove(job)
            job.start = spent
            job.status = replace(job.status, state="canceled", finished_s=time.monotonic())

    def _look_at(self, job: HeldJob) -> None:
        """Notes that a page looks at a job; one that was left is queued again."""
        job.seen_s = time.monotonic()
        if (page := self._page()) is not None:
            job.pages = {each for each in job.pages if self._is_open(each)} | {page}
        if job.status.state == "left":
            self._of(job).put(job, self._work)
            self._publish(job, state="queued")

    def _is_unseen(self, job: HeldJob) -> bool:
        if not job.while_seen or job.n_waiting or time.monotonic() <= job.seen_s + UNSEEN_S:
            return False
        return not any(map(self._is_open, job.pages))

    def _work(self, lane: Lane) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: lane.queue or self._closed)
                if not lane.queue:
                    return
                job = lane.turns.first(lane.queue) or lane.queue[0]
                lane.queue.remove(job)
                if self._is_unseen(job):
                    self._publish(job, state="left")  # it stays in its slot, until somebody looks
                    continue
                now_s = time.monotonic()
                began_s = now_s if job.turn is None else job.status.started_s
                job.turn, lane.running = Turn(job.turn is None, now_s), job
                lane.turns.serve(job.tabs)
                self._publish(job, state="running", started_s=began_s)
            copy_context().run(self._run, job, job.turn)  # context variables that a job sets end with it
            with self._changed:
                self._worked_s += time.monotonic() - now_s
                is_at_rest = self._worked_s >= LONG_S and not any(each.jobs for each in self._lanes)
                self._worked_s = 0.0 if is_at_rest else self._worked_s
            if is_at_rest:
                try:
                    self._at_rest()
                except Exception as error:  # tidying up must not end the thread
                    _log.error("tidying up failed", exc_info=error)

    def _must_stop(self, job: HeldJob) -> bool:
        """Whether the running job must stop: it is canceled, no page shows it, or another job is more urgent."""
        if job.canceled.is_set() or self._is_unseen(job):
            return True
        with self._changed:
            after = self._next(job)
            return after is not job and precedes(after, job)

    def _next(self, job: HeldJob) -> HeldJob:
        """The job whose turn it would be if the running one waited, too."""
        lane = self._of(job)
        waiting = [each for each in lane.queue if not self._is_unseen(each)]
        return (lane.turns.first([job, *waiting]) or job) if waiting else job

    def _hands_over(self, job: HeldJob, turn: Turn) -> bool:
        """Whether the running job, which has just finished a piece, is to give way to another tab: its turn is over, or
        the user has asked for something new there."""
        with self._changed:
            lane = self._of(job)
            if not lane.queue:
                return False
            now_s = time.monotonic()
            job.had_turn |= turn.is_whole(now_s)
            if is_over := turn.is_over(now_s):
                lane.turns.serve(job.tabs)
            after = self._next(job)
            if {*after.tabs} & {*job.tabs} or rank(after) > rank(job):
                return False
            return is_over or lane.turns.asked_since(after.tabs, turn.began_s)

    def _run(self, job: HeldJob, turn: Turn) -> None:
        """Runs one job until it is done, fails, is canceled, gives way to another or is not looked at."""
        end: dict[str, Any] = {"state": "done"}
        gave_way: dict[str, Any] = {"state": "queued", "forecast": None}
        generator: Iterator[Progress[Any]] | None = None
        time_left, n_pieces, reads_again = TimeLeft(time.monotonic()), 0, True
        lane = self._of(job)
        is_to_stop.set(lambda: self._must_stop(job))
        only_reads.set(job.reads)
        count_piece.set(turn.count_piece)
        tell.set(lambda done, total, message, left_s: self._publish(job, message=message))
        try:
            generator = job.start()
            for progress in generator:
                time_left.told(now_s := time.monotonic(), progress)
                turn.step(now_s, progress.cached, progress.is_loading)
                left_s = time_left.left_s(now_s)
                reported: dict[str, Any] = {"done": progress.done, "total": progress.total, "message": progress.message}
                reported["forecast"] = None if left_s is None else (left_s, now_s)
                # what it had told before it gave way stands until it is there again
                reads_again = reads_again and progress.cached and progress.done < job.status.done
                with self._changed:
                    if not job.canceled.is_set() and not reads_again:
                        value = progress.value if progress.value is not None else job.status.value
                        self._publish(job, value=value, **reported)
                is_piece, n_pieces = turn.n_pieces > n_pieces, turn.n_pieces
                if self._must_stop(job) or (is_piece and progress.part < 1 and self._hands_over(job, turn)):
                    end = gave_way
                    break
        except Stopped as stopped:
            end = gave_way
            if isinstance(stopped, LeftToMeasuring):
                job.reads, job.turn = False, None
        except BaseException as error:  # a panic in Rust code (tokenizers, safetensors) is a BaseException
            end = ending(error)
        end = closed(generator) or end
        with self._changed:
            lane.running = None
            if job.canceled.is_set() and end["state"] == "queued":
                end = {"state": "canceled"}
            if end["state"] == "queued":
                self._of(job).put(job, self._work)
                self._publish(job, **end)
            else:
                self._end(job, **end)

    def _end(self, job: HeldJob, **end: Any) -> None:
        job.start = spent  # the closure may hold on to a model
        self._publish(job, finished_s=time.monotonic(), forecast=None, stopping=False, **end)

    def _publish(self, job: HeldJob, **changes: Any) -> None:
        with self._changed:
            job.status = replace(job.status, **changes)
            self._changed.notify_all()

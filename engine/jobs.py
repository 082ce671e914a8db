"""One worker thread for all computation. Pages only read frozen `Snapshot`s.

A job is a generator that yields `Progress` after each chunk of work. Between two of them, and wherever it asks
`engine.progress.may_stop` (between two layers of a pass), the worker sees whether it is to stop. It closes the
generator in its own thread, so `finally` blocks and context managers (mask hooks) run before the next job starts.

A *slot* is one place on a screen ("accuracy", "importance", "curve"). A slot holds one job: a job with another key
replaces it at once (latest wins), a job with the same key is left alone, so a page may submit on every run. Slots are
served in order of priority (0 before 1), then of submission. A job of lower priority yields at once: its generator is
closed and later restarted. It is not kept open, because a paused generator could hold a mask on the model that the next
job measures. Its finished work is in the store, so restarting only costs the reading.

A background job (`while_seen`) also yields when no page has looked at it for UNSEEN_S and no page that did is open; it
resumes when a page looks again. A page looks each time it is drawn. A page in a hidden tab, whose timers browsers slow
down, counts as open.
"""

import itertools
import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

from engine.errors import Cancelled, HeadroomError, unforeseen
from engine.progress import Progress, Stopped, TimeLeft, is_to_stop

T = TypeVar("T")
State = Literal["queued", "running", "left", "done", "failed", "cancelled"]  # left: no page shows it
FINISHED = ("done", "failed", "cancelled")
LONG_S = 1.0  # of work: then there may be something to tidy up
UNSEEN_S = 4.0  # a page draws what it shows every second
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Snapshot(Generic[T]):
    """How a job stands. Times are seconds on `time.monotonic`; `started_s` is the submission until the job runs.
    `forecast` is (seconds left, when that was reckoned), None while it is not known. `owner` is its job's. `message`
    names the step that `done` and `total` count, also after the end. `stopping`: cancelled, but still running.
    `details` are those of the HeadroomError in which it ended."""

    key: str
    state: State
    done: int
    total: int
    value: T | None
    message: str
    error: str | None
    started_s: float
    finished_s: float | None
    title: str = ""
    forecast: tuple[float, float] | None = None
    owner: str = ""
    stopping: bool = False
    details: object = None

    @property
    def left_s(self) -> float | None:
        """About how many seconds are left, None while that is not known."""
        return None if self.forecast is None else max(0.0, self.forecast[0] - (time.monotonic() - self.forecast[1]))

    @property
    def finished(self) -> bool:
        return self.state in FINISHED

    @property
    def under_way(self) -> bool:
        return self.state in ("queued", "running")

    @property
    def seconds(self) -> float:
        """Seconds from the start to the end, or to now while the job is under way."""
        return (self.finished_s if self.finished_s is not None else time.monotonic()) - self.started_s


@dataclass(frozen=True)
class Job:
    """A job to run. `while_seen`: only while a page shows it, otherwise to its end. `owner`: the key of the work that
    this job reads for, if any."""

    key: str
    start: Callable[[], Iterator[Progress[Any]]]
    priority: int = 0
    title: str = ""
    while_seen: bool = False
    owner: str = ""


class _Job:
    def __init__(self, asked: Job, number: int):
        self.priority, self.number = asked.priority, number
        self.start = asked.start
        self.while_seen, self.seen_s, self.n_waiting = asked.while_seen, time.monotonic(), 0
        self.pages: set[Hashable] = set()  # that have looked at it
        self.cancelled = threading.Event()
        self.has_run = False
        self.snapshot: Snapshot[Any] = Snapshot(
            asked.key, "queued", 0, 0, None, "", None, time.monotonic(), None, asked.title, owner=asked.owner
        )

    def __lt__(self, other: "_Job") -> bool:
        return (self.priority, self.number) < (other.priority, other.number)


class Jobs:
    """A queue with one daemon worker thread. Safe to use from any thread; `snapshot` never waits.

    `at_rest` is called by the worker when it has worked for LONG_S or more since the last time and nothing is left.
    `page` names the page that looks (None: no page does), `is_open` says whether that one is still to be seen.
    """

    def __init__(
        self,
        at_rest: Callable[[], None] = lambda: None,
        page: Callable[[], Hashable] = lambda: None,
        is_open: Callable[[Any], bool] = lambda page: False,
    ) -> None:
        self._at_rest, self._page, self._is_open = at_rest, page, is_open
        self._changed = threading.Condition()  # guards everything below; notified whenever a snapshot changes
        self._slots: dict[str, _Job] = {}
        self._queue: list[_Job] = []
        self._running: _Job | None = None
        self._numbers = itertools.count()
        self._worker: threading.Thread | None = None
        self._closed = False

    def put(self, slot: str, asked: Job, again: bool = False) -> Snapshot[Any]:
        """The snapshot of the job now in the slot. Putting a job counts as looking at it.

        The same key is a no-op whatever became of it: otherwise a page that submits on every run would repeat a failing
        job for ever and restart what the user has just cancelled. `again` restarts a finished job (a retry). What was
        once asked for to its end is run to its end.
        """
        with self._changed:
            if self._closed:
                raise HeadroomError("no new work is accepted: the app is closing down; start it again")
            old = self._slots.get(slot)
            if old is not None and old.snapshot.key == asked.key and not (again and old.snapshot.finished):
                old.while_seen = old.while_seen and asked.while_seen
                old.priority = min(old.priority, asked.priority)
                self._look_at(old)
                return old.snapshot
            if old is not None:
                self._abandon(old)
            job = _Job(asked, next(self._numbers))
            self._look_at(job)
            self._slots[slot] = job
            self._queue.append(job)
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="headroom-jobs", daemon=True)
                self._worker.start()
            self._changed.notify_all()
            return job.snapshot

    def see(self, slot: str, key: str) -> Snapshot[Any] | None:
        """As `snapshot`, and notes that a page looks at the job, which keeps it running. None if the slot has another
        key."""
        job = self._slots.get(slot)
        if job is None or job.snapshot.key != key:
            return None
        if job.while_seen and not job.snapshot.finished:
            with self._changed:
                self._look_at(job)
        return job.snapshot

    def ahead_of(self, slot: str) -> Snapshot[Any] | None:
        """What the slot's queued job waits for: the job that runs, or that will run first. None where it waits for
        nothing."""
        with self._changed:
            job, running = self._slots.get(slot), self._running
            if job is None or job.snapshot.state != "queued":
                return None
            first = running or min(self._queue, default=None)
            return None if first is job or first is None else first.snapshot

    def put_first(self, slot: str) -> None:
        """Has the slot's job go before all others: what runs gives way, and goes on later."""
        with self._changed:
            job = self._slots.get(slot)
            if job is not None and not job.snapshot.finished:
                others = [self._running] if self._running is not None else []
                job.priority = min(other.priority for other in [*others, *self._queue, job]) - 1
                self._changed.notify_all()

    def snapshot(self, slot: str) -> Snapshot[Any] | None:
        """How the slot's job stands, or None when the slot was never used."""
        job = self._slots.get(slot)
        return job.snapshot if job is not None else None

    @property
    def running(self) -> Snapshot[Any] | None:
        """The job that runs, None while nothing does."""
        job = self._running
        return None if job is None else job.snapshot

    def cancel(self, slot: str) -> None:
        """Asks the slot's job to stop. It counts as running until the chunk in hand ends; `join` waits for that."""
        with self._changed:
            job = self._slots.get(slot)
            if job is not None and not job.snapshot.finished:
                self._abandon(job)
                if job.snapshot.state == "running":
                    job.snapshot = replace(job.snapshot, stopping=True)
                self._changed.notify_all()

    def drop(self, slot: str) -> None:
        """Abandons the slot's job and leaves the slot as if never used: the screen has moved on to something else.

        Unlike after `cancel`, which is the user's word, the same key may be submitted again.
        """
        with self._changed:
            job = self._slots.pop(slot, None)
            if job is not None:
                self._abandon(job)
            self._changed.notify_all()

    def join(
        self, slot: str, timeout: float | None = None, until: Callable[[Snapshot[Any]], bool] | None = None
    ) -> Snapshot[Any] | None:
        """The slot's snapshot once its job is finished or `until` holds of it, or as it is after `timeout` seconds."""

        def arrived() -> bool:
            job = self._slots.get(slot)
            return job is None or job.snapshot.finished or (until is not None and until(job.snapshot))

        with self._changed:
            job = self._slots.get(slot)
            if job is None:
                return None
            self._look_at(job)
            job.n_waiting += 1
            try:
                self._changed.wait_for(arrived, timeout)
            finally:
                job.n_waiting -= 1
                job.seen_s = time.monotonic()
        return self.snapshot(slot)

    def close(self, timeout: float | None = 10.0) -> None:
        """Cancels everything and waits for the worker to end, so that generators are closed and the model is clean."""
        with self._changed:
            self._closed = True
            for job in [*self._slots.values(), *self._queue]:
                self._abandon(job)
            self._changed.notify_all()
        if self._worker is not None:
            self._worker.join(timeout)

    def _abandon(self, job: _Job) -> None:
        """Takes the job out of the queue, or has the worker stop it."""
        job.cancelled.set()
        if job.snapshot.state in ("queued", "left"):
            if job in self._queue:
                self._queue.remove(job)
            job.start = _spent
            job.snapshot = replace(job.snapshot, state="cancelled", finished_s=time.monotonic())

    def _look_at(self, job: _Job) -> None:
        """Notes that a page looks at a job; one that was left is queued again."""
        job.seen_s = time.monotonic()
        if (page := self._page()) is not None:
            job.pages = {each for each in job.pages if self._is_open(each)} | {page}
        if job.snapshot.state == "left":
            self._queue.append(job)
            self._publish(job, state="queued")

    def _is_unseen(self, job: _Job) -> bool:
        if not job.while_seen or job.n_waiting or time.monotonic() <= job.seen_s + UNSEEN_S:
            return False
        return not any(map(self._is_open, job.pages))

    def _work(self) -> None:
        worked_s = 0.0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closed)
                if not self._queue:
                    return
                job = min(self._queue)
                self._queue.remove(job)
                if self._is_unseen(job):
                    self._publish(job, state="left")  # it stays in its slot, until somebody looks
                    continue
                now_s = time.monotonic()
                began_s = job.snapshot.started_s if job.has_run else now_s
                job.has_run, self._running = True, job
                self._publish(job, state="running", started_s=began_s)
            copy_context().run(self._run, job)  # context variables that a job sets end with it
            worked_s += time.monotonic() - now_s
            if worked_s >= LONG_S and not self._queue:
                worked_s = 0.0
                try:
                    self._at_rest()
                except Exception as error:  # tidying up must not end the only worker
                    _log.error("tidying up failed", exc_info=error)

    def _must_stop(self, job: _Job) -> bool:
        """Whether the running job must stop: it is cancelled, no page shows it, or another job is more urgent."""
        if job.cancelled.is_set() or self._is_unseen(job):
            return True
        with self._changed:
            return any(other.priority < job.priority and not self._is_unseen(other) for other in self._queue)

    def _run(self, job: _Job) -> None:
        """Runs one job until it is done, fails, is cancelled, gives way to a more urgent one or is not looked at."""
        end: dict[str, Any] = {"state": "done"}
        gave_way: dict[str, Any] = {"state": "queued", "forecast": None}
        generator: Iterator[Progress[Any]] | None = None
        time_left = TimeLeft(time.monotonic())
        is_to_stop.set(lambda: self._must_stop(job))
        try:
            generator = job.start()
            for progress in generator:
                time_left.told(now_s := time.monotonic(), progress)
                left_s = time_left.left_s(now_s)
                reported: dict[str, Any] = {"done": progress.done, "total": progress.total, "message": progress.message}
                reported["forecast"] = None if left_s is None else (left_s, now_s)
                with self._changed:
                    if not job.cancelled.is_set():
                        value = progress.value if progress.value is not None else job.snapshot.value
                        self._publish(job, value=value, **reported)
                if self._must_stop(job):
                    end = gave_way
                    break
        except Stopped:
            end = gave_way
        except BaseException as error:  # a panic in Rust code (tokenizers, safetensors) is a BaseException
            end = _ending(error)
        end = _closed(generator) or end
        with self._changed:
            self._running = None
            if job.cancelled.is_set() and end["state"] == "queued":
                end = {"state": "cancelled"}
            if end["state"] == "queued":
                self._queue.append(job)
                self._publish(job, **end)
            else:
                job.start = _spent  # the closure may hold on to a model
                self._publish(job, finished_s=time.monotonic(), forecast=None, stopping=False, **end)

    def _publish(self, job: _Job, **changes: Any) -> None:
        job.snapshot = replace(job.snapshot, **changes)
        self._changed.notify_all()


def _spent() -> Iterator[Progress[Any]]:
    """Nothing: takes the place of a finished job's work."""
    return iter(())


def _closed(generator: Iterator[Progress[Any]] | None) -> dict[str, Any] | None:
    """None once the generator's `finally` blocks have run, or the failure they ended in."""
    try:
        if generator is not None and hasattr(generator, "close"):
            generator.close()  # type: ignore[attr-defined]
    except BaseException as error:
        return _ending(error)
    return None


def _ending(error: BaseException) -> dict[str, Any]:
    """The closing fields of a job that raised: a plain line for our own errors, type and message for all others."""
    if isinstance(error, Cancelled):
        return {"state": "cancelled"}
    if isinstance(error, HeadroomError):
        return {"state": "failed", "error": str(error), "details": error.details}
    _log.error("a job failed", exc_info=error)
    return {"state": "failed", "error": unforeseen(error)}

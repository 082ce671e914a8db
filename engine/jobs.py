"""One worker thread for everything slow: whoever draws the screen only ever reads a frozen `Snapshot`.

A job is a generator that yields `Progress` after each chunk of work. The worker reads the job's cancel event between
two chunks, so nothing is ever interrupted in the middle of a forward pass, and it closes the generator in its own
thread, so `finally` blocks and context managers (mask hooks) run before the next job starts.

A *slot* is one place on a screen ("accuracy", "importance", "curve"). A slot holds one job: a job with another key
replaces it at once (latest wins), a job with the same key is left alone, so a page may submit on every run. Slots are
served in order of priority (0 before 1), then of submission. A job of lower priority gives way between two chunks: its
generator is closed and later started again. It is not kept open, because a paused generator could hold a mask on the
model that the next job measures; what it had finished is in the store, so starting again costs nothing but the reading.
"""

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

from engine.errors import Cancelled, HeadroomError
from engine.progress import Progress

T = TypeVar("T")
State = Literal["queued", "running", "done", "failed", "cancelled"]
FINISHED = ("done", "failed", "cancelled")
LONG_S = 1.0  # of work: then there may be something to tidy up
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Snapshot(Generic[T]):
    """How a job stands. Times are seconds on `time.monotonic`; `started_s` is the submission until the job runs."""

    key: str
    state: State
    done: int
    total: int
    value: T | None
    message: str
    error: str | None
    started_s: float
    finished_s: float | None

    @property
    def finished(self) -> bool:
        return self.state in FINISHED

    @property
    def seconds(self) -> float:
        """Seconds from the start to the end, or to now while the job is under way."""
        return (self.finished_s if self.finished_s is not None else time.monotonic()) - self.started_s


class _Job:
    def __init__(self, key: str, start: Callable[[], Iterator[Progress[Any]]], priority: int, number: int):
        self.rank = (priority, number)
        self.priority = priority
        self.start = start
        self.cancelled = threading.Event()
        self.has_run = False
        self.snapshot: Snapshot[Any] = Snapshot(key, "queued", 0, 0, None, "", None, time.monotonic(), None)

    def __lt__(self, other: "_Job") -> bool:
        return self.rank < other.rank


class Jobs:
    """A queue with one daemon worker thread. Safe to use from any thread; `snapshot` never waits.

    `at_rest` is called by the worker when it has worked for LONG_S or more since the last time and nothing is left.
    """

    def __init__(self, at_rest: Callable[[], None] = lambda: None) -> None:
        self._at_rest = at_rest
        self._changed = threading.Condition()  # guards everything below; notified whenever a snapshot changes
        self._slots: dict[str, _Job] = {}
        self._queue: list[_Job] = []
        self._numbers = itertools.count()
        self._worker: threading.Thread | None = None
        self._closed = False

    def submit(
        self, slot: str, key: str, start: Callable[[], Iterator[Progress[Any]]], priority: int = 0, again: bool = False
    ) -> Snapshot[Any]:
        """The snapshot of the job now in the slot.

        The same key is a no-op whatever became of it: otherwise a page that submits on every run would repeat a
        failing job for ever and restart what the user has just cancelled. `again` starts a finished job anew (a retry).
        """
        with self._changed:
            if self._closed:
                raise HeadroomError("no new work is accepted: the app is closing down; start it again")
            old = self._slots.get(slot)
            if old is not None and old.snapshot.key == key and not (again and old.snapshot.finished):
                return old.snapshot
            if old is not None:
                self._abandon(old)
            job = _Job(key, start, priority, next(self._numbers))
            self._slots[slot] = job
            heapq.heappush(self._queue, job)
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="headroom-jobs", daemon=True)
                self._worker.start()
            self._changed.notify_all()
            return job.snapshot

    def snapshot(self, slot: str) -> Snapshot[Any] | None:
        """How the slot's job stands, or None when the slot was never used."""
        job = self._slots.get(slot)
        return job.snapshot if job is not None else None

    def cancel(self, slot: str) -> None:
        """Asks the slot's job to stop. It counts as running until the chunk in hand ends; `join` waits for that."""
        with self._changed:
            job = self._slots.get(slot)
            if job is not None and not job.snapshot.finished:
                self._abandon(job)
                if job.snapshot.state == "running":
                    job.snapshot = replace(job.snapshot, message="stopping")
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
            self._changed.wait_for(arrived, timeout)
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
        """Takes the job out of the queue, or has the worker stop it at the end of the chunk in hand."""
        job.cancelled.set()
        if job in self._queue:
            self._queue.remove(job)
            heapq.heapify(self._queue)
            job.start = _spent
            job.snapshot = replace(job.snapshot, state="cancelled", finished_s=time.monotonic())

    def _work(self) -> None:
        worked_s = 0.0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closed)
                if not self._queue:
                    return
                job = heapq.heappop(self._queue)
                now_s = time.monotonic()
                began_s = job.snapshot.started_s if job.has_run else now_s
                job.has_run = True
                self._publish(job, state="running", started_s=began_s, message="")
            self._run(job)
            worked_s += time.monotonic() - now_s
            if worked_s >= LONG_S and not self._queue:
                worked_s = 0.0
                try:
                    self._at_rest()
                except Exception as error:  # tidying up must not end the only worker
                    _log.error("tidying up failed", exc_info=error)

    def _run(self, job: _Job) -> None:
        """Runs one job until it is done, fails, is cancelled, or gives way to a more urgent one."""
        end: dict[str, Any] = {"state": "done"}
        generator: Iterator[Progress[Any]] | None = None
        try:
            generator = job.start()
            for progress in generator:
                with self._changed:
                    if job.cancelled.is_set():
                        end = {"state": "cancelled", "message": ""}
                        break
                    value = progress.value if progress.value is not None else job.snapshot.value
                    self._publish(job, done=progress.done, total=progress.total, value=value, message=progress.message)
                    if self._queue and self._queue[0].priority < job.priority:
                        end = {"state": "queued", "message": "waiting for more urgent work"}
                        break
        except BaseException as error:  # a panic in Rust code (tokenizers, safetensors) is no Exception
            end = _ending(error)
        end = _closed(generator) or end
        with self._changed:
            if job.cancelled.is_set() and end["state"] == "queued":
                end = {"state": "cancelled", "message": ""}
            if end["state"] == "queued":
                heapq.heappush(self._queue, job)
                self._publish(job, **end)
            else:
                job.start = _spent  # the closure may hold on to a model
                self._publish(job, finished_s=time.monotonic(), **end)

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
        return {"state": "cancelled", "message": ""}
    if isinstance(error, HeadroomError):
        return {"state": "failed", "error": str(error)}
    _log.error("a job failed", exc_info=error)
    return {"state": "failed", "error": f"unexpected: {type(error).__name__}: {error}"}

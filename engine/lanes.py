"""The measuring thread, and one that only reads: which job runs, and when it gives way.

A job is a generator that yields `Progress` after each chunk of work. Between two of them, and wherever it asks
`engine.progress.may_stop` (between two layers of a pass), the thread sees whether it is to stop. It closes the
generator itself, so `finally` blocks and context managers (mask hooks) run before the next job starts.

Jobs of a tab are served in order of priority (0 before 1), then of submission; tabs take turns (`engine.turns`). A job
of lower priority yields at once, and a job whose turn is over yields after its piece: its generator is closed and later
restarted. It is not kept open, because a paused generator could hold a mask on the model that the next job measures.
Its finished work is in the store, so restarting only costs the reading.

Jobs that only read stored records (`Job.reads`) have the reading thread, which serves them in the same way: reading
never waits for a computation. One that comes to what only the measuring thread may do
(`engine.progress.leave_to_measuring`) is left to that.

A background job (`while_seen`) also yields when no page shows it (`HeldJob.is_unseen`), and resumes when a page looks
again. A page in a hidden tab, whose timers browsers slow down, counts as open.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import copy_context
from dataclasses import replace
from typing import Any

from engine.errors import Canceled, HeadroomError, unforeseen
from engine.progress import LeftToMeasuring, Progress, Stopped, TimeLeft, count_piece, is_to_stop, only_reads, tell
from engine.slots import HeldJob, spent
from engine.turns import Turn, Turns, precedes, rank

LONG_S = 1.0  # of work: then there may be something to tidy up
_log = logging.getLogger(__name__)


class Lane:
    """A thread: the jobs that wait for it, the one that runs, and whose turn it is. Guarded like its jobs."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.queue: list[HeldJob] = []
        self.running: HeldJob | None = None
        self.thread: threading.Thread | None = None
        self.turns = Turns()

    def put(self, job: HeldJob, work: "Callable[[Lane], None]") -> None:
        """Has a job wait; the first starts the thread, which does this `work`."""
        self.queue.append(job)
        if self.thread is None:
            self.thread = threading.Thread(target=work, args=(self,), name=self.name, daemon=True)
            self.thread.start()

    @property
    def jobs(self) -> list[HeldJob]:
        """The jobs that wait or run."""
        return [*self.queue, *([] if self.running is None else [self.running])]


class Lanes:
    """The lanes of both threads. `changed` guards them, their jobs, and the slots of those.

    `at_rest` is called by a thread when LONG_S or more was worked since the last time and nothing is left. `is_open`
    says whether a page that has looked at a job is still to be seen.
    """

    def __init__(self, at_rest: Callable[[], None], is_open: Callable[[Any], bool]) -> None:
        self._at_rest, self._is_open = at_rest, is_open
        self.changed = threading.Condition()  # notified whenever a status changes
        self.measuring, self.reading = Lane("headroom-jobs"), Lane("headroom-reads")
        self.all = (self.measuring, self.reading)
        self.are_closed = False  # the threads end once nothing waits
        self._worked_s = 0.0

    def of(self, job: HeldJob) -> Lane:
        """The lane in which a job runs."""
        return self.reading if job.reads else self.measuring

    def put(self, job: HeldJob) -> None:
        """Has a job wait in its lane."""
        self.of(job).put(job, self._work)

    def end(self, job: HeldJob, **end: Any) -> None:
        """Ends a job, with these fields of its status."""
        job.start = spent  # the closure may hold on to a model
        self.publish(job, finished_s=time.monotonic(), forecast=None, stopping=False, **end)

    def publish(self, job: HeldJob, **changes: Any) -> None:
        """Changes the status of a job, and notifies those who wait."""
        with self.changed:
            job.status = replace(job.status, **changes)
            self.changed.notify_all()

    def _work(self, lane: Lane) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: lane.queue or self.are_closed)
                if not lane.queue:
                    return
                job = lane.turns.first(lane.queue) or lane.queue[0]
                lane.queue.remove(job)
                if job.is_unseen(self._is_open):
                    self.publish(job, state="left")  # it stays in its slot, until somebody looks
                    continue
                now_s = time.monotonic()
                began_s = now_s if job.turn is None else job.status.started_s
                job.turn, lane.running = Turn(job.turn is None, now_s), job
                lane.turns.serve(job.tabs)
                self.publish(job, state="running", started_s=began_s)
            copy_context().run(self._run, job, job.turn)  # context variables that a job sets end with it
            with self.changed:
                self._worked_s += time.monotonic() - now_s
                is_at_rest = self._worked_s >= LONG_S and not any(each.jobs for each in self.all)
                self._worked_s = 0.0 if is_at_rest else self._worked_s
            if is_at_rest:
                try:
                    self._at_rest()
                except Exception as error:  # tidying up must not end the thread
                    _log.error("tidying up failed", exc_info=error)

    def _must_stop(self, job: HeldJob) -> bool:
        """Whether the running job must stop: it is canceled, no page shows it, or another job is more urgent."""
        if job.canceled.is_set() or job.is_unseen(self._is_open):
            return True
        with self.changed:
            after = self._next(job)
            return after is not job and precedes(after, job)

    def _next(self, job: HeldJob) -> HeldJob:
        """The job whose turn it would be if the running one waited, too."""
        lane = self.of(job)
        waiting = [each for each in lane.queue if not each.is_unseen(self._is_open)]
        return (lane.turns.first([job, *waiting]) or job) if waiting else job

    def _hands_over(self, job: HeldJob, turn: Turn) -> bool:
        """Whether the running job, which has just finished a piece, is to give way to another tab: its turn is over, or
        the user has asked for something new there."""
        with self.changed:
            lane = self.of(job)
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
        lane = self.of(job)
        is_to_stop.set(lambda: self._must_stop(job))
        only_reads.set(job.reads)
        count_piece.set(turn.count_piece)
        tell.set(lambda done, total, message, left_s: self.publish(job, message=message))
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
                with self.changed:
                    if not job.canceled.is_set() and not reads_again:
                        value = progress.value if progress.value is not None else job.status.value
                        self.publish(job, value=value, **reported)
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
        with self.changed:
            lane.running = None
            if job.canceled.is_set() and end["state"] == "queued":
                end = {"state": "canceled"}
            if end["state"] == "queued":
                self.put(job)
                self.publish(job, **end)
            else:
                self.end(job, **end)


def closed(generator: Iterator[Progress[Any]] | None) -> dict[str, Any] | None:
    """None once the generator's `finally` blocks have run, or the failure they ended in."""
    try:
        if generator is not None and hasattr(generator, "close"):
            generator.close()  # type: ignore[attr-defined]
    except BaseException as error:
        return ending(error)
    return None


def ending(error: BaseException) -> dict[str, Any]:
    """The closing fields of a job that raised: a plain line for our own errors, type and message for all others."""
    if isinstance(error, Canceled):
        return {"state": "canceled"}
    if isinstance(error, HeadroomError):
        return {"state": "failed", "error": str(error), "details": error.details}
    _log.error("a job failed", exc_info=error)
    return {"state": "failed", "error": unforeseen(error)}

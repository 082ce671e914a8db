"""Jobs as tabs hold them: what is asked for, how it stands, and in which slot of which tab.

Each tab has slots of its own. Tabs whose slots of one name want the same job hold the same one: it is run once.
"""

import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

from engine.progress import Progress
from engine.turns import Turn

T = TypeVar("T")
State = Literal["queued", "running", "left", "done", "failed", "canceled"]  # left: no page shows it
UNSEEN_S = 4.0  # a page draws what it shows every second
FINISHED = ("done", "failed", "canceled")
Place = tuple[Hashable, str]  # a tab, and the name of a slot of it


@dataclass(frozen=True)
class JobStatus(Generic[T]):
    """How a job stands. Times are seconds on `time.monotonic`; `started_s` is the submission until the job runs.
    `forecast` is (seconds left, when that was reckoned), None while it is not known. `owner` is its job's. `message`
    names the step that `done` and `total` count, also after the end. `stopping`: canceled, but still running.
    `details` are those of the HeadroomError in which it ended. `about` is its job's. `elsewhere`: it is another tab's,
    for which this one waits (`Jobs.ahead_of`)."""

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
    about: str = ""
    elsewhere: bool = False

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
    """A job to run.

    `while_seen`: only while a page shows it, otherwise to its end
    `owner`: the key of the work that this job reads for, if any
    `about`: its subject, such as a task, for tabs that wait for it
    `may_fetch`: it may download task rows
    `reads`: it only reads stored records, which does not wait for computations
    `read_stored`: yields the value at its end if all of its records are stored
    """

    key: str
    start: Callable[[], Iterator[Progress[Any]]]
    priority: int = 0
    title: str = ""
    while_seen: bool = False
    owner: str = ""
    about: str = ""
    may_fetch: bool = False
    reads: bool = False
    read_stored: Callable[[], Iterator[Progress[Any]]] | None = None


class HeldJob:
    """A job that slots hold. The lock of its `Jobs` guards it."""

    def __init__(self, asked: Job, number: int) -> None:
        self.priority, self.number = asked.priority, number
        self.start, self.may_fetch, self.reads = asked.start, asked.may_fetch, asked.reads
        self.places: set[Place] = set()  # that hold it
        self.while_seen, self.seen_s, self.n_waiting = asked.while_seen, time.monotonic(), 0
        self.pages: set[Hashable] = set()  # that have looked at it
        self.canceled = threading.Event()
        self.turn: Turn | None = None  # its last one
        self.had_turn = self.goes_first = False  # see `engine.turns.InTurn`
        self.status: JobStatus[Any] = JobStatus(
            asked.key, "queued", 0, 0, None, "", None, time.monotonic(), None, asked.title, None, asked.owner,
            about=asked.about,
        )  # fmt: skip

    @property
    def tabs(self) -> Collection[Hashable]:
        """The tabs that hold it."""
        return {tab for tab, _ in self.places}

    @property
    def can_be_joined(self) -> bool:
        """Whether it will end by itself."""
        return not self.status.finished and not self.canceled.is_set()

    def is_unseen(self, is_open: Callable[[Any], bool]) -> bool:
        """Whether it is background work that no page shows: none has looked at it for UNSEEN_S, or still `is_open`."""
        if not self.while_seen or self.n_waiting or time.monotonic() <= self.seen_s + UNSEEN_S:
            return False
        return not any(map(is_open, self.pages))

    def canceled_for(self, place: Place) -> "HeldJob":
        """A job in its stead for a place that wants it no longer while others do."""
        found = HeldJob(Job(self.status.key, spent), self.number)
        found.places, found.start = {place}, spent
        ended = {"state": "canceled", "finished_s": time.monotonic(), "forecast": None}
        found.status = replace(self.status, **ended)
        return found


class Slots:
    """Which job each slot of each tab holds. `is_here` says whether a tab is still open. Guarded like its jobs."""

    def __init__(self, is_here: Callable[[Any], bool]) -> None:
        self._is_here = is_here
        self.held: dict[Place, HeldJob] = {}

    def hold(self, at: Place, job: HeldJob) -> None:
        """Puts a job into an empty slot."""
        job.places.add(at)
        self.held[at] = job

    def is_wanted(self, job: HeldJob, other_than: Place) -> bool:
        """Returns whether an open tab holds the job in another slot."""
        return any(self._is_here(tab) for tab, _ in job.places - {other_than})

    def release(self, at: Place) -> HeldJob | None:
        """Empties a slot. Returns its job if no open tab wants that any more."""
        job = self.held.pop(at, None)
        if job is None:
            return None
        is_wanted = self.is_wanted(job, at)
        job.places.discard(at)
        return None if is_wanted else job

    def of_others(self, slot: str, asked: Job, again: bool) -> HeldJob | None:
        """Returns the job asked for if another tab's slot of that name holds it: one that is under way, or unless
        `again` one that is done, and of a closed tab, such as a page that was reloaded, any that has ended. A closed
        tab lets go of it."""
        same = {at: job for at, job in self.held.items()
                if at[1] == slot and job.status.key == asked.key and job.may_fetch == asked.may_fetch}  # fmt: skip
        for at, job in sorted(same.items(), key=lambda each: not each[1].can_be_joined):
            is_closed, state = not self._is_here(at[0]), job.status.state
            if job.can_be_joined or (not again and (state == "done" or (is_closed and job.status.finished))):
                if is_closed:
                    del self.held[at]
                    job.places.discard(at)
                return job
        return None

    def left_behind(self, tab: Hashable) -> tuple[list[Place], bool]:
        """Returns the slots of a closed tab that hold work that is not to go on, and whether these are all of them."""
        held = {at: job for at, job in self.held.items() if at[0] == tab}
        over = [at for at, job in held.items() if job.while_seen or job.status.finished]
        return over, len(over) == len(held)


def spent() -> Iterator[Progress[Any]]:
    """Nothing: takes the place of a finished job's work, which may hold on to a model."""
    return iter(())

"""What long work tells of itself: `Progress`, how one generator of it becomes part of another, how long the rest will
take, and how it hears in the middle of a step that it is to stop.
"""

from collections.abc import Callable, Generator, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")
HALF_LIFE_S = 30.0  # of the remembered pace of a run
RECOMPUTE_S = 2.0  # between estimates of the remaining time; in between it falls with the clock
SAYS_LITTLE_S, SAYS_LITTLE = 1.0, 2  # seconds and pieces of work: no forecast from less
ONLY_READ = 20  # times the usual pace: nothing was measured then, it was there


class Stopped(BaseException):
    """Raised in the middle of a step by `may_stop`. Not an Exception, so that nothing on the way takes it for one."""


class LeftToMeasuring(Stopped):
    """Raised by `leave_to_measuring`."""


is_to_stop: ContextVar[Callable[[], bool]] = ContextVar("is_to_stop", default=lambda: False)  # set by who runs the work

only_reads: ContextVar[bool] = ContextVar("only_reads", default=False)  # in a job of the reading thread

# called when a piece of the work is finished and stored: to stop after it loses nothing
count_piece: ContextVar[Callable[[], None]] = ContextVar("count_piece", default=lambda: None)

# shows the progress of a step that is not a generator: done, total, message, seconds left
tell: ContextVar[Callable[[int, int, str, float | None], None]] = ContextVar("tell", default=lambda *progress: None)

# takes a line about the input that its user should know although it can be used, such as how a file was read
remark: ContextVar[Callable[[str], None]] = ContextVar("remark", default=lambda line: None)
# says a line before work that the user did not ask for by name, such as what it writes to the disk
announce: ContextVar[Callable[[str], None]] = ContextVar("announce", default=lambda line: None)


def may_stop() -> None:
    """A point where work can stop at once: raises Stopped if the thread of the job asks for that."""
    if is_to_stop.get()():
        raise Stopped


def leave_to_measuring() -> None:
    """A point from which work is for the measuring thread alone: raises LeftToMeasuring in one that only reads."""
    if only_reads.get():
        raise LeftToMeasuring


@dataclass(frozen=True)
class Progress(Generic[T]):
    """What a job yields after each step: items done of total, and the result so far (None: as it was). `is_loading`:
    the message is about the model being loaded, which stands above whatever else is to be said. `share`: how much of
    the work that is, 0 to 1, where items are uneven (None: as many as the items)."""

    done: int
    total: int
    value: T | None = None
    message: str = ""
    cached: bool = False
    is_loading: bool = False
    share: float | None = None

    @property
    def part(self) -> float:
        """How much of the work is done, 0 to 1."""
        return self.share if self.share is not None else self.done / self.total if self.total else 0.0

    def map(self, change: Callable[[T], U | None]) -> "Progress[U]":
        """The same with the value changed, where there is one."""
        value = None if self.value is None else change(self.value)
        return Progress(self.done, self.total, value, self.message, self.cached, self.is_loading, self.share)

    def within(
        self, done: int = 0, total: int | None = None, size: int | None = None, label: str = ""
    ) -> "Progress[Any]":
        """The same without its value, as part of a longer run in which `done` came before and this takes `size` of the
        `total` (None: as many as it says itself). Without a total it is the run itself."""
        if total is None:
            total = self.total
        here = self.done if size is None else round(size * self.part) if size > 1 else int(size * self.part)
        message = self.message if self.is_loading or not label else label
        share = None
        if self.share is not None and total:
            share = (done + self.share * (self.total if size is None else size)) / total
        return Progress(done + here, total, None, message, self.cached, self.is_loading, share)


def last_value(
    steps: Iterable[Progress[T]], done: int = 0, total: int | None = None, size: int | None = None, label: str = ""
) -> Generator[Progress[Any], None, T]:
    """Gives the value of the last of `steps` that has one, each yielded at its place in a longer run (`within`)."""
    value = None
    for step in steps:
        value = step.value if step.value is not None else value
        yield step.within(done, total, size, label)
    assert value is not None
    return value


def final(steps: Iterable[Progress[T]]) -> T:
    """The value of the last of `steps` that has one."""
    return returned(last_value(steps))


def driven(steps: Generator[U, None, T], change: Callable[[U], V]) -> Generator[V, None, T]:
    """Gives what `steps` returns; what it yields is yielded changed."""
    while True:
        try:
            step = next(steps)
        except StopIteration as ended:
            return ended.value
        yield change(step)


def returned(steps: Generator[Any, None, T]) -> T:
    """What `steps` returns, run to its end."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            return ended.value


class TimeLeft:
    """How many seconds a run has left, from its smoothed pace over the work that is left. The clock is handed in.

    Loading and the first step behind it are not the pace of what follows; nor is what was only read, not measured.
    """

    def __init__(self, at_s: float) -> None:
        self._at_s, self._part, self._is_first = at_s, 0.0, True  # when work was last done, and how much by then
        self._seconds = self._parts = 0.0  # of late, the older the less
        self._pieces = 0  # that these come from
        self._said: tuple[float, float] | None = None  # seconds left, and when that was said

    def told(self, at_s: float, step: Progress[Any]) -> None:
        """Hears of a step at this time."""
        more = step.part - self._part
        if more < 0:  # another run: its work is not to be compared
            self._seconds, self._parts, self._pieces, self._said = 0.0, 0.0, 0, None
        if step.is_loading or more < 0:
            self._at_s, self._part, self._is_first = at_s, min(self._part, step.part), True
            return
        if not more:
            return
        seconds, self._at_s, self._part = at_s - self._at_s, at_s, step.part
        pace = seconds / more
        usual = self._seconds / self._parts if self._parts else None
        if self._is_first or (usual is not None and pace * ONLY_READ < usual):
            self._is_first = False
            return
        if usual is not None and usual * ONLY_READ < pace:  # what was usual was reading
            self._seconds, self._parts, self._pieces = 0.0, 0.0, 0
        self._pieces += 1
        fading = 0.5 ** (seconds / HALF_LIFE_S)
        self._seconds, self._parts = self._seconds * fading + seconds, self._parts * fading + more
        is_known = self._seconds >= SAYS_LITTLE_S and self._pieces >= SAYS_LITTLE
        if is_known and (self._said is None or at_s - self._said[1] >= RECOMPUTE_S):
            self._said = self._seconds / self._parts * (1 - self._part), at_s

    def left_s(self, at_s: float) -> float | None:
        """Seconds left at this time; None while that is not known."""
        return None if self._said is None else max(0.0, self._said[0] - (at_s - self._said[1]))


def in_time(seconds: float) -> str:
    """Such as "12 s", "4 min", "3 h"."""
    if seconds < 99.5:
        return f"{max(1.0, seconds):,.0f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 99.5 * 60 else f"{seconds / 3600:,.0f} h"

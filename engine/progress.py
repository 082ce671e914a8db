"""What long work tells of itself: `Progress`, and how one generator of it becomes part of another."""

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")


@dataclass(frozen=True)
class Progress(Generic[T]):
    """What a job yields after each step: items done of total, and the result so far (None: as it was). `is_loading`:
    the message is about the model being loaded, which stands above whatever else is to be said."""

    done: int
    total: int
    value: T | None = None
    message: str = ""
    cached: bool = False
    is_loading: bool = False

    def map(self, change: Callable[[T], U]) -> "Progress[U]":
        """The same with the value changed, where there is one."""
        value = None if self.value is None else change(self.value)
        return Progress(self.done, self.total, value, self.message, self.cached, self.is_loading)

    def within(
        self, done: int = 0, total: int | None = None, size: int | None = None, label: str = ""
    ) -> "Progress[Any]":
        """The same without its value, as part of a longer run in which `done` came before and this takes `size` of the
        `total` (None: as many as it says itself). Without a total it is the run itself."""
        if total is None:
            total = self.total
        here = self.done if size is None else round(size * self.done / self.total) if self.total else 0
        message = self.message if self.is_loading or not label else label
        return Progress(done + here, total, None, message, self.cached, self.is_loading)


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
    value = None
    for step in steps:
        value = step.value if step.value is not None else value
    assert value is not None
    return value


def driven(steps: Generator[U, None, T], change: Callable[[U], V]) -> Generator[V, None, T]:
    """Gives what `steps` returns; what it yields is yielded changed."""
    while True:
        try:
            step = next(steps)
        except StopIteration as ended:
            return ended.value
        yield change(step)

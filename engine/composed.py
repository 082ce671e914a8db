"""Measurements made of other measurements: of every task or part, or one that follows from another.

All of them are written once, as a generator that asks a `ComposedRun` for one part after the other: measured, it
measures missing parts; read, it adds up their work.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from engine.errors import Canceled, HeadroomError
from engine.measurement import Measurement, Missing, Steps, StoredPart, Workload, with_value
from engine.models.session import Session, Target
from engine.progress import Progress, driven

K = TypeVar("K")
T = TypeVar("T")
U = TypeVar("U")


class ComposedRun:
    """One run of a composed measurement: it measures its parts or only reads them, one after the other.

    `total` is that of the progress bar, `done` how far it is. `cached`: everything so far was stored. `missing`: what
    the parts lack.
    """

    def __init__(self, session: Session, measures: bool, total: int) -> None:
        self.session, self.measures, self.total = session, measures, total
        self.done, self.cached, self.missing = 0, True, dict[str, Callable[[], Workload]]()
        self._known: dict[str, StoredPart[Any]] = {}

    def steps(
        self, part: Measurement[T], size: int = 1, label: str = "", counts: bool = True
    ) -> Generator[Progress[T], None, StoredPart[T]]:
        """Returns what is known of a part, all of it if it is measured. Yields its steps in their place in the whole,
        of which it takes `size`, with the part's value so far. A part that was complete is not read again.

        Without `counts` the steps keep their own numbers, which the label names; only their share is of the whole.
        """
        found = self._known.get(part.key)
        if found is None:
            cached = True

            def placed(step: Progress[T]) -> Progress[T]:
                nonlocal cached
                cached = step.cached
                here = step.within(self.done, self.total, size, label)
                if not counts:
                    here = replace(here, done=step.done, total=step.total)
                share = (self.done + size * step.part) / self.total
                return replace(here, value=step.value, cached=self.cached and cached, share=share)

            found = StoredPart(*(yield from driven(with_value(part.steps(self.session, self.measures)), placed)))
            self.cached &= cached
            self.missing |= found.missing
            if found.is_complete:
                self._known[part.key] = found
        self.done += size
        return found

    def known(self, part: Measurement[T], size: int = 1, label: str = "") -> Generator[Progress[Any], None, T | None]:
        """Gives the value of a part as far as it is known; what it yields has no value."""
        return (yield from driven(self.steps(part, size, label), lambda step: replace(step, value=None))).value

    def part(
        self, part: Measurement[T], size: int = 1, label: str = "", counts: bool = True
    ) -> Generator[Progress[Any], None, T | None]:
        """Gives the value of a part, or None if something of it is missing; what it yields has no value."""
        found = yield from driven(self.steps(part, size, label, counts), lambda step: replace(step, value=None))
        return found.value if found.is_complete else None

    def expect(self, name: str, expected: Callable[[], Workload]) -> None:
        """Counts the work of a part that cannot be built yet, as it depends on one that is missing."""
        self.missing[name] = expected

    def so_far(self, value: T, label: str = "") -> Progress[T]:
        """The step that tells of the value so far."""
        return Progress(self.done, self.total, value, label, self.cached)


def composed(
    target: Target,
    about: tuple[object, ...],
    body: Callable[[ComposedRun], Generator[Progress[Any], None, T | None]],
    total: int = 1,
) -> Measurement[T]:
    """A measurement made of others: `body` asks a `ComposedRun` for one part after the other, and returns the value of
    all of them, or of those that are known. `total` is that of the progress bar; `body` may change the run's at its
    start."""

    def steps(session: Session, measures: bool) -> Steps[T]:
        run = ComposedRun(session, measures, total)
        value = yield from body(run)
        yield Progress(run.total, run.total, value, cached=run.cached)
        return run.missing

    return Measurement(target, about, steps)


def deferred(target: Target, about: tuple[object, ...], build: Callable[[Session], Measurement[T]]) -> Measurement[T]:
    """A measurement that is built when it is read or measured, as that takes the store, such as for questions."""
    return Measurement(target, about, lambda session, measures: build(session).steps(session, measures))


@dataclass(frozen=True)
class Gathered(Generic[K, T]):
    """Results of several parts: `values` of complete ones, `partial` values of others, the reason in one line for those
    that `failed`, and the work `missing` for each of the others."""

    values: Mapping[K, T] = field(default_factory=dict)
    partial: Mapping[K, T] = field(default_factory=dict)
    failed: Mapping[K, str] = field(default_factory=dict)
    missing: Mapping[K, Missing] = field(default_factory=dict)


def every(
    target: Target,
    about: tuple[object, ...],
    parts: Mapping[K, Callable[[Session], Measurement[T]]],
    size: Callable[[K], int] = lambda name: 1,
    label: Callable[[K], str] = str,
) -> Measurement[Gathered[K, T]]:
    """Measurements of the same kind, such as one a task: each is built when its turn comes, and takes `size` of the
    progress bar. One that raises a HeadroomError is set aside with the reason; the others go on. Steps are called by
    `label`, or by their own messages if it is empty."""

    def body(run: ComposedRun) -> Generator[Progress[Gathered[K, T]], None, Gathered[K, T]]:
        gathered = Gathered[K, T]()
        for name, build in parts.items():

            def noted(step: Progress[T], name: K = name) -> Progress[Gathered[K, T]]:
                nonlocal gathered
                if step.value is not None:
                    gathered = replace(gathered, partial={**gathered.partial, name: step.value})
                return step.map(lambda value: gathered)

            end = run.done + size(name)
            try:
                part = yield from driven(run.steps(build(run.session), size(name), label(name)), noted)
                if not part.is_complete:
                    gathered = replace(gathered, missing={**gathered.missing, name: part.missing})
                elif part.value is not None:
                    others = {other: each for other, each in gathered.partial.items() if other != name}
                    gathered = replace(gathered, values={**gathered.values, name: part.value}, partial=others)
            except Canceled:
                raise
            except HeadroomError as error:
                gathered = replace(gathered, failed={**gathered.failed, name: str(error)})
            run.done = end
            yield run.so_far(gathered, label(name))
        return gathered

    return composed(target, about, body, max(1, sum(map(size, parts))))


def all_of(parts: Sequence[Measurement[T]], label: str = "") -> Measurement[tuple[T | None, ...]]:
    """The values of several measurements in order, None for each that is not complete; one that raises ends them
    all."""

    def body(run: ComposedRun) -> Generator[Progress[tuple[T | None, ...]], None, tuple[T | None, ...]]:
        values = list[T | None]()
        for part in parts:
            values.append((yield from run.part(part, 1, label)))
            yield run.so_far((*values, *[None] * (len(parts) - len(values))), label)
        return tuple(values)

    return composed(parts[0].target, tuple(part.key for part in parts), body, len(parts))


def then(
    first: Measurement[T],
    next_of: Callable[[T], Measurement[U]],
    expected: Callable[[], Workload],
    about: tuple[Any, ...],
    sizes: tuple[int, int] = (1, 1),
) -> Measurement[U]:
    """The measurement that follows from the value of `first`, such as an accuracy under the mask that scores give;
    `expected` is its work while `first` is not known, `about` what tells it from others that follow the same `first`.
    `sizes` are those of the two on the progress bar."""

    def body(run: ComposedRun) -> Generator[Progress[U], None, U | None]:
        known = yield from run.part(first, sizes[0])
        if known is None:
            run.expect(f"after {first.key}", expected)
            return None
        found = yield from run.steps(next_of(known), sizes[1])
        return found.value

    return composed(first.target, (*first.about, "then", *about), body, sum(sizes))

"""A measurement as one value: reads stored records, measures missing ones, or estimates that work.

Building a `Measurement` reads and computes nothing. So each kind of measurement is one function that returns one, not
three: one that measures, one that reads and one that forecasts. Those here are made of stored records;
`engine.composed` makes measurements of other measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, wraps
from itertools import accumulate
from types import SimpleNamespace
from typing import Any, Generic, ParamSpec, TypeVar, cast

from cache import Store
from engine.models.session import Session, Target
from engine.pieces import Piece, found, measured
from engine.progress import Progress, driven, returned
from engine.records import Record
from engine.timing.observed_timings import FACTOR, Pass, seconds_for, together_s
from engine.timing.workload import CHARACTERS_A_TOKEN

T = TypeVar("T")
U = TypeVar("U")
P = ParamSpec("P")
OPERATIONS_A_SECOND = 2e11  # of a processor whose pace is not known yet


@dataclass(frozen=True)
class Workload:
    """Text that passes have to read, in `characters` by kind of pass."""

    characters: Mapping[Pass, float] = field(default_factory=dict)

    def __add__(self, other: Workload) -> Workload:
        """Both together."""
        total = dict(self.characters)
        for kind, characters in other.characters.items():
            total[kind] = total.get(kind, 0.0) + characters
        return Workload(total)

    def times(self, factor: float) -> Workload:
        """So many times as much."""
        return Workload({kind: factor * characters for kind, characters in self.characters.items()})

    def seconds(self, store: Store, target: Target) -> float | None:
        """About how long that takes here, by earlier passes of this model; None if none was timed yet."""
        return together_s(seconds_for(store, target, kind, each) for kind, each in self.characters.items())

    def seconds_by_size(self, store: Store, target: Target) -> float:
        """The same; by the size of the model if none of its passes was timed yet."""
        known = self.seconds(store, target)
        if known is not None:
            return known
        passes = sum(FACTOR[kind] * each for kind, each in self.characters.items()) / CHARACTERS_A_TOKEN
        return 2 * target.identity.n_params * passes / OPERATIONS_A_SECOND


Missing = Mapping[str, Callable[[], Workload]]  # by the key of a record or measurement: what counts its work
Steps = Generator[Progress[T], None, Missing]


@dataclass(frozen=True)
class StoredPart(Generic[T]):
    """The stored part of a measurement: the `value` of the existing records (None if they give none), and what is
    `missing`."""

    value: T | None
    missing: Missing = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        return not self.missing

    @cached_property
    def left(self) -> Workload:
        """The work of measuring missing records."""
        return sum((count() for count in self.missing.values()), Workload())


@dataclass(frozen=True)
class Measurement(Generic[T]):
    """A value of type T that is made from stored records.

    `target`: the model. `about`: what tells this measurement apart from others of the same model. `steps(session,
    measures)`: yields Progress with the value so far, and returns the missing work; without `measures` it loads and
    computes nothing.
    """

    target: Target
    about: tuple[object, ...]
    steps: Callable[[Session, bool], Steps[T]]

    @property
    def key(self) -> str:
        """Identifies the measurement within one process: changes with anything that changes the value."""
        return " ".join(map(str, (self.target, *self.about)))

    def run(self, session: Session) -> Iterator[Progress[T]]:
        """Yields Progress with the value so far. Stored records are read, missing ones are measured and stored."""
        return self.steps(session, True)

    def read(self, session: Session) -> Iterator[Progress[StoredPart[T]]]:
        """Yields Progress; the last value is the stored part. Loads and measures nothing."""
        value, missing = yield from driven(with_value(self.steps(session, False)), Progress.within)
        yield Progress(1, 1, StoredPart(value, missing), cached=True)

    def stored_part(self, session: Session) -> StoredPart[T]:
        """The stored part, read at once."""
        return StoredPart(*returned(with_value(self.steps(session, False))))

    def stored(self, session: Session) -> T | None:
        """The value if all records are stored, or else None."""
        known = self.stored_part(session)
        return known.value if known.is_complete else None

    def so_far(self, session: Session) -> T | None:
        """The value of the records that are stored, which may be some of all; None if they give none."""
        return self.stored_part(session).value

    def left(self, session: Session) -> Workload:
        """The work of measuring the missing records."""
        return self.stored_part(session).left

    def whole(self) -> Workload:
        """The work of measuring all of it, whatever is stored."""
        return self.left(cast(Session, _EMPTY))

    def seconds(self, session: Session) -> float | None:
        """About how long the missing records take here; None if no pass of this model was timed yet."""
        return self.left(session).seconds(session.store, self.target)

    def map(self, change: Callable[[T], U | None]) -> Measurement[U]:
        """The same with `change` applied to its value."""

        def steps(session: Session, measures: bool) -> Steps[U]:
            return (yield from driven(self.steps(session, measures), lambda step: step.map(change)))

        return Measurement(self.target, (*self.about, "mapped"), steps)


@dataclass(frozen=True)
class Call:
    """A function of the engine and its arguments, plain values all: another process makes the same measurement of it.

    `function`: what returns the measurement
    `arguments`, `named`: what it is called with
    """

    function: Callable[..., Measurement[Any]]
    arguments: tuple[Any, ...]
    named: Mapping[str, Any] = field(default_factory=dict)

    def measurement(self) -> Measurement[Any]:
        """The measurement."""
        return self.function(*self.arguments, **self.named)


# takes each call whose measurement was read and found incomplete, with what is missing
note_incomplete: ContextVar[Callable[[Call, Missing], None]] = ContextVar(
    "note_incomplete", default=lambda call, missing: None
)


def measured_apart(function: Callable[P, Measurement[T]]) -> Callable[P, Measurement[T]]:
    """Decorates a function of plain values whose measurement depends on no other: other processes can measure it."""

    @wraps(function)
    def made(*arguments: P.args, **named: P.kwargs) -> Measurement[T]:
        own = function(*arguments, **named)

        def steps(session: Session, measures: bool) -> Steps[T]:
            missing = yield from own.steps(session, measures)
            if missing:
                note_incomplete.get()(Call(made, arguments, named), missing)
            return missing

        return replace(own, steps=steps)

    return made


# a session whose result store holds nothing
_EMPTY = SimpleNamespace(
    store=SimpleNamespace(get=lambda key: None, put=lambda key, blob: True), record=lambda key: None
)


def with_value(steps: Steps[T]) -> Generator[Progress[T], None, tuple[T | None, Missing]]:
    """The same steps; gives their last value too."""
    value: T | None = None

    def noted(step: Progress[T]) -> Progress[T]:
        nonlocal value
        value = step.value if step.value is not None else value
        return step

    missing = yield from driven(steps, noted)
    return value, missing


def of_records(
    target: Target,
    about: tuple[object, ...],
    pieces: Callable[[Session, list[Record]], Iterable[Piece]],
    value: Callable[[list[Record]], T | None],
    expected: Callable[[], Workload] | None = None,
    counted: Callable[[list[Record]], tuple[int, int]] | None = None,
    again: bool = False,
) -> Measurement[T]:
    """A measurement that is stored as records.

    `pieces`: the records it takes, in order, as a list; or, where later ones depend on earlier ones, as a generator. It
    is given the list of the records so far, which fills up as they are read or measured. `value`: what the first of
    these records give, or None if they are too few. `expected`: the work of measuring all of it, if the pieces do not
    say how much they read. `counted`: (done, total) on the progress bar by the records so far, if the pieces' sizes do
    not say. `again`: stored records count as missing, and each is replaced once it has been measured again.
    """

    def steps(session: Session, measures: bool) -> Steps[T]:
        records: list[Record] = []
        wanted = pieces(session, records)
        listed = list(wanted) if measures and counted is None else []
        sizes = [piece.size for piece in listed]
        total, cached = sum(sizes), True
        ends: list[float] | None = None

        def known(piece: Piece) -> Record | None:
            return None if again else found(session, piece)

        def placed(step: Progress[Any], is_end: bool = False) -> Progress[Any]:
            """A step of the current piece, or the one that ends it, in its place among all of them."""
            share, n = None, len(records)
            if ends:
                began = ends[n - 1] if n else 0.0
                share = began if is_end else began + (ends[n] - began) * step.part
            done, all_of_them = step.done, step.total
            if counted is not None:
                done, all_of_them = counted(records) if n else (0, 0)
            return replace(step, done=done, total=all_of_them, share=share)

        def left() -> Workload:
            if expected is None:
                return Workload()
            if counted is None:
                each = [(piece.size, known(piece) is None) for piece in pieces(session, [])]
                part, whole = sum(size for size, is_missing in each if not is_missing), sum(size for size, _ in each)
            else:
                part, whole = counted(records) if records else (0, 1)
            return expected().times(1 - part / whole)

        for piece in listed or wanted:
            record = known(piece)
            if record is None and not measures:
                yield Progress(0, 1, value(records), cached=True)
                if counted is None and expected is None:
                    missing = [each for each in pieces(session, []) if known(each) is None]
                    return {each.key: partial(_to_read, each) for each in missing}
                return {piece.key: left}
            if record is None:
                cached, ends = False, _ends(listed) if ends is None else ends
                record = yield from driven(measured(session, target, piece, sum(sizes[: len(records)]), total), placed)
            records.append(record)
            if measures:
                done = sum(sizes[: len(records)])
                yield placed(Progress(done, total, value(records), cached=cached), is_end=True)
        if not measures or not records:
            yield Progress(1, 1, value(records), cached=True)
        return {}

    return Measurement(target, about, steps)


def known_value(target: Target, about: tuple[object, ...], value: T) -> Measurement[T]:
    """A measurement whose value is known without any record."""
    return of_records(target, about, lambda session, records: [], lambda records: value)


def single(
    target: Target,
    piece: Piece,
    value: Callable[[Record], T],
    expected: Callable[[], Workload] | None = None,
    again: bool = False,
) -> Measurement[T]:
    """A measurement that is stored as one record."""

    def of_one(records: list[Record]) -> T | None:
        return value(records[0]) if records else None

    return of_records(target, (piece.key,), lambda session, records: [piece], of_one, expected, again=again)


def by_name(
    target: Target, wanted: Mapping[str, Piece], value: Callable[[str, Record], T]
) -> Measurement[dict[str, T]]:
    """A measurement of one record per name; its value has the names measured so far."""

    def so_far(records: list[Record]) -> dict[str, T]:
        return {name: value(name, record) for name, record in zip(wanted, records, strict=False)}

    keys = tuple(piece.key for piece in wanted.values())
    return of_records(target, keys, lambda session, records: list(wanted.values()), so_far)


def _to_read(piece: Piece) -> Workload:
    return Workload() if piece.characters is None else Workload({piece.kind: piece.characters()})


def _ends(wanted: Sequence[Piece]) -> list[float]:
    """The share of all the work that is done at the end of each piece: by how much is read, or else by size."""
    sizes = [piece.characters() for piece in wanted if piece.characters is not None]
    if len(sizes) < len(wanted) or not sum(sizes):
        sizes = [piece.size for piece in wanted]
    return [end / sum(sizes) for end in accumulate(sizes)]

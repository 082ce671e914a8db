"""A measurement as one value: read its stored records, measure the missing ones, or forecast how long those take.

Building a `Measurement` reads and computes nothing. So each kind of measurement is one function that returns one, not
three: one that measures, one that reads and one that forecasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from cache import Store
from engine.models.rates import FACTOR, Pass, seconds_for
from engine.models.subject import Lab, Subject
from engine.pieces import Piece, all_stored, found, pieces
from engine.progress import Progress
from engine.questions.amounts import CHARACTERS_A_TOKEN
from engine.records import Record

T = TypeVar("T")
U = TypeVar("U")
OPERATIONS_A_SECOND = 2e11  # of a processor whose pace is not known yet


@dataclass(frozen=True)
class Workload:
    """Text that passes of one kind still have to read, in characters."""

    kind: Pass
    characters: float

    def seconds(self, store: Store, target: Subject) -> float:
        """About how long that takes here: by earlier passes of this model, or else by its size."""
        known = seconds_for(store, target, self.kind, self.characters)
        if known is not None:
            return known
        operations = 2 * target.identity.n_params * self.characters / CHARACTERS_A_TOKEN
        return FACTOR[self.kind] * operations / OPERATIONS_A_SECOND


@dataclass(frozen=True)
class Measurement(Generic[T]):
    """A value of type T that is made from stored records.

    `target`: the model. `pieces`: the records it takes, in order; it is given the list of the records so far, which
    fills up as they are measured. `value`: what the first of these records give, or None if they are too few.
    `expected`: the work of measuring all of it, if the pieces do not say how much they read.
    """

    target: Subject
    pieces: Callable[[list[Record]], Sequence[Piece]]
    value: Callable[[list[Record]], T | None]
    expected: Workload | None = None

    def stored(self, lab: Lab) -> T | None:
        """The value if all records are stored, or else None. Loads and measures nothing."""
        records = all_stored(lab, self.pieces([]))
        return None if records is None else self.value(records)

    def run(self, lab: Lab) -> Iterator[Progress[T]]:
        """Yields Progress with the value so far. Stored records are read, missing ones are measured and stored."""
        records: list[Record] = []
        wanted = self.pieces(records)
        if not wanted:
            yield Progress(1, 1, self.value(records), cached=True)
        for step in pieces(lab, self.target, wanted):
            records[:] = step.value or records
            yield step.map(self.value)

    def left(self, store: Store) -> Workload | None:
        """The work of measuring the missing records, or None if all are stored."""
        missing = [piece for piece in self.pieces([]) if found(store, piece) is None]
        if not missing:
            return None
        if self.expected is not None:
            return self.expected
        characters = [piece.characters() for piece in missing if piece.characters is not None]
        return Workload(missing[0].kind, sum(characters))

    def map(self, change: Callable[[T], U]) -> Measurement[U]:
        """The same with `change` applied to its value."""

        def changed(records: list[Record]) -> U | None:
            value = self.value(records)
            return None if value is None else change(value)

        return Measurement(self.target, self.pieces, changed, self.expected)


def single(
    target: Subject, piece: Piece, value: Callable[[Record], T], expected: Workload | None = None
) -> Measurement[T]:
    """A measurement that is stored as one record."""
    return Measurement(target, lambda _: [piece], lambda records: value(records[0]) if records else None, expected)


def by_name(
    target: Subject, wanted: Mapping[str, Piece], value: Callable[[str, Record], T]
) -> Measurement[dict[str, T]]:
    """A measurement of one record per name; its value has the names measured so far."""

    def so_far(records: list[Record]) -> dict[str, T]:
        return {name: value(name, record) for name, record in zip(wanted, records, strict=False)}

    return Measurement(target, lambda _: list(wanted.values()), so_far)

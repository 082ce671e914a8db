"""Read or measure, piece by piece: what every measurement that is stored has in common.

A piece is what is stored under one key: a chunk of questions, a text, a few probes. What is there is read; what is
missing is measured and stored at once, so that a run that is stopped or killed loses the piece in hand and no more.
"""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cache import Store
from engine.memory import Trimming
from engine.models.loading import Loaded
from engine.models.subject import Lab, Subject
from engine.progress import Progress, driven
from engine.records import Record, decode, encode

Measured = tuple[Mapping[str, np.ndarray], Mapping[str, Any]]  # arrays, and what the receipt says beside the subject
Measuring = Generator[Progress[Any], None, Measured]  # its Progress is within the piece
_TRIMMING = Trimming()  # of what the passes of earlier pieces freed


@dataclass(frozen=True)
class Piece:
    """One record that is wanted: its key, its `size` on the progress bar, the shape of each array of a sound record (a
    letter is the same length wherever it stands), and how it is measured where it is missing or unsound."""

    key: str
    size: int
    shapes: Mapping[str, tuple[int | str, ...]]
    measure: Callable[[Loaded], Measuring]


def pieces(
    lab: Lab, subject: Subject, wanted: Iterable[Piece], total: int | None = None, compute: bool = True
) -> Iterator[Progress[list[Record]]]:
    """Yields Progress; its value, after each piece, are the records so far, in order. Without `compute` it ends at the
    first that is not stored.

    `wanted` may be a generator that goes by the records so far, if it is given the `total` of all sizes.
    """
    if total is None:
        wanted = list(wanted)
        total = sum(piece.size for piece in wanted)
    records, done, all_cached = [], 0, True
    for piece in wanted:
        record = found(lab.store, piece)
        if record is None:
            if not compute:
                return
            all_cached = False
            record = yield from measured(lab, subject, piece, done, total)
        records = [*records, record]
        done += piece.size
        yield Progress(done, total, records, cached=all_cached)


def stored(lab: Lab, wanted: Iterable[Piece]) -> list[Record]:
    """The records that are stored, up to the first that is missing; loads and measures nothing."""
    records = []
    for piece in wanted:
        record = found(lab.store, piece)
        if record is None:
            break
        records.append(record)
    return records


def all_stored(lab: Lab, wanted: Sequence[Piece]) -> list[Record] | None:
    """The records where all of them are stored, else None; loads and measures nothing."""
    records = stored(lab, wanted)
    return records if len(records) == len(wanted) else None


def found(store: Store, piece: Piece) -> Record | None:
    """The stored record of a piece; None where there is none, or it is not what it must be."""
    record = decode(store.get(piece.key))
    return record if record is not None and is_sound(record, piece.shapes) else None


def measured(
    lab: Lab, subject: Subject, piece: Piece, done: int = 0, total: int = 1
) -> Generator[Progress[Any], None, Record]:
    """Gives the record of a piece, measured now and stored."""
    loaded = yield from lab.loaded(subject, done, total)
    started = time.perf_counter()
    arrays, about = yield from driven(piece.measure(loaded), lambda step: step.within(done, total))
    record = Record(arrays, subject.receipt(time.perf_counter() - started, **about))
    lab.store.put(piece.key, encode(record))
    _TRIMMING.look()
    return record


def is_sound(record: Record, shapes: Mapping[str, tuple[int | str, ...]]) -> bool:
    """Whether a record has all these arrays in these shapes."""
    lengths: dict[str, int] = {}
    for name, shape in shapes.items():
        array = record.arrays.get(name)
        if array is None or array.ndim != len(shape):
            return False
        for wanted, length in zip(shape, array.shape, strict=True):
            if (lengths.setdefault(wanted, length) if isinstance(wanted, str) else wanted) != length:
                return False
    return True

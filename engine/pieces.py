"""Read or measure, piece by piece: what every measurement that is stored has in common.

A piece is what is stored under one key: a chunk of questions, a text, a few probes. What is there is read; what is
missing is measured and stored at once, so that a run that is stopped or killed loses the piece in hand and no more.
"""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from cache import Store
from engine.models import rates
from engine.models.loading import Loaded
from engine.models.subject import Lab, Subject
from engine.progress import Progress, driven, may_stop
from engine.records import Record, decode, encode, made_of

Measured = tuple[Mapping[str, np.ndarray], Mapping[str, Any]]  # arrays, and what the receipt says beside the subject
Measuring = Generator[Progress[Any], None, Measured]  # its Progress is within the piece


@dataclass(frozen=True)
class Piece:
    """One record that is wanted: its key, its `size` on the progress bar, the shape of each array of a sound record (a
    letter is the same length wherever it stands), and how it is measured where it is missing or unsound.

    `characters` gives how much is read for it, by passes of this `kind`: for forecasts. `reads` makes of a record what
    is used of it; a stored record that it fails on is unsound.
    """

    key: str
    size: int
    shapes: Mapping[str, tuple[int | str, ...]]
    measure: Callable[[Loaded], Measuring]
    characters: Callable[[], float] | None = None
    kind: rates.Pass = "forward"
    reads: Callable[[Record], object] | None = None


def pieces(
    lab: Lab, subject: Subject, wanted: Iterable[Piece], total: int | None = None, compute: bool = True
) -> Iterator[Progress[list[Record]]]:
    """Yields Progress; its value, after each piece, are the records so far, in order. Without `compute` it ends at the
    first that is not stored.

    `wanted` may be a generator that goes by the records so far, if it is given the `total` of all sizes.
    """
    listed: list[Piece] = []
    if total is None:
        wanted = listed = list(wanted)
        total = sum(piece.size for piece in wanted)
    ends: list[float] | None = None
    records, done, all_cached = [], 0, True
    for number, piece in enumerate(wanted):
        record = found(lab.store, piece)
        if record is None:
            if not compute:
                return
            all_cached = False
            ends = _ends(listed) if ends is None else ends
            steps = measured(lab, subject, piece, done, total)
            record = yield from driven(steps, partial(_placed, ends=ends, number=number))
        records = [*records, record]
        done += piece.size
        yield Progress(done, total, records, cached=all_cached, share=ends[number] if ends else None)


def stored(lab: Lab, wanted: Iterable[Piece]) -> list[Record]:
    """The records that are stored, up to the first that is missing; loads and measures nothing."""
    records = []
    for piece in wanted:
        record = found(lab.store, piece)
        if record is None:
            break
        records.append(record)
    return records


def all_stored(lab: Lab, wanted: Iterable[Piece], records: list[Record] | None = None) -> list[Record] | None:
    """The records if all of them are stored, else None; loads and measures nothing. `records` collects them, for a
    generator of pieces that goes by the records so far."""
    records = [] if records is None else records
    for piece in wanted:
        record = found(lab.store, piece)
        if record is None:
            return None
        records.append(record)
    return records


def found(store: Store, piece: Piece) -> Record | None:
    """The stored record of a piece; None where there is none, or it is not what it must be."""
    record = decode(store.get(piece.key))
    if record is None or not is_sound(record, piece.shapes):
        return None
    return record if piece.reads is None or made_of(record, piece.reads) is not None else None


def measured(
    lab: Lab, subject: Subject, piece: Piece, done: int = 0, total: int = 1
) -> Generator[Progress[Any], None, Record]:
    """Gives the record of a piece, measured now and stored. The `share` of its steps is of the piece alone."""
    is_new = not lab.models.holds(subject.spec)
    loaded = yield from lab.loaded(subject, done, total)
    characters = piece.characters() if piece.characters is not None else 0.0
    measuring, seconds = piece.measure(loaded), 0.0
    try:
        while True:
            began_s = time.perf_counter()
            try:
                with _stoppable(loaded):
                    step = next(measuring)
            except StopIteration as ended:
                seconds += time.perf_counter() - began_s
                arrays, about = ended.value
                break
            seconds += time.perf_counter() - began_s
            if step.cached:  # measured before, in a run that was left
                characters *= 1 - step.part
            yield replace(step.within(done, total), value=step.value, cached=False, share=step.part)
        record = Record(arrays, subject.receipt(seconds, **about))
        rates.learn(lab.store, subject, piece.kind, characters, seconds, is_new)
        lab.store.put(piece.key, encode(record))
        lab.trimming.look()
    finally:
        measuring.close()
    return record


@contextmanager
def _stoppable(loaded: Loaded) -> Iterator[None]:
    """While open, a forward pass can be left in front of each layer: whoever is more urgent never waits for a long
    one, and no number depends on how long passes are."""
    layers = loaded.family.layer_list(loaded.model)
    hooks = [layer.register_forward_pre_hook(lambda module, args: may_stop()) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _placed(step: Progress[Any], ends: Sequence[float], number: int) -> Progress[Any]:
    """A step of one piece, with its share in all of them."""
    if not ends:
        return replace(step, share=None)
    began = ends[number - 1] if number else 0.0
    return replace(step, share=began + (ends[number] - began) * (step.share or 0.0))


def _ends(wanted: Sequence[Piece]) -> list[float]:
    """What share of all there is to read is read at the end of each piece; [] where that is not known."""
    sizes = [piece.characters() for piece in wanted if piece.characters is not None]
    total = sum(sizes)
    return [end / total for end in accumulate(sizes)] if total and len(sizes) == len(wanted) else []


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

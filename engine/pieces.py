"""One stored record, and how it is measured: the smallest part of every measurement.

A piece is stored under one key: a chunk of questions, a text, a few probes. It is stored as soon as it is measured, so
that a run that is stopped or killed loses no more than the piece in hand.
"""

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engine.errors import HeadroomError
from engine.models.loading import Loaded
from engine.models.session import Session, Target
from engine.progress import Progress, count_piece, may_stop
from engine.records import Record, encode, made_of
from engine.timing import observed_timings as rates

Measured = tuple[Mapping[str, np.ndarray], Mapping[str, Any]]  # arrays, and receipt fields in addition to the target's
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


def found(session: Session, piece: Piece) -> Record | None:
    """The stored record of a piece; None where there is none, or it is not what it must be."""
    record = session.record(piece.key)
    if record is None or not is_sound(record, piece.shapes):
        return None
    return record if piece.reads is None or made_of(record, piece.reads) is not None else None


def measured(
    session: Session, target: Target, piece: Piece, done: int = 0, total: int = 1
) -> Generator[Progress[Any], None, Record]:
    """Gives the record of a piece, measured now and stored. The `share` of its steps is of the piece alone.
    HeadroomError: it has failed in another process."""
    if (reason := session.failures.get(piece.key)) is not None:
        raise HeadroomError(reason)
    is_new = not session.models.holds(target.spec)
    loaded = yield from session.loaded(target, done, total)
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
            yield replace(step.within(done, total, piece.size), value=step.value, cached=False, share=step.part)
        record = Record(arrays, target.receipt(seconds, **about))
        rates.learn(session.store, target, piece.kind, characters, seconds, is_new)
        session.store.put(piece.key, encode(record))
        count_piece.get()()
        session.trimming.trim_if_grown()
    finally:
        measuring.close()
    return record


@contextmanager
def _stoppable(loaded: Loaded) -> Iterator[None]:
    """While open, a forward pass can stop before each layer: more urgent work never waits for a long one, and no number
    depends on how long passes are."""
    with ExitStack() as hooks:
        for layer in loaded.family.layer_list(loaded.model):
            hooks.enter_context(layer.register_forward_pre_hook(lambda module, args: may_stop()))
        yield


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

"""Complete results that were read, kept in memory: the next tab that shows them need not read hundreds of records."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from engine.measurement import Measurement, StoredPart
from engine.memory import Kept
from engine.progress import Progress
from pages.ui.page.runtime import session, store

T = TypeVar("T")
KEPT = Kept[StoredPart[Any]](64_000_000)  # bytes
PART_BYTES = 100  # of a number, a text, or an object


def read_cached(of: Measurement[T]) -> Iterator[Progress[StoredPart[T]]]:
    """Yields Progress while it reads what is stored of a measurement. A complete result is kept until something else is
    stored."""
    key = of.key, str(store().directory), store().n_puts
    if key in KEPT:
        yield Progress(1, 1, KEPT.get(key, partial(of.stored_part, session()), _bytes_of), cached=True)
        return
    for step in of.read(session()):
        yield step
        if step.value is not None and step.value.is_complete and key[-1] == store().n_puts:
            found = step.value
            KEPT.get(key, lambda found=found: found, _bytes_of)


def stored_cached(of: Measurement[T]) -> T | None:
    """Returns the value if all of it is stored, or else None, as `Measurement.stored`; from memory if it was read."""
    steps = [step.value for step in read_cached(of) if step.value is not None]
    return steps[-1].value if steps and steps[-1].is_complete else None


def _bytes_of(value: Any) -> int:
    """Returns about how many bytes a value takes."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, Mapping):
        return sum(map(_bytes_of, value.values()), PART_BYTES)
    if isinstance(value, list | tuple):
        return sum(map(_bytes_of, value), PART_BYTES)
    if is_dataclass(value):
        return sum((_bytes_of(getattr(value, field.name)) for field in fields(value)), PART_BYTES)
    return PART_BYTES

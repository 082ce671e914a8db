"""Stored records: a `Record` of arrays and a JSON receipt, its codec, and its `Key`."""

import hashlib
import importlib.metadata
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache as once
from typing import Any, TypeVar

import numpy as np

from cache.typed_json import decode_json

SCHEMA = "3"  # of keys, packing and scoring code: raise it whenever the same key could mean other numbers
MAX_HEADER_BYTES = 1_000_000
# Results under keys that say all that changes them: not views and texts under a name, nor what holds on one machine
TRAVELS = re.compile(r"\d+/(?!(?:rates|speed|tuning)/)[^/]+/[0-9a-f]{40}")
T = TypeVar("T")
_notes: ContextVar[dict[bytes, Any] | None] = ContextVar("notes", default=None)


@once
def version(package: str) -> str:
    """The installed version of a package; read once, as every key asks for some."""
    return importlib.metadata.version(package)


def public(version: str) -> str:
    """Returns a version without its local part, which names a build: "2.13.0" of "2.13.0+cpu"."""
    return version.partition("+")[0]


@dataclass(frozen=True)
class Record:
    """Named arrays with the receipt that says what they are: key fields, versions, times, machine."""

    arrays: Mapping[str, np.ndarray]
    receipt: Mapping[str, Any]


class Key(str):
    """A store key, which is the digest of `fields`."""

    kind: str
    fields: Mapping[str, Any]

    def without(self, *names: str) -> "Key":
        """The key of the same fields without these."""
        return canonical_key(self.kind, {name: each for name, each in self.fields.items() if name not in names})

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


def canonical_key(kind: str, fields: Mapping[str, Any]) -> Key:
    """Store key of `fields`: same content in any order, same key. Floats and sets are refused (TypeError)."""
    _refuse_floats(fields)
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    key = Key(f"{SCHEMA}/{kind}/{hashlib.blake2b(text.encode(), digest_size=20).hexdigest()}")
    key.kind, key.fields = kind, fields
    return key


def travels(key: str) -> bool:
    """Whether what lies under this key holds on any machine, and forever."""
    return TRAVELS.fullmatch(key) is not None


def encode(record: Record) -> bytes:
    """The record as one safetensors blob; arrays keep dtype and shape, the receipt travels in the header."""
    from safetensors.numpy import save

    # safetensors writes a transposed view wrongly, without an error
    arrays = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in record.arrays.items()}
    text = json.dumps(record.receipt, sort_keys=True, allow_nan=False)
    if len(text) > MAX_HEADER_BYTES // 2:
        raise ValueError(f"receipt of {len(text):,} characters is too long; put big things into arrays")
    blob = save(arrays, metadata={"record": text})
    _note(blob, record.receipt)
    return blob


def decode(blob: bytes | None) -> Record | None:
    """The record of a blob that `encode` wrote; None for None and for anything malformed, which is then a miss."""
    if blob is None:
        return None
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        length = int.from_bytes(blob[:8], "little")
        if length > MAX_HEADER_BYTES:
            return None
        header = decode_json(blob[8 : 8 + length], dict[str, dict[str, Any]], "header")
        receipt = decode_json(str(header["__metadata__"]["record"]).encode(), dict[str, Any], "receipt")
        record = Record(load(blob), receipt)
    except (SafetensorError, KeyError, ValueError, TypeError):
        return None
    _note(blob, receipt)
    return record


def _note(blob: bytes, receipt: Mapping[str, Any]) -> None:
    if (notes := _notes.get()) is not None:
        notes[hashlib.blake2b(blob, digest_size=20).digest()] = receipt


def pack_json(value: Any) -> np.ndarray:
    """(bytes,) a JSON value as an array of a record."""
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def unpack_json(array: np.ndarray) -> Any:
    """The value that `pack_json` packed; ValueError if it is none."""
    return json.loads(array.tobytes())


def made_of(record: Record | None, reads: Callable[[Record], T]) -> T | None:
    """What `reads` makes of a record that others may have written; None without one, or if it cannot be read."""
    try:
        return None if record is None else reads(record)
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError):
        return None


@contextmanager
def noted(notes: dict[bytes, Any]) -> Iterator[None]:
    """While open, the receipt of every record that is read or stored here goes into `notes`, by the digest of its
    blob."""
    outer, token = _notes.get(), _notes.set(notes)
    try:
        yield
    finally:
        _notes.reset(token)
        if outer is not None:
            outer.update(notes)


def _refuse_floats(value: Any) -> None:
    if isinstance(value, Mapping):
        for name, item in value.items():
            if not isinstance(name, str):
                raise TypeError(f"key field name {name!r} must be text")
            _refuse_floats(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _refuse_floats(item)
    elif not isinstance(value, str | int | None):
        raise TypeError(f"a key holds text, whole numbers, booleans, lists and mappings only, got {value!r}")

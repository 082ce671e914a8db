"""Whether a stored result can be decoded: the store asks it of results that others have shared, and `verify` of all."""

import json
from typing import Any

from engine.questions.requests import questions_in
from engine.records import SCHEMA, Record, decode, made_of


def is_readable(key: str, blob: bytes) -> bool:
    """Whether the blob under a key can be decoded. Results of other versions are never decoded."""
    if not key.startswith(f"{SCHEMA}/"):
        return True
    reads = questions_in if key.startswith(f"{SCHEMA}/requests/") else _json_in
    return made_of(decode(blob), reads) is not None


def _json_in(record: Record) -> list[Any]:
    """What the arrays of a record hold that are JSON."""
    return [json.loads(record.arrays[name].tobytes()) for name in ("json", "strings") if name in record.arrays]

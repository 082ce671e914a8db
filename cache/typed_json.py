"""JSON that another process or person may have written, with types.

msgspec decodes into the type that is asked for and names the field that is wrong. It knows no NaN and no infinity, and
takes 32.0 for no whole number. Depth and whole numbers are bounded here, as what reads the values next is not.
"""

import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, TypeVar

import msgspec

from cache.files import InvalidFile, read_bytes

MAX_DEPTH = 64
MAX_JSON_BYTES = 200_000_000
MAX_INT = 2**63 - 1
BOM = b"\xef\xbb\xbf"
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_INT)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=MAX_INT)]
Threads = Annotated[int, msgspec.Meta(ge=1, le=1024)]
Plain = str | int | float | bool | None | list[str | int | float | bool | None]
T = TypeVar("T")


def read_json(
    path: str | os.PathLike[str], kind: type[T], max_bytes: int = MAX_JSON_BYTES, max_int: float = MAX_INT
) -> T:
    """Returns what a JSON file holds, as `kind`. OSError and InvalidFile as of `read_bytes` and `decode_json`."""
    return decode_json(read_bytes(path, max_bytes), kind, path, max_int)


def decode_json(raw: bytes, kind: type[T], where: object, max_int: float = MAX_INT) -> T:
    """Returns the value as `kind`, such as a dataclass or a TypedDict. InvalidFile names the field, after `where`."""
    try:
        return _checked(msgspec.json.decode(raw.removeprefix(BOM), type=kind), where, max_int)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidFile(f"{where}: {_reason(error)}") from error


def convert(value: Any, kind: type[T], where: object) -> T:
    """Returns a decoded value as `kind`. InvalidFile names the field, after `where`."""
    try:
        return _checked(msgspec.convert(value, kind), where)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidFile(f"{where}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, msgspec.ValidationError):
        what, _, field = str(error).partition(" - at `$")
        return f"{field.strip('.`')}: {what}" if field else what
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def _checked(value: T, where: object, max_int: float = MAX_INT) -> T:
    """The value if it is nested at most MAX_DEPTH deep and its whole numbers are at most `max_int`, of either sign."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        if any(isinstance(each, int) and not -max_int <= each <= max_int for each in level):
            raise InvalidFile(f"{where}: it has a whole number of more than 64 bits")
        level = [inner for each in level for inner in _items(each)]
        if not level:
            return value
    raise InvalidFile(f"{where}: it is nested too deeply")


def _items(value: Any) -> Any:
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, list | tuple):
        return value
    return [getattr(value, field.name) for field in fields(value)] if is_dataclass(value) else ()

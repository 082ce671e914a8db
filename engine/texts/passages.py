"""Texts that a user brings: checked before anything is measured on them, and remembered on this computer under a name.

Remembered texts lie in the result store and nowhere else; deleting the store deletes them.
"""

import hashlib
import json

from cache import Store
from cache.typed_json import InvalidFile, decode_json
from engine.errors import HeadroomError

MAX_BYTES = 1_000_000
MAX_NAME = 80  # characters
INDEX = "passages"  # the store's key of {name: key of its text}


def checked(text: str, what: str = "the text", most: int = MAX_BYTES) -> str:
    """The text with line ends as `\\n`; HeadroomError where there is nothing to measure, or more than `most` bytes."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise HeadroomError(f"{what} is empty or has only blanks; paste or load a few sentences")
    if "\0" in text:
        raise HeadroomError(f"{what} has NUL characters, so it is no plain text; save it as a .txt file first")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise HeadroomError(f"{what} has half a character at {error.start + 1:,}; copy it once more") from error
    if size > most:
        raise HeadroomError(f"{what} has {size:,} bytes, at most {most:,} can be measured; take a part of it")
    return text


def text_digest(text: str) -> str:
    """Digest of a text, for keys."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def decoded(raw: bytes, name: str, most: int = MAX_BYTES) -> str:
    """The text of a UTF-8 file, checked; HeadroomError says where it is not UTF-8."""
    if len(raw) > 2 * most:
        raise HeadroomError(f"{name} has {len(raw):,} bytes, at most {most:,} can be measured; take a part of it")
    try:
        return checked(raw.decode("utf-8-sig"), name, most)
    except UnicodeDecodeError as error:
        raise HeadroomError(
            f"{name} is not UTF-8 text (byte {error.start + 1:,}); save it again with the encoding UTF-8"
        ) from error


def remember(name: str, text: str, store: Store) -> bool:
    """Keeps the text under its name, in place of an older one; False where it is kept in memory only."""
    name = name.strip()
    if not name or len(name) > MAX_NAME or not name.isprintable():
        raise HeadroomError(f"a name of {len(name)} characters cannot be kept; use 1 to {MAX_NAME} printable ones")
    text = checked(text)
    kept = store.put(_key(name), json.dumps([name, text]).encode())
    return store.put(INDEX, json.dumps(sorted({*names(store), name})).encode()) and kept


def names(store: Store) -> list[str]:
    """The names that texts are remembered under."""
    try:
        return decode_json(store.get(INDEX) or b"[]", list[str], INDEX)
    except InvalidFile:
        return []


def recall(name: str, store: Store) -> str | None:
    """The text remembered under a name; None where there is none any more."""
    try:
        kept_name, text = decode_json(store.get(_key(name)) or b"", tuple[str, str], name)
    except InvalidFile:
        return None
    return text if kept_name == name else None


def forget(name: str, store: Store) -> None:
    """Deletes a remembered text."""
    store.delete(_key(name))
    store.put(INDEX, json.dumps([other for other in names(store) if other != name]).encode())


def _key(name: str) -> str:
    return f"passage/{hashlib.blake2b(name.encode(), digest_size=20).hexdigest()}"

"""User texts: checked before they are measured, and remembered on this computer under a name.

Remembered texts are only in the result store; deleting the store deletes them.
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
    """Returns the text with line ends as `\\n`. HeadroomError: an empty or invalid text, or more than `most` bytes."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise HeadroomError(f"{what} is empty or only whitespace; paste or load a few sentences")
    if "\0" in text:
        raise HeadroomError(f"{what} has NUL characters, so it is not plain text; save it as a .txt file first")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise HeadroomError(f"{what} has half a character at {error.start + 1:,}; copy it again") from error
    if size > most:
        raise HeadroomError(f"{what} has {size:,} bytes, at most {most:,} can be measured; take a part of it")
    return text


def text_digest(text: str) -> str:
    """Returns the digest of a text, for keys."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def decoded(raw: bytes, name: str, most: int = MAX_BYTES) -> str:
    """Returns the checked text of a UTF-8 file. HeadroomError: as for `checked`, or not UTF-8."""
    if len(raw) > 2 * most:
        raise HeadroomError(f"{name} has {len(raw):,} bytes, at most {most:,} can be measured; take a part of it")
    try:
        return checked(raw.decode("utf-8-sig"), name, most)
    except UnicodeDecodeError as error:
        raise HeadroomError(
            f"{name} is not UTF-8 text (byte {error.start + 1:,}); save it again with the encoding UTF-8"
        ) from error


def remember(name: str, text: str, store: Store) -> bool:
    """Stores the text under its name, replacing an older one; returns False if it is kept in memory only."""
    name = name.strip()
    if not name or len(name) > MAX_NAME or not name.isprintable():
        raise HeadroomError(f"a name of {len(name)} characters cannot be kept; use 1 to {MAX_NAME} printable ones")
    text = checked(text)
    kept = store.put(_key(name), json.dumps([name, text]).encode())
    return store.put(INDEX, json.dumps(sorted({*names(store), name})).encode()) and kept


def names(store: Store) -> list[str]:
    """Returns the names of the remembered texts."""
    try:
        return decode_json(store.get(INDEX) or b"[]", list[str], INDEX)
    except InvalidFile:
        return []


def recall(name: str, store: Store) -> str | None:
    """Returns the text remembered under a name, or None if missing."""
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

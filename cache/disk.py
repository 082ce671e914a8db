"""How one value lies on disk: framed with a digest, and never through pickle.

diskcache pickles keys and values by default (CVE-2025-69872). This Disk refuses every one of those paths, so what a
folder holds can at worst be wrong bytes, which the digest finds, and never code.
"""

import hashlib
import os
from pathlib import Path
from typing import Any

from diskcache import UNKNOWN

from cache.diskcache_internals import MODE_BINARY, MODE_RAW, FileDisk

MAGIC = b"HR1\0"
DIGEST_BYTES = 16
HEADER_BYTES = len(MAGIC) + 2 * DIGEST_BYTES


class CorruptEntry(OSError):
    """A stored entry that is not what was written. An OSError, because diskcache then treats the entry as a miss."""


def key_digest(key: str) -> bytes:
    """Digest that ties a value to its key."""
    return hashlib.blake2b(key.encode(), digest_size=DIGEST_BYTES).digest()


def _value_digest(key_part: bytes, payload: bytes) -> bytes:
    return hashlib.blake2b(key_part + payload, digest_size=DIGEST_BYTES).digest()


class BytesDisk(FileDisk):
    """Keys are str, values are bytes, framed as MAGIC + key digest + digest of both + payload; all else is refused."""

    def put(self, key: Any) -> tuple[str, bool]:
        if not isinstance(key, str):
            raise TypeError(f"a key must be str, got {type(key).__name__}")
        return str(key), True  # of a subclass, the text alone

    def get(self, key: Any, raw: Any) -> str:
        # called when iterating; the base class would unpickle a key that is not raw
        if not raw or type(key) is not str:
            raise CorruptEntry("a key in the store is not text")
        return key

    def store(self, value: Any, read: bool, key: Any = UNKNOWN) -> Any:
        if type(value) is not bytes or not isinstance(key, str) or read:
            raise TypeError("the store holds bytes under str keys only")
        key_part = key_digest(key)
        return super().store(MAGIC + key_part + _value_digest(key_part, value) + value, False)

    def fetch(self, mode: Any, filename: Any, value: Any, read: bool) -> tuple[bytes, bytes]:
        """(key digest, payload) of an entry; CorruptEntry for anything this class did not write."""
        if read or mode not in (MODE_RAW, MODE_BINARY):
            raise CorruptEntry(f"entry of kind {mode!r} refused")
        if mode == MODE_BINARY and not os.path.isfile(self._inside(filename)):
            raise CorruptEntry("the file of an entry is missing")  # or a pipe, which would block
        frame = super().fetch(mode, filename, value, False)
        if type(frame) is not bytes or len(frame) < HEADER_BYTES or frame[: len(MAGIC)] != MAGIC:
            raise CorruptEntry("entry has no valid frame")
        key_part = frame[len(MAGIC) : len(MAGIC) + DIGEST_BYTES]
        digest, payload = frame[len(MAGIC) + DIGEST_BYTES : HEADER_BYTES], frame[HEADER_BYTES:]
        if digest != _value_digest(key_part, payload):
            raise CorruptEntry("entry does not match its digest")
        return key_part, payload

    def filename(self, key: Any = UNKNOWN, value: Any = UNKNOWN) -> tuple[str, str]:
        name, path = super().filename(key, value)
        if not self._is_inside(name):
            raise PermissionError("a folder in the store leads outside it")  # nothing is stored, so no CorruptEntry
        return name, path

    def remove(self, file_path: Any) -> None:
        self._inside(file_path)
        super().remove(file_path)

    def _inside(self, filename: Any) -> str:
        """Path of an entry's file; CorruptEntry where it leads out of the store, symlinks followed."""
        if type(filename) is not str or "\0" in filename:
            raise CorruptEntry("the file name of an entry is not text")
        if not self._is_inside(filename):
            raise CorruptEntry("an entry points outside the store")
        return os.path.join(self.folder, filename)

    def _is_inside(self, filename: str) -> bool:
        folder = os.path.realpath(self.folder)
        return Path(os.path.realpath(os.path.join(folder, filename))).is_relative_to(folder)

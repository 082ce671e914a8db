"""Shipped records: what the default views of the embedded model show before anything is measured on this computer.

They lie in one read-only file of the package, apart from every result store: a `Session` that is given them reads them
where its store has nothing. The app's session is; those of commands, studies and benchmarks are not.
"""

import os
import zlib
from functools import cache as once
from pathlib import Path

import msgspec

from engine import demo
from engine.records import Key, Record, decode

FILE = demo.FOLDER / "shipped.msgpack"  # written by `python -m tests.write_shipped`
MARK = "shipped"  # the field of a receipt that says so
ASKED = "HEADROOM_SHIPPED"  # environment variable: 0 leaves them out


class ShippedRecords(msgspec.Struct, frozen=True):
    """Records by the digest of their key without versions, as `packed` with the `common` bytes.

    Of a record that was measured with other versions of the libraries, the receipt names those.
    """

    common: bytes  # what many records have in common: zlib's dictionary
    models: frozenset[str]  # digests of the models that they are of
    records: dict[bytes, bytes]

    def record(self, key: str) -> Record | None:
        """Returns the shipped record for a key, whatever versions the key names; None if there is none."""
        packed = self.records.get(digest(key)) if isinstance(key, Key) else None
        if packed is None:
            return None
        unpacking = zlib.decompressobj(zdict=self.common)
        return decode(unpacking.decompress(packed) + unpacking.flush())


def digest(key: Key) -> bytes:
    """Returns the digest of a key without the versions that it names."""
    return bytes.fromhex(key.without_versions.rpartition("/")[2])


def pack(blob: bytes, common: bytes) -> bytes:
    """Returns an encoded record, compressed."""
    packing = zlib.compressobj(9, zdict=common)
    return packing.compress(blob) + packing.flush()


def shipped_records() -> ShippedRecords | None:
    """Returns the shipped records; None without the file, or if HEADROOM_SHIPPED is 0."""
    return None if os.environ.get(ASKED) == "0" else _read(FILE)


@once
def _read(file: Path) -> ShippedRecords | None:
    try:
        return msgspec.msgpack.decode(file.read_bytes(), type=ShippedRecords)
    except (OSError, msgspec.MsgspecError):
        return None

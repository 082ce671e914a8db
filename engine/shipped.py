"""Shipped records: what the default views of the embedded model show before anything is measured on this computer.

They lie in one read-only file of the package, apart from every result store: a `Session` that is given them reads them
where its store has nothing. The app's session is; those of commands and benchmarks are not.
"""

import os
import zlib
from functools import cache as once
from pathlib import Path

import msgspec

from engine import demo
from engine.records import Key, Record, decode

FILE = demo.FOLDER / "shipped.msgpack"  # written by `python -m scripts.make_demo.shipped`
VERSIONS, KERNELS = ("versions",), ("products",)  # fields of keys
MARK = "shipped"  # the field of a receipt that says so
DIGEST_BYTES = 8  # enough for thousands of records, and there are three digests of each
ASKED = "HEADROOM_SHIPPED"  # environment variable: 0 leaves them out


class ShippedRecords(msgspec.Struct, frozen=True):
    """Records of some models, with any versions of the libraries, and preferably with the kernels of a key. Receipts
    name the versions and the kernels that a record was measured with."""

    models: frozenset[str]  # digests
    common: bytes  # what many records have in common: zlib's dictionary
    records: dict[bytes, bytes]  # packed, by the digest of the key without versions
    of_any_kernels: dict[bytes, bytes]  # one of these digests, by that of the key without versions and kernels

    def record(self, key: str) -> Record | None:
        """Returns the shipped record for a key, whatever versions it names; None if there is none."""
        if not isinstance(key, Key):
            return None
        of_any_kernels = self.of_any_kernels.get(digest(key, *VERSIONS, *KERNELS), b"")
        packed = self.records.get(digest(key, *VERSIONS)) or self.records.get(of_any_kernels)
        return None if packed is None else decode(self.unpacked(packed))

    def unpacked(self, packed: bytes) -> bytes:
        """Returns an encoded record."""
        unpacking = zlib.decompressobj(zdict=self.common)
        return unpacking.decompress(packed) + unpacking.flush()


def digest(key: Key, *but: str) -> bytes:
    """Returns the beginning of the digest of a key without these of its fields."""
    return bytes.fromhex(key.without(*but).rpartition("/")[2])[:DIGEST_BYTES]


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

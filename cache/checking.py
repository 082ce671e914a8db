"""`verify_folder`: every entry against its digest, every value file against the rows; and what a folder weighs."""

import os
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cache.disk import BytesDisk, CorruptEntry, key_digest
from cache.diskcache_internals import (
    DBNAME,
    delete_row,
    file_names,
    is_sound,
    row_ids,
    stored_row,
    value_files,
    write_lock,
)
from cache.opening import connected

ORPHAN_AGE_S = 3600  # a value file without a row is removed when older: a younger one may be about to get its row
IsReadable = Callable[[str, bytes], bool]  # whether a blob under a key can be decoded


def any_blob(key: str, blob: bytes) -> bool:
    """The IsReadable of a store that knows no format."""
    return True


@dataclass(frozen=True)
class Verified:
    """What `Store.verify` found: entries read, keys of the damaged (now deleted), files without a row (removed)."""

    n_checked: int = 0
    bad_keys: tuple[str, ...] = ()
    n_orphans_removed: int = 0


def verify_folder(folder: Path, is_readable: IsReadable) -> Verified:
    """Reads all of a store, deletes what no read could ever serve; sqlite3.DatabaseError when the database is damaged.

    Other threads and processes may go on writing: a row is judged again under the write lock before it is deleted.
    """
    disk, bad_keys = BytesDisk(str(folder)), []
    with connected(folder / DBNAME) as connection:
        if not is_sound(connection):
            raise sqlite3.DatabaseError("the database does not pass SQLite's integrity check")
        rowids = row_ids(connection)
        for rowid in rowids:
            if _is_bad(connection, rowid, disk, is_readable):
                bad_keys += _delete_if_bad(connection, rowid, disk, is_readable)
        old = [file for file in value_files(folder) if _is_old(file)]
        known = file_names(connection)
    orphans = [file for file in old if str(file.relative_to(folder)) not in known]
    for file in orphans:
        file.unlink(missing_ok=True)
    return Verified(len(rowids), tuple(bad_keys), len(orphans))


def _is_old(file: Path) -> bool:
    try:
        return file.lstat().st_mtime < time.time() - ORPHAN_AGE_S
    except FileNotFoundError:
        return False  # replaced meanwhile


def _is_bad(connection: sqlite3.Connection, rowid: int, disk: BytesDisk, is_readable: IsReadable) -> bool:
    row = stored_row(connection, rowid)
    if row is None:
        return False  # deleted since
    key, raw, mode, filename, value = row
    try:
        key_part, blob = disk.fetch(mode, filename, value, False)
        return key_part != key_digest(disk.get(key, raw)) or not is_readable(key, blob)
    except (CorruptEntry, FileNotFoundError):  # another OSError is the disk's trouble, not the entry's
        return True


def _delete_if_bad(connection: sqlite3.Connection, rowid: int, disk: BytesDisk, is_readable: IsReadable) -> list[str]:
    """[its key] when the row was still bad and is gone now."""
    with write_lock(connection):
        row = stored_row(connection, rowid)
        if row is None or not _is_bad(connection, rowid, disk, is_readable):
            return []
        delete_row(connection, rowid)
    key, _, _, filename, _ = row
    if filename is not None:
        try:
            disk.remove(filename)
        except CorruptEntry:
            pass  # it lies outside the store: not ours to remove
    return [key if type(key) is str else f"row {rowid}, whose key is not text"]


def folder_bytes(folder: Path) -> int:
    """Bytes of all files in `folder`; 0 when there is none."""
    n_bytes = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                n_bytes += os.lstat(os.path.join(place, name)).st_size
            except OSError:
                pass  # deleted meanwhile
    return n_bytes

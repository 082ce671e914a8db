"""Opening a store's folder: what counts as broken, what as "not now", and which settings are passed.

diskcache keeps its settings in the database and lets the stored ones override its defaults, runs some as PRAGMAs and
sets all as attributes of the Cache. So they are inspected first, and every one is passed.
"""

import os
import shutil
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cache.disk import BytesDisk
from cache.diskcache_internals import DBNAME, METADATA, OWN_FILES, ThreadedCache, setting_names, write_lock

LOCK_WAIT_S = 5  # how long one statement waits for another process's write
SETTINGS: dict[str, Any] = {
    "statistics": 0,
    "tag_index": 0,
    "eviction_policy": "none",  # eviction would silently drop hours of work
    "size_limit": 2**63 - 1,
    "cull_limit": 0,
    "sqlite_auto_vacuum": 1,
    "sqlite_cache_size": 2**13,  # pages
    "sqlite_journal_mode": "wal",
    "sqlite_mmap_size": 0,  # a mapped database that somebody truncates kills the process with SIGBUS
    "sqlite_synchronous": 1,
    "disk_min_file_size": 2**15,  # bytes; larger values become files
    "disk_pickle_protocol": 0,  # never used, but a stored one would override it
}


class BrokenStore(Exception):
    """The folder holds something that is not a store of ours, or no longer one."""


class SelfClosing(sqlite3.Connection):
    """A connection that is closed when its thread or its cache is gone; Python 3.13 warns of one that is not."""

    def __del__(self) -> None:
        with suppress(sqlite3.ProgrammingError):  # it could never be opened
            self.close()


class ResultCache(ThreadedCache):
    """diskcache's Cache over BytesDisk that can tell whether its database is still the one in the folder."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / DBNAME
        super().__init__(folder, BytesDisk, LOCK_WAIT_S, SETTINGS)
        self.inode = inode_of(self.database)

    def connect(self, timeout_s: float) -> sqlite3.Connection:
        """A connection of one thread."""
        options = {"timeout": timeout_s, "isolation_level": None, "check_same_thread": False}
        connection = sqlite3.connect(self.database, factory=SelfClosing, **options)
        connection.text_factory = readable
        return connection

    def in_place(self) -> bool:
        """False when the folder was deleted or replaced: on Linux an open database goes on in the unlinked file."""
        return self.inode is not None and inode_of(self.database) == self.inode


def open_cache(folder: Path) -> ResultCache:
    """The cache in `folder`, made when missing.

    BrokenStore means set it aside; OperationalError and OSError (locked, read-only, full, a file in the way) that the
    existing files are valid.
    """
    if os.path.expandvars(folder) != str(folder):
        raise OSError("the name of the folder holds a $, give another")  # diskcache would expand the variable
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    names = os.listdir(folder)  # one look: between two, another process may make the database
    if names and DBNAME not in names and all(map(OWN_FILES.fullmatch, names)):
        # somebody is deleting it: their rm must not go on among our new files, which have the same names
        discard(folder)
        folder.mkdir(mode=0o700, exist_ok=True)
    try:
        if (folder / DBNAME).exists():
            _inspect(folder / DBNAME)
        return ResultCache(folder)
    except sqlite3.OperationalError:  # first, because it is a DatabaseError too
        raise
    except (sqlite3.DatabaseError, TypeError, ValueError, AttributeError) as error:
        raise BrokenStore(str(error)) from error


def discard(folder: Path) -> None:
    """Deletes a store, in one step for other processes that have it open. Files that are not a store's are kept."""
    names = os.listdir(folder)
    if all(map(OWN_FILES.fullmatch, names)):
        folder = folder.rename(folder.with_name(f"results.deleted-{uuid.uuid4().hex}"))
    for path in (folder / name for name in names if OWN_FILES.fullmatch(name)):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    with suppress(OSError):  # not empty: the user's files, or another process's newest result
        folder.rmdir()


def _inspect(database: Path) -> None:
    """Raises BrokenStore for stored settings or columns that are not diskcache's, OperationalError when locked."""
    with connected(database) as connection:
        try:
            names = setting_names(connection)
        except sqlite3.OperationalError as error:
            if "no such column" in str(error):
                raise BrokenStore(str(error)) from error
            if "no such table" not in str(error):
                raise
            names = set()  # another process is just making it
        if names - SETTINGS.keys() - METADATA.keys():
            raise BrokenStore("unknown settings")
        # diskcache waits up to a minute for a locked database when it opens one; this waits LOCK_WAIT_S
        with write_lock(connection):
            pass


@contextmanager
def connected(database: Path) -> Iterator[sqlite3.Connection]:
    """A connection that is closed at the end and never makes the file."""
    connection = sqlite3.connect(
        f"{database.absolute().as_uri()}?mode=rw", uri=True, timeout=LOCK_WAIT_S, isolation_level=None
    )
    connection.text_factory = readable
    try:
        yield connection
    finally:
        connection.close()


def readable(text: bytes) -> str:
    """The text, with marks for bytes that are not UTF-8: one damaged row must not fail a whole query."""
    return text.decode(errors="replace")


def inode_of(file: Path) -> tuple[int, int] | None:
    """Which file this is, whatever its name; None when there is none."""
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino

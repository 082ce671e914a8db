"""The private names and the tables of diskcache: read this module first when upgrading diskcache.

Everything here was read in `diskcache/core.py` of diskcache 5.6.3, the version in requirements.txt. The other modules
of the package call it and hold no SQL. `tests/store/test_diskcache_internals.py` has a test for each name and column.
"""

import os
import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from diskcache import Cache, Disk, Timeout, core

DBNAME, METADATA = core.DBNAME, core.METADATA  # the file of the database; the settings it counts in
OWN_FILES = re.compile(r"cache\.db(-wal|-shm|-journal)?|[0-9a-f]{2}")  # and folders, in the folder of a cache
MODE_RAW, MODE_BINARY = core.MODE_RAW, core.MODE_BINARY  # a value in its row, and one in a file
COLUMNS = "rowid, key, raw, store_time, expire_time, access_time, access_count, tag, size, mode, filename, value"
# A value in a row has size 0; one in a file has the size of the file.
SIZES = """SELECT key, CAST(CASE WHEN filename IS NULL THEN length(value) ELSE size END AS INTEGER)
           FROM Cache WHERE raw AND typeof(key) = 'text'"""


class FileDisk(Disk):
    """A Disk that leaves no half-written file behind.

    5.6.3: `Disk.store` writes the file of a large value with `_write`, and does not remove it if that fails.
    `Disk._directory` is the folder of the cache.
    """

    @property
    def folder(self) -> str:
        """The folder that file names are relative to."""
        return self._directory

    def _write(self, full_path: str, *content: Any) -> int | None:
        try:
            return super()._write(full_path, *content)
        except OSError:
            with suppress(OSError):  # the disk may be full
                os.remove(full_path)
            raise


class ThreadedCache(Cache, ABC):
    """A Cache whose connections come from `connect`, which a subclass provides.

    5.6.3: every statement goes through the property `_con`, this thread's connection, which is kept as `_local.con`
    with its process as `_local.pid`; `_timeout` is the wait for a lock. diskcache's own `_con` runs each PRAGMA named
    in the stored settings. This one runs those of `settings`.
    """

    def __init__(self, folder: Path, disk: type[Disk], timeout_s: int, settings: dict[str, Any]) -> None:
        self.pragmas = {name: value for name, value in settings.items() if name.startswith("sqlite_")}
        try:
            super().__init__(str(folder), timeout=timeout_s, disk=disk, **settings)
        except BaseException:
            self.close()  # the connection it opened before it failed
            raise

    @abstractmethod
    def connect(self, timeout_s: float) -> sqlite3.Connection:
        """A new connection to the database, in autocommit mode."""

    @property
    def _con(self) -> sqlite3.Connection:
        if getattr(self._local, "pid", None) != os.getpid():  # a connection must not be used across a fork
            self._local.pid, self._local.con = os.getpid(), None
        if self._local.con is None:
            self._local.con = self.connect(self._timeout)
            for name, value in self.pragmas.items():
                self.reset(name, value, update=False)
        return self._local.con

    def close(self) -> None:
        """Closes this thread's connection; those of other threads close when they end, or this cache does."""
        if getattr(self._local, "con", None) is not None:
            self._local.con.close()
            self._local.con = None


def cause(error: Exception) -> BaseException | None:
    """The error of SQLite, such as "database is locked". 5.6.3 raises an empty Timeout for any that BEGIN raises."""
    return error.__context__ if isinstance(error, Timeout) else error


def setting_names(connection: sqlite3.Connection) -> set[str]:
    """The names in the table of settings; OperationalError if a table or column is missing."""
    names = {name for (name,) in connection.execute("SELECT key FROM Settings")}
    connection.execute(f"SELECT {COLUMNS} FROM Cache LIMIT 0")
    return names


def stored_sizes(connection: sqlite3.Connection) -> list[tuple[str, int | None]]:
    """(key, bytes of its stored value) of every text key. Unlike diskcache's iteration it does not end at a key that
    the Disk refuses."""
    return connection.execute(SIZES).fetchall()


def is_sound(connection: sqlite3.Connection) -> bool:
    """Whether the database passes SQLite's integrity check."""
    return connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def row_ids(connection: sqlite3.Connection) -> list[int]:
    """The ids of all rows."""
    return [rowid for (rowid,) in connection.execute("SELECT rowid FROM Cache ORDER BY rowid").fetchall()]


def stored_row(connection: sqlite3.Connection, rowid: int) -> tuple[Any, ...] | None:
    """(key, raw, mode, filename, value) of a row, or None if it was deleted."""
    query = "SELECT key, raw, mode, filename, value FROM Cache WHERE rowid = ?"
    return connection.execute(query, (rowid,)).fetchone()


def delete_row(connection: sqlite3.Connection, rowid: int) -> None:
    """Deletes a row, and not its file. 5.6.3: triggers keep the counts among the settings."""
    connection.execute("DELETE FROM Cache WHERE rowid = ?", (rowid,))


def file_names(connection: sqlite3.Connection) -> set[Any]:
    """The file names in all rows, relative to the folder."""
    return {name for (name,) in connection.execute("SELECT filename FROM Cache WHERE filename IS NOT NULL")}


def value_files(folder: Path) -> list[Path]:
    """The files of values in the folder of a cache. 5.6.3 makes them two folders down, with random names."""
    return [Path(place, name) for place, _, names in os.walk(folder) for name in names if name.endswith(".val")]


@contextmanager
def write_lock(connection: sqlite3.Connection) -> Iterator[None]:
    """The lock that diskcache's own writes take: no other connection writes meanwhile."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("COMMIT")

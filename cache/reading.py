"""Reads a store that cannot be written to, such as one on a disk mounted read-only."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from cache.disk import BytesDisk
from cache.diskcache_internals import DBNAME, first_key, stored_value
from cache.opening import SETTINGS, inode_of, readable


class ReadOnlyCache:
    """A `ResultCache` for a read-only folder; writes raise OperationalError."""

    writes = False

    def __init__(self, folder: Path) -> None:
        self.database = folder / DBNAME
        self.inode = inode_of(self.database)
        self._disk = BytesDisk(str(folder), SETTINGS["disk_min_file_size"], SETTINGS["disk_pickle_protocol"])
        with self.reading() as connection:
            first_key(connection)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection that writes nothing, not even temporary files next to the database; closed at the end."""
        address = self.database.absolute().as_uri()
        # immutable: SQLite creates no extra files, which a WAL database needs even for reading
        connection = sqlite3.connect(f"{address}?mode=ro&immutable=1", uri=True, isolation_level=None)
        connection.text_factory = readable
        try:
            yield connection
        finally:
            connection.close()

    def get(self, key: str, retry: bool = False) -> tuple[bytes, bytes] | None:
        """What BytesDisk.fetch gives, or None."""
        with self.reading() as connection:
            row = stored_value(connection, key)
        if row is None:
            return None
        mode, filename, value = row
        try:
            return self._disk.fetch(mode, filename, value, False)
        except OSError:  # damaged, or its file cannot be read
            return None

    def set(self, *arguments: Any, **more: Any) -> NoReturn:
        """Refuses."""
        raise sqlite3.OperationalError("attempt to write a readonly database")

    delete = set

    def in_place(self) -> bool:
        """Whether the database is still the one in the folder."""
        return self.inode is not None and inode_of(self.database) == self.inode

    def close(self) -> None:
        """Nothing is open."""


def open_for_reading(folder: Path) -> ReadOnlyCache | None:
    """The store in `folder` as it lies there; None where there is none, or it can be written to."""
    ids = {"effective_ids": True} if os.access in os.supports_effective_ids else {}
    if os.access(folder, os.W_OK, **ids):
        return None  # it is locked or full, and may change while it is read
    try:
        return ReadOnlyCache(folder)
    except (sqlite3.Error, OSError):
        return None

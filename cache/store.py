"""`Store`: get, put, delete, keys, size_bytes, verify, clear, close; behind it diskcache with `BytesDisk`.

The disk never stops the app: where it is full, locked or read-only, results stay in a bounded memory and `notice` says
so in one line. A damaged store is set aside and a new one opened.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from diskcache import Timeout
from platformdirs import user_cache_path

from cache.checking import IsReadable, Verified, any_blob, folder_bytes, verify_folder
from cache.disk import HEADER_BYTES, CorruptEntry, key_digest
from cache.diskcache_internals import DBNAME, cause, stored_sizes
from cache.opening import BrokenStore, ResultCache, connected, discard, inode_of, open_cache

CODE = Path(__file__).resolve().parent
MEMORY_BYTES = 256_000_000  # of results that the disk refused; the oldest are dropped beyond it
SET_ASIDE_PAUSE_S = 60  # a disk that damages each new store at once must not fill up with broken ones
ATTEMPTS = 3  # where a folder is deleted while it is being opened or written to
DISK_ERRORS = (Timeout, sqlite3.Error, OSError)


def open_store(directory: str | Path | None = None, is_readable: IsReadable = any_blob) -> "Store":
    """The store in `directory`, by default the environment's HEADROOM_CACHE, by default `default_directory`."""
    directory = directory or os.environ.get("HEADROOM_CACHE") or default_directory()
    return Store(os.path.expanduser(directory), is_readable)


def is_store(directory: Path) -> bool:
    """Whether a folder has a store in it."""
    return (directory / "results" / DBNAME).exists()


def default_directory(code: Path = CODE) -> Path:
    """`cache/data` in a clone; the user's cache folder where `code` is installed, or nothing can be written there."""
    data = code / "data"
    installed = {"site-packages", "dist-packages"} & set(code.parts)
    if installed or not os.access(data if data.exists() else code, os.W_OK):
        return user_cache_path("headroom", appauthor=False)
    return data


class Store:
    """Bytes under text keys, in `<directory>/results`. Safe to share between threads, and processes on a local disk.

    `is_readable` says whether the blob under a key can be decoded, which the store itself does not know; `verify`
    deletes results that cannot.
    """

    def __init__(self, directory: str | Path, is_readable: IsReadable = any_blob) -> None:
        self.directory = Path(os.path.expanduser(directory)).absolute()
        self._folder = self.directory / "results"
        self.n_puts = 0  # of this process: tells readers whether to read again
        # held to write (diskcache allows one writer) and to change the fields below
        self._lock = threading.RLock()
        self._cache: ResultCache | None = None
        self._memory: dict[str, bytes] = {}  # what the disk refused, oldest first
        self._reason: str | None = None  # why it did
        self._aside: Path | None = None  # where a damaged store went
        self._aside_s = float("-inf")
        self.is_readable = is_readable
        self._current()

    @property
    def notice(self) -> str | None:
        """One plain line for the user; None when all is well."""
        if not self.on_disk:
            return f"results are kept in memory: {self._reason} ({self._folder}); HEADROOM_CACHE chooses another folder"
        if self._aside is not None:
            return f"the result store was damaged: it is now {self._aside}, and a new one was started"
        return None

    @property
    def on_disk(self) -> bool:
        """False while results are kept in memory, because the disk refused one; `notice` says why."""
        return self._reason is None

    def get(self, key: str) -> bytes | None:
        """The bytes put under `key`, exactly, or None: a damaged entry is a miss like a missing one."""
        key = str(key)  # of a subclass, such as `engine.records.Key`, the text alone
        held, cache = self._memory.get(key), self._for_reading()
        if held is not None or cache is None:
            return held
        found = self._read(cache, key)
        if found is None and not cache.in_place() and (cache := self._current()) is not None:
            found = self._read(cache, key)
        return found

    def has(self, key: str) -> bool:
        """Whether something was put under `key`, which is not read: it may be damaged."""
        cache = self._current()
        if key in self._memory or cache is None:
            return key in self._memory
        with self._noting(cache):
            return key in cache
        return False

    def put(self, key: str, blob: bytes) -> bool:
        """True when `blob` is on disk; False when it is kept in memory only, and `notice` says why."""
        if not isinstance(key, str) or type(blob) is not bytes:
            raise TypeError(f"the store keeps bytes under str, not {type(blob).__name__} under {type(key).__name__}")
        key = str(key)
        with self._lock:
            self.n_puts += 1
            for _ in range(ATTEMPTS):
                if (cache := self._current()) is None:
                    break
                if self._write(cache, key, blob):
                    if cache.in_place():
                        self._saved(cache, key)
                        return True
                elif cache is self._cache and cache.in_place():
                    break
            self._reason = self._reason or "the folder is being deleted"
            self._memory.pop(key, None)  # so that it becomes the newest
            self._memory[key] = blob
            n_bytes = sum(map(len, self._memory.values()))
            while n_bytes > MEMORY_BYTES and len(self._memory) > 1:
                n_bytes -= len(self._memory.pop(next(iter(self._memory))))
        return False

    def delete(self, key: str) -> None:
        """Forgets `key`; no error where it is not there."""
        with self._lock:
            self._memory.pop(key, None)
            if (cache := self._current()) is not None:
                with self._noting(cache), suppress(CorruptEntry):  # the row is gone; a file outside the store stays
                    cache.delete(key, retry=False)

    def keys(self) -> Iterator[str]:
        """Every key, in no order. Keys that are not text (planted) are skipped, never unpickled."""
        yield from self.sizes()

    def sizes(self) -> dict[str, int]:
        """Bytes of each value, by key, without reading it."""
        found, cache = {key: len(blob) for key, blob in list(self._memory.items())}, self._for_reading()
        if cache is not None:
            with self._noting(cache), connected(cache.database) as connection:
                rows = stored_sizes(connection)
                found.update({key: max(0, (n_bytes or 0) - HEADER_BYTES) for key, n_bytes in rows})
        return found

    def size_bytes(self) -> int:
        """Bytes of all results, those in memory and in stores set aside included: what `clear` would free."""
        return sum(map(folder_bytes, self._folders())) + sum(map(len, list(self._memory.values())))

    def verify(self) -> Verified:
        """Reads and decodes every entry on disk, deletes damaged ones, removes value files older than an hour without a
        row."""
        if (cache := self._current()) is not None:
            with self._noting(cache):
                return verify_folder(self._folder, self.is_readable)
        return Verified()

    def clear(self) -> int:
        """Deletes every result, stores set aside included, and returns the bytes freed."""
        with self._lock:
            n_before = self.size_bytes()
            self._memory.clear()
            self._close()
            for folder in self._folders():
                with suppress(OSError):  # what cannot be deleted is not counted as freed
                    discard(folder)
            n_freed = n_before - self.size_bytes()
            self._reason = self._aside = None
            self._current()
            return n_freed

    def close(self) -> None:
        """Tries once more to save results held in memory, and closes the database; the next use opens it again."""
        with self._lock:
            if self._memory and (cache := self._current()) is not None:
                self._saved(cache)
            self._close()

    def _for_reading(self) -> ResultCache | None:
        """The cache as it is, opened only after `close`: a disk that failed is tried again by the next put."""
        return self._current() if self._cache is None and self._reason is None else self._cache

    def _read(self, cache: ResultCache, key: str) -> bytes | None:
        found: Any = None
        with self._noting(cache):
            found = cache.get(key, retry=False)  # what BytesDisk.fetch gives, or None
        # a digest of another key: its entry was moved here
        return found[1] if found is not None and found[0] == key_digest(key) else None

    def _write(self, cache: ResultCache, key: str, blob: bytes) -> bool:
        with self._noting(cache):
            with suppress(CorruptEntry):  # raised after the commit, by the file of the entry that was replaced
                cache.set(key, blob, retry=False)
            return True
        return False

    def _saved(self, cache: ResultCache, *just_written: str) -> None:
        """The disk works: what it refused before goes there too."""
        with self._lock:
            for key in just_written:
                self._memory.pop(key, None)
            for key in list(self._memory):
                if not self._write(cache, key, self._memory[key]):
                    return
                del self._memory[key]
            self._reason = None

    def _current(self) -> ResultCache | None:
        """The cache, opened again when its folder was deleted or replaced; None when it cannot be, see `notice`."""
        with self._lock:
            if self._cache is not None and self._cache.in_place():
                return self._cache
            self._close()
            for attempt in range(ATTEMPTS):
                seen = inode_of(self._folder / DBNAME)
                try:
                    self._cache = open_cache(self._folder)
                    break
                except BrokenStore as error:
                    # when it is another file by now, another process has already set the broken one aside
                    if inode_of(self._folder / DBNAME) == seen and not self._set_aside(error):
                        break
                except DISK_ERRORS as error:
                    if attempt + 1 < ATTEMPTS and not self._folder.exists():
                        continue  # deleted while it was being opened
                    self._reason = _plain(error)
                    break
            return self._cache

    @contextmanager
    def _noting(self, cache: ResultCache) -> Iterator[None]:
        """Context that an error of the disk ends, which is noted."""
        try:
            yield
        except DISK_ERRORS as error:
            self._failed(cache, error)

    def _failed(self, cache: ResultCache, error: Exception) -> None:
        """Says why the disk failed; where that is damage to the database, sets it aside and opens a new one."""
        not_damage = (sqlite3.OperationalError, sqlite3.ProgrammingError)
        with self._lock:
            if not cache.in_place():
                return  # it was deleted, or another thread set it aside: the next use opens a new one
            if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, not_damage):
                self._close()
                if self._set_aside(error):
                    self._current()
            else:
                self._reason = _plain(error)
                if "no such table" in str(error):
                    self._close()  # emptied under us: opening it again makes the tables

    def _set_aside(self, why: Exception) -> bool:
        aside = self._folder.with_name(f"results.broken-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
        try:
            if time.monotonic() - self._aside_s < SET_ASIDE_PAUSE_S:
                raise OSError(f"damaged again within a minute: {why}")
            os.rename(self._folder, aside)
        except OSError as error:
            self._reason = _plain(error)
            return False
        self._aside, self._aside_s = aside, time.monotonic()
        return True

    def _folders(self) -> list[Path]:
        return [self._folder, *self.directory.glob("results.broken-*"), *self.directory.glob("results.deleted-*")]

    def _close(self) -> None:
        if self._cache is not None:
            self._cache.close()
        self._cache = None


def _plain(error: Exception) -> str:
    reason = cause(error)
    return " ".join(str(getattr(reason, "strerror", None) or reason).split())

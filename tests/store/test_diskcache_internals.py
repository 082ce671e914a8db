"""The private names and the tables of diskcache are as cache/diskcache_internals.py read them in diskcache 5.6.3."""

import importlib.metadata
import os
import re
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from diskcache import Cache, Disk, Timeout
from diskcache.core import DEFAULT_SETTINGS

from cache import diskcache_internals as internals
from cache.opening import SETTINGS, connected

INSTALLED = importlib.metadata.version("diskcache")
COLUMNS = {
    "rowid": "INTEGER",
    "key": "BLOB",
    "raw": "INTEGER",
    "store_time": "REAL",
    "expire_time": "REAL",
    "access_time": "REAL",
    "access_count": "INTEGER",
    "tag": "BLOB",
    "size": "INTEGER",
    "mode": "INTEGER",
    "filename": "TEXT",
    "value": "BLOB",
}
SMALL, LARGE = b"small", bytes(2**15)  # one in a row, one in a file


def changed(name: str) -> str:
    return f"{name} of diskcache {INSTALLED} is not what cache/diskcache_internals.py read in 5.6.3"


@pytest.fixture
def cache(tmp_path):
    """diskcache's own Cache, with one value in a row and one in a file."""
    with closing(Cache(str(tmp_path), timeout=0.25, **SETTINGS)) as cache:
        cache.set("small", SMALL)
        cache.set("large", LARGE)
        yield cache


@pytest.fixture
def connection(cache, tmp_path):
    with connected(tmp_path / "cache.db") as connection:
        yield connection


def test_the_version_that_was_read_is_the_one_installed():
    (read,) = re.findall(r"core\.py` of diskcache (\S+),", internals.__doc__ or "")
    pinned = (Path(__file__).parents[2] / "requirements.txt").read_text(encoding="utf-8")
    assert f"diskcache=={read}\n" in pinned, "requirements.txt pins another diskcache than diskcache_internals.py read"
    assert INSTALLED == read, f"diskcache {INSTALLED} is installed, but cache/diskcache_internals.py read {read}"


def test_every_statement_goes_through_con(cache):
    """5.6.3: `Cache._con` is a property that gives this thread's connection, and `set` runs its SQL on it."""
    assert isinstance(vars(Cache).get("_con"), property), changed("Cache._con")
    seen = []
    cache._con.set_trace_callback(seen.append)
    cache.set("again", SMALL)
    assert any(statement.startswith("INSERT INTO Cache") for statement in seen), changed("Cache._con")


def test_local_keeps_the_connection_and_the_process_of_a_thread(cache):
    """5.6.3: `Cache._local` is a threading.local, with the connection in `con` and its process in `pid`."""
    local = vars(cache).get("_local")
    assert isinstance(local, threading.local), changed("Cache._local")
    assert vars(local).keys() == {"con", "pid"} and vars(local)["pid"] == os.getpid(), changed("Cache._local")
    assert isinstance(vars(local)["con"], sqlite3.Connection), changed("Cache._local")
    cache.close()
    assert "con" not in vars(local), changed("Cache.close")


def test_timeout_is_the_wait_for_a_lock(cache):
    """5.6.3: `Cache._timeout` is the argument `timeout`, in seconds."""
    assert vars(cache).get("_timeout") == 0.25, changed("Cache._timeout")


class Connecting(internals.ThreadedCache):
    asked = ()

    def connect(self, timeout_s):
        self.asked = *self.asked, timeout_s
        return sqlite3.connect(Path(self.directory) / "cache.db", timeout=timeout_s, isolation_level=None)


def test_all_connections_are_ours_and_run_our_pragmas(tmp_path):
    """5.6.3: `Cache.__init__` opens one connection that does not wait, closes it, and opens another with `timeout`."""
    settings = {**SETTINGS, "sqlite_cache_size": 1234}
    with closing(Connecting(tmp_path, Disk, 0.25, settings)) as cache:
        assert cache.asked == (0, 0.25), changed("Cache._con")
        assert cache._con.execute("PRAGMA cache_size").fetchall() == [(1234,)], changed("Cache.reset")


def test_a_failed_write_leaves_no_file(tmp_path):
    """5.6.3: `Disk.store` writes the file of a large value with `Disk._write(full_path, iterator, mode)`."""

    def breaks_off():
        yield b"half of it"
        raise OSError("no space left on device")

    assert callable(vars(Disk).get("_write")), changed("Disk._write")
    disk = internals.FileDisk(str(tmp_path), min_file_size=1)
    with pytest.raises(OSError, match="no space left"):
        disk._write(str(tmp_path / "aa" / "value.val"), breaks_off(), "xb")
    assert list(tmp_path.rglob("*.val")) == [], changed("Disk._write")


def test_a_large_value_is_written_by_write(tmp_path, monkeypatch):
    """5.6.3: `Disk.store` calls `self._write` with the full path first, so that a subclass sees every file."""
    seen = []
    monkeypatch.setattr(Disk, "_write", lambda self, path, *content: seen.append(path), raising=False)
    _, _, name, _ = internals.FileDisk(str(tmp_path), min_file_size=1).store(SMALL, False)
    assert seen == [str(tmp_path / name)], changed("Disk._write")


def test_directory_is_the_folder_of_a_disk(tmp_path):
    """5.6.3: `Disk._directory` is the argument `directory`, and file names are relative to it."""
    disk = internals.FileDisk(str(tmp_path))
    assert vars(disk).get("_directory") == str(tmp_path), changed("Disk._directory")
    assert disk.folder == str(tmp_path)
    name, path = disk.filename()
    assert path == str(tmp_path / name), changed("Disk.filename")


@pytest.mark.parametrize("name", COLUMNS)
def test_the_table_cache_has_the_column(connection, name):
    """5.6.3: `Cache.__init__` makes the table Cache with these columns and types."""
    kinds = {column: kind for _, column, kind, *_ in connection.execute("PRAGMA table_info(Cache)")}
    assert kinds.get(name) == COLUMNS[name], changed(f"the column `{name}` in the table Cache")
    assert kinds.keys() == COLUMNS.keys() == set(internals.COLUMNS.split(", ")), changed("the table Cache")


def test_the_table_settings_has_the_names_that_are_passed_and_those_that_are_counted(connection):
    """5.6.3: `Cache.__init__` writes DEFAULT_SETTINGS and METADATA into the column `key` of the table Settings."""
    names = DEFAULT_SETTINGS.keys() | internals.METADATA.keys()
    assert internals.setting_names(connection) == names, changed("the table Settings")


def test_the_database_and_the_kinds_of_value_have_their_names(tmp_path, cache):
    """5.6.3: core.DBNAME is "cache.db", core.MODE_RAW is 1, core.MODE_BINARY is 2; stored folders hold them."""
    names = internals.DBNAME, internals.MODE_RAW, internals.MODE_BINARY
    assert names == ("cache.db", 1, 2), changed("diskcache.core")
    assert (tmp_path / "cache.db").is_file(), changed("core.DBNAME")


def test_a_small_value_is_in_its_row(connection):
    """5.6.3: a bytes value under `disk_min_file_size` has mode 1, no file name, and size 0."""
    rows = {row[0]: row for row in (internals.stored_row(connection, rowid) for rowid in internals.row_ids(connection))}
    assert rows["small"] == ("small", 1, 1, None, SMALL), changed("the table Cache")


def test_a_large_value_is_in_the_file_its_row_names(connection, tmp_path):
    """5.6.3: a larger bytes value has mode 2, its file's name relative to the folder, and no value in the row."""
    rows = {row[0]: row for row in (internals.stored_row(connection, rowid) for rowid in internals.row_ids(connection))}
    _, _, mode, name, value = rows["large"]
    assert (mode, value) == (2, None) and re.fullmatch(r"../../.{28}\.val", name), changed("Disk.store")
    assert all(map(internals.OWN_FILES.fullmatch, os.listdir(tmp_path))), changed("the folder")
    assert internals.value_files(tmp_path) == [tmp_path / name], changed("Disk.filename")
    assert (tmp_path / name).read_bytes() == LARGE, changed("Disk.store")
    assert internals.file_names(connection) == {name}, changed("the column `filename`")


def test_sizes_are_those_of_stored_values(connection):
    """5.6.3: the column `size` holds the bytes of a file, and 0 for a value in its row."""
    assert sorted(internals.stored_sizes(connection)) == [("large", len(LARGE)), ("small", len(SMALL))], changed("size")


def test_a_pickled_key_is_not_raw(cache, connection):
    """5.6.3: the column `raw` is 0 for a key that is pickled, and such a key is not read."""
    cache.set(("a", "tuple"), SMALL)
    assert {key for key, _ in internals.stored_sizes(connection)} == {"small", "large"}, changed("the column `raw`")


def test_a_deleted_row_is_not_counted(cache, connection):
    """5.6.3: a trigger on the table Cache keeps the setting `count`, for deletions by any connection."""
    (rowid, _) = internals.row_ids(connection)
    internals.delete_row(connection, rowid)
    assert (len(cache), cache.get("small")) == (1, None), changed("the trigger Settings_count_delete")
    assert internals.is_sound(connection)


def test_a_write_waits_for_the_lock_and_says_what_sqlite_said(cache, connection):
    """5.6.3: `set` begins with BEGIN IMMEDIATE, and raises an empty Timeout whose `__context__` is SQLite's error."""
    with internals.write_lock(connection), pytest.raises((Timeout, sqlite3.Error)) as raised:
        cache.set("locked out", SMALL)
    assert raised.type is Timeout, changed("Cache.set")
    assert str(internals.cause(raised.value)) == "database is locked", changed("the context of Timeout")
    assert cache.set("let in", SMALL) is True

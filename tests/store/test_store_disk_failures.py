"""P5: a full, locked or read-only disk never stops the app: results stay in memory, with one plain notice."""

import errno
import os
import re
import resource
import sqlite3
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from diskcache import Cache, Disk

from cache import open_store, opening

BLOB = b"log-likelihoods -1.25 -3.5"
LONG = bytes(100_000)  # in a file of its own
BIG = bytes(2**15)


@contextmanager
def limited_pages(store):
    """SQLite's own full disk: this database may not grow."""
    execute = store._cache._con.execute
    ((before,),) = execute("PRAGMA max_page_count").fetchall()
    execute("PRAGMA max_page_count = 1")  # becomes the present number of pages
    yield ["database or disk is full"]
    execute(f"PRAGMA max_page_count = {before}")


@contextmanager
def limited_files(store):
    """The operating system refuses each write beyond the first 64 bytes of a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))
    try:
        yield ["disk I/O error", "File too large"]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def read_only(store):
    """Every write fails as it does when the disk has become read-only."""
    store._cache._con.execute("PRAGMA query_only = ON")
    yield ["attempt to write a readonly database"]
    store._cache._con.execute("PRAGMA query_only = OFF")


@contextmanager
def locked(store):
    """Another process is writing and does not end."""
    connection = sqlite3.connect(store.directory / "results" / "cache.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield ["database is locked"]
    connection.execute("ROLLBACK")
    connection.close()


@contextmanager
def full_while_writing_a_file(store):
    """The disk fills up in the middle of a value's file."""
    with pytest.MonkeyPatch.context() as patch:

        def write(self, full_path, iterator, mode, encoding=None):
            Path(full_path).parent.mkdir(parents=True, exist_ok=True)
            Path(full_path).write_bytes(b"half of it")
            raise OSError(errno.ENOSPC, "No space left on device", full_path)

        patch.setattr(Disk, "_write", write)
        yield ["No space left on device"]
    assert not any(path.read_bytes() == b"half of it" for path in store.directory.rglob("*.val"))


@pytest.mark.parametrize("trouble", [limited_pages, limited_files, read_only, locked, full_while_writing_a_file])
def test_results_are_kept_in_memory_until_the_disk_works_again(opened, tmp_path, monkeypatch, trouble):
    monkeypatch.setattr(opening, "LOCK_WAIT_S", 0.05)
    store = opened(tmp_path)
    assert store.put("before", BLOB) is True
    blobs = {f"during {i}": (BIG if i % 2 else BLOB * 200) + bytes([i]) for i in range(8)}
    with trouble(store) as reasons:
        stored = [store.put(key, blob) for key, blob in blobs.items()]
        assert False in stored
        lines = [f"results are kept in memory: {reason} ({tmp_path / 'results'})" for reason in reasons]
        assert (store.notice or "").startswith(tuple(lines))
        assert {key: store.get(key) for key in blobs} == blobs
        assert store.get("before") == BLOB  # what was saved can still be read
        assert set(store.keys()) == {"before", *blobs}
        store.delete("during 0")
        assert store.get("during 0") is None
    del blobs["during 0"]
    assert store.put("after", BLOB) is True
    assert store.notice is None
    store.close()
    again = opened(tmp_path)
    assert {key: again.get(key) for key in again.keys()} == {**blobs, "before": BLOB, "after": BLOB}
    assert again.verify().bad_keys == ()


def file_in_the_way(folder: Path):
    folder.mkdir()
    (folder / "results").write_bytes(b"a file of the user's")
    yield
    (folder / "results").unlink()


def folder_in_the_way(folder: Path):
    (folder / "results" / "cache.db").mkdir(parents=True)
    yield
    (folder / "results" / "cache.db").rmdir()


def file_above(folder: Path):
    folder.write_bytes(b"a file of the user's")
    yield
    folder.unlink()


def locked_by_another(folder: Path):
    open_store(folder).close()
    connection = sqlite3.connect(folder / "results" / "cache.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield
    connection.execute("ROLLBACK")
    connection.close()


def no_double_quotes(folder: Path):
    """Some SQLite builds refuse the double quotes around strings in diskcache's SQL."""
    with pytest.MonkeyPatch.context() as patch:

        def init(self, *settings, **more):
            self._local = threading.local()
            raise sqlite3.OperationalError("no such column: count")

        patch.setattr(Cache, "__init__", init)
        yield


@pytest.mark.parametrize("way", [file_in_the_way, folder_in_the_way, file_above, locked_by_another, no_double_quotes])
def test_a_folder_that_cannot_be_opened_is_left_alone_and_tried_again(opened, tmp_path, monkeypatch, way):
    monkeypatch.setattr(opening, "LOCK_WAIT_S", 0.05)
    folder = tmp_path / "cache"
    trouble = way(folder)
    next(trouble)
    there = sorted(tmp_path.rglob("*"))
    started = time.monotonic()
    store = opened(folder)
    assert (store.notice or "").startswith("results are kept in memory: ") and "\n" not in (store.notice or "")
    assert store.put("k", BLOB) is False and store.get("k") == BLOB and list(store.keys()) == ["k"]
    assert time.monotonic() - started < 30  # diskcache by itself waits a minute for a lock
    assert store.size_bytes() >= len(BLOB) and store.verify().n_checked == 0
    assert set(there) <= set(tmp_path.rglob("*")) and not list(tmp_path.rglob("*broken*"))
    next(trouble, None)
    assert store.put("after", BLOB) is True and store.notice is None
    store.close()
    again = opened(folder)
    assert again.get("k") == again.get("after") == BLOB


@contextmanager
def ordinary_user():
    """Root may write anywhere, so for a while this process is nobody."""
    if os.geteuid() != 0:
        yield
        return
    try:
        os.seteuid(65534)
    except OSError:
        pytest.skip("this root cannot give up its rights")
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("filled", [False, True])
def test_a_read_only_folder(opened, tmp_path_factory, filled):
    folder = tmp_path_factory.mktemp("readonly")
    for above in (folder, *folder.parents):
        if above.stat().st_uid == os.geteuid() and not above.stat().st_mode & 0o001 and os.geteuid() == 0:
            above.chmod(above.stat().st_mode | 0o011)  # so that nobody gets here
    if filled:
        store = opened(folder)
        store.put("k", BLOB)
        store.put("long", LONG)
        store.close()
        (folder / "results").chmod(0o555)
    folder.chmod(0o555)
    try:
        with ordinary_user():
            store = opened(folder)
            assert re.fullmatch(r"results are kept in memory: .+; HEADROOM_CACHE chooses another folder", store.notice)
            assert store.put("new", BLOB) is False and store.get("new") == BLOB
            assert set(store.keys()) == {"new"}
            store.delete("k")
            assert store.verify().n_checked == 0
            store.close()
    finally:
        folder.chmod(0o700)
        if filled:
            (folder / "results").chmod(0o700)
    assert [path.name for path in folder.iterdir()] == ["results"] * filled
    again = opened(folder)
    assert sorted(again.keys()) == ["k", "long"] * filled and again.notice is None


def test_closing_saves_what_the_disk_refused_before(opened, tmp_path):
    store = opened(tmp_path)
    with read_only(store):
        assert store.put("k", BLOB) is False
    store.close()
    assert store.notice is None
    again = opened(tmp_path)
    assert again.get("k") == BLOB
    again.close()
    assert store.get("k") == BLOB and set(store.keys()) == {"k"}  # a closed store opens again when it is used


def test_memory_is_bounded_and_drops_the_oldest(opened, tmp_path, monkeypatch):
    monkeypatch.setattr("cache.store.MEMORY_BYTES", 1000)
    store = opened(tmp_path)
    with read_only(store):
        for key in ("first", "second", "third", "first", "fourth"):
            assert store.put(key, bytes(300)) is False
        assert set(store.keys()) == {"first", "third", "fourth"}
        assert store.put("huge", bytes(5000)) is False
        assert set(store.keys()) == {"huge"} and store.get("huge") == bytes(5000)


def test_clearing_forgets_what_is_in_memory_and_spares_what_is_in_the_way(opened, tmp_path):
    trouble = file_in_the_way(tmp_path / "cache")
    next(trouble)
    store = opened(tmp_path / "cache")
    assert store.put("k", BLOB) is False
    assert store.clear() == len(BLOB)
    assert store.get("k") is None and list(store.keys()) == []
    assert (tmp_path / "cache" / "results").read_bytes() == b"a file of the user's"


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open files are listed on Linux only")
def test_a_failed_opening_leaves_no_file_open(tmp_path):
    (tmp_path / "cache.db").write_bytes(b"no database " * 1000)
    with pytest.raises(sqlite3.DatabaseError) as kept:
        opening.ResultCache(tmp_path)
    assert kept.value.__traceback__ is not None  # which keeps the half-made cache alive
    still_open = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    assert str((tmp_path / "cache.db").resolve()) not in still_open


def test_looking_never_makes_a_database(tmp_path):
    with pytest.raises(sqlite3.OperationalError), opening.connected(tmp_path / "cache.db") as connection:
        connection.execute("SELECT 1 FROM Cache")
    assert list(tmp_path.iterdir()) == []


def damage(store) -> None:
    """Overwrites the pages of an open database, as a dying disk would."""
    database = store.directory / "results" / "cache.db"
    with opening.connected(database) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    size = database.stat().st_size
    with database.open("r+b") as file:
        file.write(b"\xa5" * size)


def test_damage_while_open_sets_the_store_aside_at_most_once_a_minute(opened, tmp_path, monkeypatch):
    store = opened(tmp_path)
    store.put("k", BLOB)
    damage(store)
    assert store.get("k") is None
    (aside,) = tmp_path.glob("results.broken-*")
    assert aside.name in (store.notice or "")
    assert store.put("k", BLOB) is True and store.get("k") == BLOB
    assert aside.name in (store.notice or "")  # whoever looks later must learn it too
    damage(store)
    assert store.put("k", BLOB) is False and store.get("k") == BLOB
    assert "damaged again within a minute" in (store.notice or "")
    assert list(tmp_path.glob("results.broken-*")) == [aside]
    monkeypatch.setattr("cache.store.SET_ASIDE_PAUSE_S", 0)  # a minute later
    assert store.put("k", BLOB) is True and store.get("k") == BLOB
    assert len(list(tmp_path.glob("results.broken-*"))) == 2
    assert "kept in memory" not in (store.notice or "")


def test_a_put_that_meets_damage_is_on_disk_when_it_returns(opened, tmp_path):
    store = opened(tmp_path)
    store.put("old", BLOB)
    damage(store)
    assert store.put("k", BLOB) is True
    store.close()
    again = opened(tmp_path)
    assert again.get("k") == BLOB and again.notice is None


@pytest.mark.parametrize("read_first", [False, True])
def test_a_database_emptied_while_open_is_filled_again(opened, tmp_path, read_first):
    store = opened(tmp_path)
    with opening.connected(tmp_path / "results" / "cache.db") as connection:
        connection.execute("DROP TABLE Cache")
    if read_first:
        assert store.get("k") is None
    assert store.put("k", BLOB) is True and store.get("k") == BLOB and store.notice is None


def test_a_folder_name_that_diskcache_would_expand_is_refused(opened, tmp_path, monkeypatch):
    monkeypatch.setenv("ELSEWHERE", "elsewhere")
    store = opened(tmp_path / "$ELSEWHERE")
    assert "holds a $" in (store.notice or "")
    assert store.put("k", BLOB) is False and store.get("k") == BLOB
    assert list(tmp_path.iterdir()) == []

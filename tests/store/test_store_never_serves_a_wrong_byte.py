"""P1: a result is exactly what was put, or a miss: whatever happened to the row, the file or the database."""

import os
import random
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from cache import checking, open_store, opening
from tests.conftest import HANG_S, REPOSITORY

CUT_SHORT = """
import os, sys
from cache import open_store, opening
store, database = open_store(sys.argv[1]), os.path.join(sys.argv[1], "results", "cache.db")
blobs = {str(i): bytes([i]) * 20_000 for i in range(200)}
assert all(store.put(key, blob) for key, blob in blobs.items())
store._cache._con.execute("PRAGMA wal_checkpoint(TRUNCATE)")
assert {key: store.get(key) for key in blobs} == blobs
os.truncate(database, 8192)
assert all(store.get(key) in (None, blob) for key, blob in blobs.items())
store.put("new", b"new")
assert store.get("new") == b"new"
store.close()
print("still here")
"""
BLOB = b"log-likelihoods -1.25 -3.5"
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
BLOBS = st.binary(max_size=200) | st.integers(2**15 - 60, 2**15 + 60).map(lambda n: random.Random(n).randbytes(n))


@pytest.fixture(scope="module")
def lasting_store(tmp_path_factory):
    store = open_store(tmp_path_factory.mktemp("lasting"))
    yield store
    store.close()


@given(key=KEYS, blob=BLOBS)
@settings(max_examples=150)
def test_what_is_put_is_what_is_got(lasting_store, key, blob):
    assert lasting_store.put(key, blob) is True
    assert lasting_store.get(key) == blob
    assert key in set(lasting_store.keys())
    assert lasting_store.notice is None


def test_a_store_does_what_a_dict_does_through_reopening_verifying_and_clearing(tmp_path_factory):
    class LikeADict(RuleBasedStateMachine):
        def __init__(self):
            super().__init__()
            self.folder = tmp_path_factory.mktemp("dict")
            self.store, self.model = open_store(self.folder), {}

        @rule(key=st.sampled_from("abcd"), blob=BLOBS)
        def put(self, key, blob):
            assert self.store.put(key, blob) is True
            self.model[key] = blob

        @rule(key=st.sampled_from("abcd"))
        def delete(self, key):
            self.store.delete(key)
            self.model.pop(key, None)

        @rule()
        def reopen(self):
            self.store.close()
            self.store = open_store(self.folder)

        @rule()
        def verify(self):
            assert self.store.verify() == checking.Verified(len(self.model), (), 0)

        @rule()
        def clear(self):
            size = self.store.size_bytes()
            assert self.store.clear() == size > 0
            self.model.clear()

        @invariant()
        def same(self):
            assert {key: self.store.get(key) for key in self.store.keys()} == self.model
            assert all(map(self.store.has, self.model)) and not self.store.has("of nothing")
            assert self.store.notice is None

        def teardown(self):
            self.store.close()

    run_state_machine_as_test(LikeADict, settings=settings(max_examples=12, stateful_step_count=12))


def database(store) -> Path:
    return store.directory / "results" / "cache.db"


def in_row(store, connection, frame: bytes) -> None:
    connection.execute("UPDATE Cache SET value = ? WHERE key = 'k'", (frame,))


def in_file(store, connection, frame: bytes) -> None:
    (file,) = database(store).parent.rglob("*.val")
    file.write_bytes(frame)


@pytest.mark.parametrize("place", [in_row, in_file])
def test_any_changed_bit_and_any_other_length_is_a_miss(opened, tmp_path, monkeypatch, place):
    monkeypatch.setitem(opening.SETTINGS, "disk_min_file_size", 2**15 if place is in_row else 0)
    store = opened(tmp_path)
    store.put("k", BLOB)
    with opening.connected(database(store)) as connection:
        filename, frame = connection.execute("SELECT filename, value FROM Cache").fetchone()
        frame = frame or (tmp_path / "results" / filename).read_bytes()
        assert len(frame) == len(BLOB) + 36 and frame.endswith(BLOB)
        for bit in range(8 * len(frame)):
            changed = bytearray(frame)
            changed[bit // 8] ^= 1 << bit % 8
            place(store, connection, bytes(changed))
            assert store.get("k") is None, f"bit {bit}"
        for length in range(len(frame)):
            place(store, connection, frame[:length])
            assert store.get("k") is None, f"cut to {length} bytes"
        place(store, connection, frame + b"\0")
        assert store.get("k") is None
        place(store, connection, frame)
        assert store.get("k") == BLOB  # the misses above were the damage's doing
        place(store, connection, frame[:-1])
    assert store.verify().bad_keys == ("k",) and list(store.keys()) == []
    assert list(database(store).parent.rglob("*.val")) == []
    assert store.put("k", BLOB) is True and store.get("k") == BLOB and store.notice is None


@pytest.mark.parametrize("blob_bytes", [100, 2**15])
def test_entries_that_changed_places_are_misses(store, blob_bytes):
    store.put("a", b"A" * blob_bytes)
    store.put("b", b"B" * blob_bytes)
    with opening.connected(database(store)) as connection:
        a, b = connection.execute("SELECT filename, value FROM Cache ORDER BY key").fetchall()
        for key, columns in (("a", b), ("b", a)):
            connection.execute("UPDATE Cache SET filename = ?, value = ? WHERE key = ?", (*columns, key))
    assert store.get("a") is None and store.get("b") is None
    assert sorted(store.verify().bad_keys) == ["a", "b"]


def test_a_missing_file_and_a_file_name_that_is_no_text_are_misses_and_heal(store):
    for name in (b"12/34/missing.val", b"\xff\xfe", b"", b"a\0b", None):
        store.put("k", bytes(2**15))
        with opening.connected(database(store)) as connection:
            connection.execute("UPDATE Cache SET filename = CAST(? AS TEXT)", (name,))
        assert store.get("k") is None
        assert store.put("k", b"again") is True and store.get("k") == b"again"
        assert store.notice is None


def test_a_damaged_database_never_gives_a_wrong_result(tmp_path, monkeypatch):
    monkeypatch.setattr("cache.store.SET_ASIDE_PAUSE_S", 0)
    blobs = {f"key {i}": random.Random(i).randbytes(300) for i in range(60)}
    store = open_store(tmp_path / "whole")
    for key, blob in blobs.items():
        assert store.put(key, blob)
    store.close()
    whole = database(store).read_bytes()
    assert len(whole) > 20_000
    rng, n_misses = random.Random(5), 0
    for trial in range(30):
        folder = tmp_path / str(trial) / "results"
        folder.mkdir(parents=True)
        damaged = bytearray(whole)
        for _ in range(20):
            start = rng.randrange(len(damaged))
            damaged[start : start + 16] = rng.randbytes(len(damaged[start : start + 16]))
        (folder / "cache.db").write_bytes(damaged)
        store = open_store(folder.parent)
        for key, blob in blobs.items():
            got = store.get(key)
            assert got is None or got == blob
            n_misses += got is None
        store.put("new", b"new")
        assert store.get("new") == b"new"
        store.close()
    assert n_misses > 100


def test_a_database_cut_short_while_open_is_a_miss_and_not_a_crash(tmp_path):
    """In a process of its own: with SQLite's memory map, reading on would end it with SIGBUS."""
    done = subprocess.run(
        [sys.executable, "-c", CUT_SHORT, str(tmp_path)], cwd=REPOSITORY, capture_output=True, text=True, timeout=HANG_S
    )
    assert (done.returncode, done.stdout) == (0, "still here\n"), done.stderr


def test_verify_finds_what_is_bad_and_only_that(store):
    store.put("good", BLOB)
    store.put("good file", bytes(2**15))
    store.put("bad", BLOB)
    with opening.connected(database(store)) as connection:
        connection.execute("UPDATE Cache SET value = CAST('text' AS TEXT) WHERE key = 'bad'")
        connection.execute("INSERT INTO Cache (key, raw, mode, value) VALUES (7, 1, 1, ?)", (BLOB,))
    orphans = [database(store).parent / "aa" / "bb" / name for name in ("old.val", "young.val", "old.txt")]
    orphans[0].parent.mkdir(parents=True)
    long_ago = time.time() - 3700
    for orphan in orphans:
        orphan.write_bytes(b"left behind by a failed transaction")
        if orphan.name != "young.val":
            os.utime(orphan, (long_ago, long_ago))
    (kept,) = (file for file in database(store).parent.rglob("*.val") if file not in orphans)
    os.utime(kept, (long_ago, long_ago))
    found = store.verify()
    assert found.n_checked == 4 and found.n_orphans_removed == 1
    assert found.bad_keys == ("bad", "row 4, whose key is not text")
    assert [orphan.exists() for orphan in orphans] == [False, True, True]
    assert sorted(store.keys()) == ["good", "good file"] and store.get("good file") == bytes(2**15)
    assert store.verify() == checking.Verified(2, (), 0)


def test_verify_spares_an_entry_that_is_replaced_while_it_looks(store, monkeypatch):
    """It has read the row, then the file that row named is gone, because a newer one is in place."""
    store.put("k", BLOB)
    real, looks = checking._is_bad, []

    def is_bad(*args):
        looks.append(args)
        return len(looks) == 1 or real(*args)

    monkeypatch.setattr(checking, "_is_bad", is_bad)
    assert store.verify() == checking.Verified(1, (), 0)
    assert store.get("k") == BLOB and len(looks) == 2


def test_verify_sets_a_database_aside_that_fails_the_integrity_check(opened, store):
    store.put("k", BLOB)
    with opening.connected(database(store)) as connection:
        connection.execute("PRAGMA writable_schema = ON")  # the index now points at the root page of another
        connection.execute("UPDATE sqlite_master SET rootpage = 3 WHERE name = 'Cache_key_raw'")
    store.close()
    store = opened(store.directory)
    store.verify()
    assert "damaged" in (store.notice or "")
    assert store.put("k", BLOB) is True and store.get("k") == BLOB


def test_only_bytes_under_text_are_taken(store):
    for key, blob in ((1, b""), (b"k", b""), ("k", "text"), ("k", bytearray(b"x")), ("k", None)):
        with pytest.raises(TypeError, match="bytes under str"):
            store.put(key, blob)
    assert list(store.keys()) == []


def test_the_store_lies_where_it_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADROOM_CACHE", str(tmp_path / "from environment"))
    os_umask = os.umask(0o022)
    try:
        for given_folder, used in ((tmp_path / "given", "given"), (None, "from environment")):
            store = open_store(given_folder)
            store.put("k", BLOB)
            store.close()
            assert store.directory == tmp_path / used
            for folder in (store.directory, store.directory / "results"):
                assert folder.stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(os_umask)
    from cache.store import default_directory

    assert default_directory() == REPOSITORY / "cache" / "data"


def test_every_setting_is_passed_and_nothing_is_ever_evicted(store):
    from diskcache.core import DEFAULT_SETTINGS

    assert set(opening.SETTINGS) == set(DEFAULT_SETTINGS)  # a stored one would override diskcache's default
    with sqlite3.connect(database(store)) as connection:
        stored = dict(connection.execute("SELECT key, value FROM Settings"))
    connection.close()
    assert {name: stored[name] for name in opening.SETTINGS} == opening.SETTINGS
    assert stored["eviction_policy"] == "none" and stored["size_limit"] > 10**18
    with ThreadPoolExecutor(1) as other:  # SQLite knows some of them per connection, and each thread has its own
        cursor = other.submit(lambda: store._cache._con.execute("PRAGMA synchronous").fetchall())
        assert cursor.result() == [(opening.SETTINGS["sqlite_synchronous"],)]

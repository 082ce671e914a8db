"""P4: nothing that somebody plants in the store's folder is ever executed, and nothing outside it is touched."""

import os
import pickle
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cache import CorruptEntry, opening
from cache.disk import BytesDisk


class Evil:
    """Unpickling it makes a file: the canary."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self):
        return Path.touch, (self.canary,)


@pytest.fixture
def canary(tmp_path):
    """Path that must not come into being; the same pickle does make one when it is loaded."""
    proof = tmp_path / "proof"
    pickle.loads(pickle.dumps(Evil(proof)))
    assert proof.exists(), "this canary cannot sing"
    yield tmp_path / "canary"
    assert not (tmp_path / "canary").exists(), "planted code was executed"


def plant(store, **columns) -> None:
    """A row in the store's database, as somebody who can write the folder would make one."""
    names = ", ".join(columns)
    with opening.connected(store.directory / "results" / "cache.db") as connection:
        connection.execute(
            f"INSERT OR REPLACE INTO Cache ({names}) VALUES ({', '.join('?' * len(columns))})", (*columns.values(),)
        )


def use_all(store, key: str = "k") -> None:
    """Every call of the interface, on a store with a planted row under `key`."""
    assert store.get(key) is None
    assert set(store.keys()) <= {key, "good"}
    store.verify()
    assert store.put(key, b"new") is True
    assert store.get(key) == b"new" and store.get("good") == b"good"
    store.delete(key)
    assert store.get(key) is None
    store.size_bytes()


@pytest.mark.parametrize("mode", [0, 1, 2, 3, 4, 5, None, "4", b"4"])
@pytest.mark.parametrize("in_file", [False, True])
def test_planted_value_pickles(store, canary, mode, in_file):
    store.put("good", b"good")
    evil = pickle.dumps(Evil(canary))
    if in_file:
        (store.directory / "results" / "evil.val").write_bytes(evil)
        plant(store, key="k", raw=1, mode=mode, filename="evil.val")
    else:
        plant(store, key="k", raw=1, mode=mode, value=evil)
    use_all(store)


@pytest.mark.parametrize("raw", [0, 1, None])
def test_planted_key_pickles(store, canary, raw):
    store.put("good", b"good")
    plant(store, key=pickle.dumps(Evil(canary)), raw=raw, mode=1, value=b"x")
    plant(store, key="k", raw=0, mode=1, value=b"x")
    assert list(store.keys()) == ["good"]
    use_all(store)
    assert store.verify().n_checked == 1


def test_diskcache_itself_is_refused_every_pickle(store, canary):
    """Whatever diskcache calls, now or in a later release: BytesDisk unpickles nothing and pickles nothing."""
    evil, disk = pickle.dumps(Evil(canary)), BytesDisk(str(store.directory), min_file_size=2**15)
    (store.directory / "evil.val").write_bytes(evil)
    _, mode, name, _ = disk.store(bytes(2**15), False, "k")
    assert disk.fetch(mode, name, None, False)[1] == bytes(2**15)
    for call in (
        lambda: disk.get(evil, False),
        lambda: disk.get(evil, True),
        lambda: disk.fetch(4, None, evil, False),
        lambda: disk.fetch(3, "evil.val", None, False),
        lambda: disk.fetch(2, "evil.val", None, False),
        lambda: disk.fetch(mode, name, None, True),
    ):
        with pytest.raises(CorruptEntry):
            call()
    for call in (
        lambda: disk.put(Evil(canary)),
        lambda: disk.hash((1, 2)),
        lambda: disk.store(Evil(canary), False, "k"),
        lambda: disk.store("text", False, "k"),
        lambda: disk.store(b"blob", True, "k"),
        lambda: disk.store(b"blob", False, 7),
    ):
        with pytest.raises(TypeError):
            call()


def outside_paths(tmp_path: Path) -> list[str]:
    results = tmp_path / "cache" / "results"
    (results / "link").symlink_to(tmp_path)
    (results / "inner").mkdir()
    return [str(tmp_path / "outside"), "../../outside", "link/outside", "inner/../../../outside"]


def test_no_file_outside_is_read_replaced_or_deleted(opened, tmp_path):
    """The outside file holds a frame that would be served, were it read."""
    store = opened(tmp_path / "cache")
    store.put("good", b"good")
    store.put("k", bytes(2**15))
    (entry,) = (tmp_path / "cache" / "results").rglob("*.val")
    outside = tmp_path / "outside"
    outside.write_bytes(entry.read_bytes())
    frame = outside.read_bytes()
    for name in outside_paths(tmp_path):
        for harm in (use_all, lambda store: store.delete("k"), lambda store: store.verify()):
            plant(store, key="k", raw=1, mode=2, filename=name)
            assert (tmp_path / "cache" / "results" / name).read_bytes() == frame  # diskcache would follow it
            assert store.get("k") is None
            harm(store)
            assert outside.read_bytes() == frame and store.notice is None


def test_nothing_is_written_through_a_planted_folder(opened, tmp_path):
    store = opened(tmp_path / "cache")
    outside = tmp_path / "outside"
    outside.mkdir()
    for i in range(256):
        (tmp_path / "cache" / "results" / f"{i:02x}").symlink_to(outside)
    assert store.put("k", bytes(2**15)) is False and store.get("k") == bytes(2**15)
    assert "leads outside" in (store.notice or "")
    assert list(outside.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_planted_pipe_does_not_block(store):
    os.mkfifo(store.directory / "results" / "pipe.val")
    plant(store, key="k", raw=1, mode=2, filename="pipe.val")
    store.put("good", b"good")
    use_all(store)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("get", "planted"),
        ("_disk", "planted"),
        ("disk_canary", "planted"),
        ("sqlite_no_such_pragma; --", 1),
        ("sqlite_key", "planted"),
        (7, 7),
    ],
)
def test_planted_settings_set_the_store_aside(opened, tmp_path, canary, monkeypatch, name, value):
    monkeypatch.chdir(tmp_path)
    store = opened(tmp_path / "cache")
    store.put("k", b"blob")
    store.close()
    with opening.connected(tmp_path / "cache" / "results" / "cache.db") as connection:
        connection.execute("INSERT OR REPLACE INTO Settings VALUES (?, ?)", (name, value))
    store = opened(tmp_path / "cache")
    (aside,) = (tmp_path / "cache").glob("results.broken-*")
    assert aside.name in (store.notice or "") and "\n" not in (store.notice or "")
    assert (aside / "cache.db").exists() and store.get("k") is None
    assert store.put("k", b"new") is True and store.get("k") == b"new"
    size = store.size_bytes()
    assert size > sum(file.stat().st_size for file in aside.iterdir())
    assert store.clear() == size and not aside.exists() and store.notice is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sqlite_journal_mode", "delete"),
        ("sqlite_journal_mode", "wal; ATTACH 'canary' AS c"),
        ("sqlite_cache_size", b"1"),
        ("eviction_policy", "planted"),
        ("disk_pickle_protocol", "planted"),
        ("size", "planted"),
    ],
)
@pytest.mark.parametrize("while_open", [False, True])
def test_planted_values_of_known_settings_have_no_effect(
    opened, tmp_path, canary, monkeypatch, name, value, while_open
):
    monkeypatch.chdir(tmp_path)
    store = opened(tmp_path / "cache")
    store.put("good", b"good")
    if not while_open:
        store.close()
    with opening.connected(tmp_path / "cache" / "results" / "cache.db") as connection:
        connection.execute("INSERT OR REPLACE INTO Settings VALUES (?, ?)", (name, value))
        if not while_open:
            store = opened(tmp_path / "cache")
        with ThreadPoolExecutor(1) as other:  # which makes a connection of its own
            other.submit(use_all, store).result()
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store.notice is None


def test_a_folder_that_another_process_has_already_renewed_is_not_set_aside(opened, tmp_path, monkeypatch):
    store = opened(tmp_path)
    store.put("k", b"blob")
    store.close()
    real, calls = opening._inspect, []

    def inspect(database):
        calls.append(database)
        if len(calls) == 1:  # between the look and the verdict, another process puts a good store in place
            good = opened(tmp_path / "good")
            good.put("k", b"theirs")
            good.close()
            (tmp_path / "results").rename(tmp_path / "results.broken-by-another")
            (tmp_path / "good" / "results").rename(tmp_path / "results")
            raise opening.BrokenStore
        real(database)

    monkeypatch.setattr(opening, "_inspect", inspect)
    store = opened(tmp_path)
    assert store.get("k") == b"theirs" and store.notice is None


@pytest.mark.parametrize("content", [b"this is no database" * 300, b"SQLite format 3\0" + bytes(5000)])
def test_what_is_no_database_is_set_aside(opened, tmp_path, content):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "cache.db").write_bytes(content)
    store = opened(tmp_path)
    (aside,) = tmp_path.glob("results.broken-*")
    assert (aside / "cache.db").read_bytes() == content
    assert store.put("k", b"blob") is True and store.get("k") == b"blob"


def test_a_database_with_other_columns_is_set_aside(opened, tmp_path):
    (tmp_path / "results").mkdir()
    connection = sqlite3.connect(tmp_path / "results" / "cache.db")
    connection.executescript("CREATE TABLE Settings (key, value); CREATE TABLE Cache (key, value);")
    connection.close()
    store = opened(tmp_path)
    assert len(list(tmp_path.glob("results.broken-*"))) == 1
    assert store.put("k", b"blob") is True and store.get("k") == b"blob"

"""P7: deleting the results is safe at any time: what is put after it is on disk, whichever thread puts it."""

import os
import shutil
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from cache import open_store, opening


@pytest.fixture
def two_threads():
    """Two executors of one thread each: diskcache keeps a connection per thread."""
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
        yield one, two


def delete_all(folder: Path) -> None:
    shutil.rmtree(folder)


def delete_results(folder: Path) -> None:
    shutil.rmtree(folder / "results")


def delete_database_only(folder: Path) -> None:
    for file in (folder / "results").glob("cache.db*"):
        file.unlink()


def put_another_there(folder: Path) -> None:
    other = open_store(folder.parent / "other")
    other.put("theirs", b"theirs")
    other.close()
    (folder / "results").rename(folder / "moved away")
    (folder.parent / "other" / "results").rename(folder / "results")


@pytest.mark.parametrize("delete", [delete_all, delete_results, delete_database_only, put_another_there])
@pytest.mark.parametrize("blob_bytes", [100, 2**15])
def test_what_is_put_after_deletion_is_on_disk(opened, tmp_path, two_threads, delete, blob_bytes):
    folder, blob = tmp_path / "cache", bytes(blob_bytes)
    store = opened(folder)
    for n, thread in enumerate(two_threads):  # each has its connection to the old database
        assert thread.submit(store.put, f"before {n}", blob).result() is True
    delete(folder)
    for n, thread in enumerate(two_threads):
        assert thread.submit(store.put, f"after {n}", blob).result() is True
    for thread in two_threads:
        assert [thread.submit(store.get, f"after {n}").result() for n in range(2)] == [blob, blob]
        assert [thread.submit(store.get, f"before {n}").result() for n in range(2)] == [None, None]
    assert store.notice is None
    again = opened(folder)
    assert set(again.keys()) - {"theirs"} == {"after 0", "after 1"} and again.get("after 1") == blob


def test_a_miss_looks_into_the_folder_that_is_there_now(opened, tmp_path):
    store = opened(tmp_path / "cache")
    put_another_there(tmp_path / "cache")
    assert store.get("theirs") == b"theirs"


def test_a_deleted_store_has_no_keys_and_no_size(opened, tmp_path):
    store = opened(tmp_path)
    store.put("k", b"blob")
    delete_results(tmp_path)
    assert list(store.keys()) == [] and store.size_bytes() == 0
    store.delete("k")
    assert store.verify().n_checked == 0 and store.notice is None


def put_while_deleting(tmp_path, monkeypatch, n_times: int, error: Exception | None):
    """(store, result of put, sets tried): the folder goes after the look at it and before the write ends."""
    store = open_store(tmp_path)
    real, calls = opening.ResultCache.set, []

    def set_late(cache, *args, **settings):
        calls.append(cache)
        if len(calls) <= n_times:
            delete_results(tmp_path)
            if error is not None:
                raise error
        return real(cache, *args, **settings)

    monkeypatch.setattr(opening.ResultCache, "set", set_late)
    return store, store.put("k", b"blob"), len(calls)


@pytest.mark.parametrize(
    "error", [None, sqlite3.OperationalError("disk I/O error"), sqlite3.DatabaseError("malformed")]
)
def test_a_put_that_the_deletion_overtakes_is_written_again(opened, tmp_path, monkeypatch, error):
    store, stored, n_sets = put_while_deleting(tmp_path, monkeypatch, 1, error)
    assert (stored, n_sets, store.notice) == (True, 2, None)
    store.close()
    again = opened(tmp_path)
    assert again.get("k") == b"blob"


def test_a_folder_that_is_deleted_each_time_is_given_up(tmp_path, monkeypatch):
    store, stored, n_sets = put_while_deleting(tmp_path, monkeypatch, 3, None)
    assert (stored, n_sets) == (False, 3) and store.get("k") == b"blob"
    said = f"results are kept in memory: the folder is being deleted ({tmp_path / 'results'})"
    assert (store.notice or "").startswith(said)
    assert store.put("after", b"blob") is True and store.notice is None
    store.close()


def test_a_cache_whose_database_went_while_it_was_opened_is_not_in_place(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(opening, "inode_of", lambda file: None)
        cache = opening.ResultCache(tmp_path)
        assert not cache.in_place()
        cache.close()


def test_a_deletion_under_way_does_not_reach_the_new_store(opened, tmp_path):
    """`rm -r` lists a folder, then unlinks by name: a new database has the same names."""
    store = opened(tmp_path)
    assert store.put("before", bytes(2**15)) is True
    results = tmp_path / "results"
    listed = [path.relative_to(results) for path in results.rglob("*") if path.is_file()]
    listed.sort(key=lambda path: path.name != "cache.db")
    descriptor = os.open(results, os.O_RDONLY)
    try:
        os.unlink(listed[0], dir_fd=descriptor)
        assert store.put("after", bytes(2**15)) is True
        for path in listed[1:]:
            with suppress(FileNotFoundError):
                os.unlink(path, dir_fd=descriptor)
    finally:
        os.close(descriptor)
    assert [path.name for path in tmp_path.iterdir()] == ["results"] and store.notice is None
    again = opened(tmp_path)  # while the first is open: both must use the same journal
    assert again.get("after") == bytes(2**15) and list(again.keys()) == ["after"]
    assert again.put("more", b"more") is True and store.get("more") == b"more"


def test_a_folder_that_goes_while_it_is_opened_is_made_again(opened, tmp_path, monkeypatch):
    real, calls = opening.ResultCache.__init__, []

    def init(cache, folder):
        calls.append(folder)
        if len(calls) == 1:
            folder.rmdir()
            raise sqlite3.OperationalError("unable to open database file")
        real(cache, folder)

    monkeypatch.setattr(opening.ResultCache, "__init__", init)
    store = opened(tmp_path)
    assert store.notice is None and len(calls) == 2


def test_clearing_takes_the_database_away_at_once(opened, tmp_path, monkeypatch):
    """Name by name, another process would go on in a database whose journal is gone."""
    store = opened(tmp_path)
    store.put("k", bytes(2**15))
    (tmp_path / "results.deleted-before").mkdir()  # left by a clear that was killed
    (tmp_path / "results.deleted-before" / "cache.db").write_bytes(bytes(1000))
    real, still_there = Path.unlink, []

    def unlink(path, **settings):
        still_there.append((tmp_path / "results").exists())
        real(path, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", unlink)
        size = store.size_bytes()
        assert store.clear() == size > 2**15 + 1000
    assert still_there and not any(still_there)
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


@pytest.mark.parametrize("user_file", ["notes.txt", "thesis/chapter"])
def test_files_of_the_user_are_never_deleted(opened, tmp_path, user_file):
    file = tmp_path / "results" / user_file
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    (tmp_path / "results" / "ab").mkdir()
    (tmp_path / "results.csv").write_text("mine")
    store = opened(tmp_path)
    assert store.put("k", bytes(2**15)) is True and store.get("k") == bytes(2**15)
    store.clear()
    assert store.get("k") is None and store.notice is None
    assert file.read_text() == (tmp_path / "results.csv").read_text() == "mine"


def test_deleting_again_and_again_while_two_threads_work(opened, tmp_path):
    store, errors, stop = opened(tmp_path), [], threading.Event()

    def work(who: str) -> None:
        i = 0
        while not stop.is_set():
            i += 1
            blob = f"{who} {i} ".encode() * (10 if i % 4 else 5_000)
            store.put(f"{who} {i}", blob)
            if store.get(f"{who} {i}") not in (None, blob):
                errors.append((who, i))

    with ThreadPoolExecutor(2) as threads:
        workers = [threads.submit(work, who) for who in ("one", "two")]
        for _ in range(12):
            stop.wait(0.05)
            shutil.rmtree(tmp_path / "results", ignore_errors=True)
        stop.set()
        for worker in workers:
            worker.result()
    assert errors == []
    assert store.put("last", b"blob") is True and store.notice is None
    assert list(tmp_path.glob("results.broken-*")) == []
    store.close()
    again = opened(tmp_path)
    assert again.get("last") == b"blob" and again.verify().bad_keys == ()

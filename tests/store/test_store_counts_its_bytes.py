"""The size that a page shows on each draw: counted by the database, not file by file."""

import shutil
import sqlite3

import pytest

from cache import open_store

IN_A_ROW, IN_A_FILE = 1_000, 100_000  # bytes; larger values than 32 KB lie in files of their own
SLACK = 100_000  # of an empty database, and of pages that are not full


def test_the_count_follows_puts_replaced_values_and_deletions(store):
    assert 0 <= store.counted_bytes() < SLACK
    for n in range(20):
        store.put(f"row {n}", bytes(IN_A_ROW))
        store.put(f"file {n}", bytes(IN_A_FILE))
    total = 20 * (IN_A_ROW + IN_A_FILE)
    assert total < store.counted_bytes() < total + SLACK
    for _ in range(5):
        store.put("file 0", bytes(IN_A_FILE))
    assert store.counted_bytes() < total + SLACK, "a value that is replaced counts once"
    for n in range(20):
        store.delete(f"file {n}")
    assert store.counted_bytes() < total - 20 * IN_A_FILE + SLACK


def test_the_count_is_that_of_the_files_but_for_what_is_being_written(store):
    for n in range(50):
        store.put(f"file {n}", bytes(IN_A_FILE))
    assert abs(store.size_bytes() - store.counted_bytes()) < 1_000_000


def test_what_another_process_puts_is_counted(store):
    other = open_store(store.directory)
    other.put("theirs", bytes(IN_A_FILE))
    other.close()
    assert store.counted_bytes() > IN_A_FILE


@pytest.mark.parametrize("how", ["cleared", "deleted", "cleared by another"])
def test_nothing_is_left_of_the_count_when_all_is_deleted(store, how):
    store.put("file", bytes(IN_A_FILE))
    if how == "cleared":
        store.clear()
    elif how == "deleted":
        shutil.rmtree(store.directory)
    else:
        other = open_store(store.directory)
        other.clear()
        other.close()
    assert 0 <= store.counted_bytes() < SLACK and store.notice is None
    store.put("file", bytes(IN_A_FILE))
    assert IN_A_FILE < store.counted_bytes() < IN_A_FILE + SLACK


@pytest.mark.parametrize("planted", ["many", -5, None, 1e300, b"\xff"])
def test_a_count_that_was_tampered_with_is_a_number_at_least_0(store, planted):
    store.put("file", bytes(IN_A_FILE))
    with sqlite3.connect(store.directory / "results" / "cache.db") as connection:
        connection.execute("UPDATE Settings SET value = ? WHERE key = 'size'", (planted,))
    connection.close()
    assert store.counted_bytes() >= 0 and store.notice is None


def test_what_the_disk_refused_is_counted_too(opened, tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "results").write_text("a file in the way")
    store = opened(tmp_path / "results")
    assert not store.put("key", bytes(IN_A_FILE)) and store.counted_bytes() == IN_A_FILE

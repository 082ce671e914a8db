"""What is shared stops nothing: a place that is gone, full, hangs or tells of long ago costs a line, and no result."""

import errno
import os
import threading
import time
from pathlib import Path

import pytest

from cache import Store, behind, open_store, shared
from cache.remote import shared_folder
from cache.shared import SharedFolder, name_of
from tests.conftest import HANG_S
from tests.store.sharing import blob, key, odd_and_even, refuses


@pytest.fixture
def place(tmp_path):
    """The shared folder, empty."""
    (tmp_path / "shared").mkdir()
    return tmp_path / "shared"


@pytest.fixture
def two(opened, tmp_path, place):
    """The stores of two machines on it."""
    return [opened(tmp_path / who, str(place)) for who in ("one", "two")]


@pytest.fixture
def asked(monkeypatch):
    """The names that are asked for, in order."""
    names, real = [], SharedFolder.frame
    monkeypatch.setattr(SharedFolder, "frame", lambda self, name: names.append(name) or real(self, name))
    return names


def at_once(monkeypatch):
    """A place that failed is tried again at once, and each miss looks whether it is there."""
    monkeypatch.setattr(behind, "RETRY_S", 0)
    monkeypatch.setattr(behind, "CHECK_S", -1)


def until(holds):
    """Waits for what a thread of the store's does meanwhile."""
    end_s = time.monotonic() + HANG_S
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.005)


def test_what_one_measures_the_other_reads_once(two, asked):
    one, other = two
    puts = other.n_puts
    assert one.put(key(1), blob(1)) is True
    assert other.get_here(key(1)) is None
    assert [other.get(key(1)) for _ in range(3)] == [blob(1)] * 3
    assert asked == [name_of(key(1))] and other.get_here(key(1)) == blob(1) and other.n_puts == puts
    other.delete(key(1))  # of this machine alone: the next look finds the other's
    assert one.get(key(1)) == other.get(key(1)) == blob(1)
    assert one.notice is None and other.notice is None


def test_a_folder_that_is_gone_costs_a_line_and_is_written_when_it_is_back(two, place, monkeypatch):
    at_once(monkeypatch)
    one, other = two
    one.put(key(1), blob(1))
    assert other.get(key(0)) is None and other.notice is None
    os.rename(place, away := place.with_name("away"))
    assert other.get(key(1)) is None and other.put(key(2), blob(2)) is True and other.put(key(3), blob(3)) is True
    line = other.notice or ""
    assert line.startswith("shared results cannot be read or written: the folder is gone") and "\n" not in line
    assert str(place) in line and "not written yet: 2" in line
    assert not place.exists()  # a folder made in its place would be another disk's
    os.rename(away, place)
    until(lambda: other.get(key(1)) == blob(1))
    other.put(key(4), blob(4))
    until(lambda: other.notice is None and shared_folder(str(place)).get(key(3)) is not None)
    assert [one.get(key(number)) for number in (2, 3, 4)] == [blob(2), blob(3), blob(4)]


def test_the_empty_folder_of_a_disk_that_is_not_mounted_is_left_empty(place):
    there = shared_folder(str(place))
    there.put(key(1), blob(1))
    os.rename(place, place.with_name("away"))
    place.mkdir()
    for use in (there.check, there.names, lambda: there.put(key(2), blob(2))):
        with pytest.raises(OSError, match="the folder is gone"):
            use()
    assert list(place.iterdir()) == []


def test_whatever_is_owed_goes_with_the_next_write(two, place):
    one, _ = two
    one.put_here(key(1), blob(1))
    one._behind._owed[key(1)] = one._behind._owed[key("deleted since")] = None
    one.put(key(2), blob(2))
    until(lambda: shared_folder(str(place)).get(key(1)) == blob(1) and not one._behind._owed)


def test_closing_writes_what_is_owed(two, place, monkeypatch):
    one, _ = two
    one.put(key(1), blob(1))
    os.rename(place, away := place.with_name("away"))
    one.put(key(2), blob(2))
    assert "not written yet: 1" in (one.notice or "")
    os.rename(away, place)
    one.close()  # it is to be left alone for a while yet
    assert "not written yet: 1" in (one.notice or "") and shared_folder(str(place)).get(key(2)) is None
    at_once(monkeypatch)
    one.put("views/saved", b"")
    monkeypatch.setattr(one._behind._writing, "_again_s", 0)
    one.close()
    assert one.notice is None and shared_folder(str(place)).get(key(2)) == blob(2)


def test_a_place_that_failed_is_left_alone_for_a_while(two, place, monkeypatch, asked):
    monkeypatch.setattr(behind, "CHECK_S", -1)
    one, other = two
    one.put(key(1), blob(1))
    assert other.get(key(2)) is None
    os.rename(place, away := place.with_name("away"))
    assert other.get(key(3)) is None
    os.rename(away, place)
    assert other.get(key(1)) is None and len(asked) == 1 and "tried again every 30 seconds" in (other.notice or "")


def test_a_full_disk_loses_nothing_and_leaves_no_half_file(two, place, monkeypatch):
    at_once(monkeypatch)
    one, other = two
    one.put(key(1), blob(1))
    real = shared._write

    def full(path, content):
        real(path, content[: len(content) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shared, "_write", full)
    assert other.put(key(2), blob(2)) is True and other.get(key(2)) == blob(2)
    assert (other.notice or "").startswith("shared results cannot be written: No space left on device")
    assert other.get(key(1)) == blob(1), "what is there is read"
    assert [len(file.name) for file in place.rglob("*") if file.is_file()] == [40]
    monkeypatch.setattr(shared, "_write", real)
    other.put(key(3), blob(3))
    until(lambda: other.notice is None and shared_folder(str(place)).get(key(2)) is not None)
    assert one.get(key(2)) == blob(2)


def test_a_full_disk_for_real(two, place):
    """A limit on the size of files stands for it: the write fails in the middle."""
    resource = pytest.importorskip("resource")
    one, other = two
    one.put(key(1), blob(1))
    large = bytes(5_000_000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_000_000, before[1]))
    try:
        with pytest.raises(OSError):
            shared_folder(str(place)).put(key(2), large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [len(file.name) for file in place.rglob("*") if file.is_file()] == [40]
    assert other.get(key(2)) is None and other.get(key(1)) == blob(1)


def test_a_place_that_hangs_is_waited_for_once(two, place, monkeypatch):
    monkeypatch.setattr(behind, "READ_S", 0.05)
    monkeypatch.setattr(behind, "OPEN_S", 0.05)
    one, other = two
    one.put(key(1), blob(1))
    calls, back, real = [], threading.Event(), SharedFolder.frame
    monkeypatch.setattr(
        SharedFolder, "frame", lambda self, name: (calls.append(name), back.wait(), real(self, name))[2]
    )
    assert [other.get(key(number)) for number in (1, 2, 3)] == [None, None, None]
    assert len(calls) == 1 and "no answer within" in (other.notice or "")
    back.set()
    until(lambda: other._behind._patient.n_late == 0)
    other._behind._reading._again_s = 0  # half a minute later
    puts = other.n_puts
    until(lambda: other.get(key(1)) == blob(1))
    assert other.notice is None and other.n_puts > puts  # whoever shows what is stored reads again


@pytest.mark.parametrize(
    ("address", "says"),
    [("gone", "the folder does not exist"), ("s3x://bucket/x", "s3x"), ("one", "the result store of one machine")],
)
def test_an_address_that_is_none_is_told_in_one_line(opened, address, says, tmp_path):
    Store(tmp_path / "one").close()
    store = opened(tmp_path / "store", address if "://" in address else str(tmp_path / address))
    assert store.notice is None  # until it is needed
    assert store.get(key(1)) is None and store.put(key(1), blob(1)) is True and store.get(key(1)) == blob(1)
    line = store.notice or ""
    assert line.startswith("shared results cannot be read or written: ") and says in line and "\n" not in line


def test_many_misses_are_not_asked_for_one_by_one(two, place, monkeypatch, asked):
    one, other = two
    one.put(key("there"), blob(1))
    monkeypatch.setattr(behind, "MISSES_S", 0)  # as after a fifth of a second of misses
    monkeypatch.setattr(behind, "LIST_S", 0)
    other._behind._may_miss_s = 0
    assert [other.get(key(number)) for number in range(200)] == [None] * 200 and asked == []
    until(lambda: other._behind._names is not None)
    assert other.get(key("there")) == blob(1) and asked == [name_of(key("there"))]  # it is listed
    puts = other.n_puts
    one.put(key(7), blob(7))
    assert other.get(key(7)) is None or asked[-1] == name_of(key(7))  # the list is from before, or just new
    until(lambda: other.get(key(7)) == blob(7))
    assert other.n_puts > puts  # whoever shows what is stored reads again
    n_asked = len(asked)
    assert [other.get(key(number)) for number in range(100, 200)] == [None] * 100 and len(asked) == n_asked


def test_the_stamp_changes_with_what_others_share(two, monkeypatch):
    monkeypatch.setattr(behind, "LIST_S", 0)
    one, other = two
    other.stamp()
    until(lambda: other._behind._names is not None)
    before = other.stamp()
    one.put(key(1), blob(1))
    until(lambda: other.stamp() != before)
    until(lambda: name_of(key(1)) in other._behind._names)
    assert other.get(key(1)) == blob(1)
    before = one.stamp()
    one.put("views/saved", b"of this machine")
    assert one.stamp() != before


def test_a_stale_list_is_a_miss_at_worst(two, place, monkeypatch):
    one, other = two
    one.put(key(1), blob(1))
    one.put(key(2), blob(2))
    old = shared_folder(str(place)).names()
    shared_folder(str(place)).remove(name_of(key(1)))
    one.put(key(3), blob(3))
    monkeypatch.setattr(SharedFolder, "names", lambda self: set(old))
    monkeypatch.setattr(behind, "MISSES_S", 0)
    other._behind._may_miss_s, other._behind._names, other._behind._list_at_s = 0, set(old), float("inf")
    assert other.get(key(1)) is None  # listed, and gone
    assert other.get(key(2)) == blob(2)
    assert other.get(key(3)) is None  # there, and not listed: it is measured again, and written over
    assert other.put(key(3), blob(3)) is True and other.notice is None
    assert shared_folder(str(place)).get(key(3)) == blob(3)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ESTALE])
def test_files_that_cannot_be_read_are_misses_and_the_others_are_read(two, monkeypatch, number):
    one, other = two
    odd, even = odd_and_even()
    for each in range(40):
        one.put(key(each), blob(each))
    refuses(monkeypatch, "_read", number=number)
    mixed = sorted(odd + even)
    assert [other.get(key(each)) for each in mixed] == [None if each in odd else blob(each) for each in mixed]
    assert (other.notice or "").startswith(f"some shared results cannot be read: {os.strerror(number)}")
    monkeypatch.undo()
    assert [other.get(key(each)) for each in odd] == [blob(each) for each in odd] and other.notice is None


def test_folders_of_another_user_keep_no_other_result_back(two, place, monkeypatch):
    one, _ = two
    odd, even = odd_and_even()
    refuses(monkeypatch, "_write")
    for each in [*odd[:3], *even, *odd[3:]]:
        assert one.put(key(each), blob(each)) is True
    there = shared_folder(str(place))
    until(lambda: not one._behind._owed)
    assert [there.get(key(each)) for each in even] == [blob(each) for each in even]
    line = one.notice or ""
    assert line.startswith("some shared results cannot be written: Permission denied")
    assert f"not written yet: {len(odd)} " in line and "not written" not in (one.trouble or "")
    assert len(one._behind._refused) == len(odd)
    monkeypatch.undo()
    monkeypatch.setattr(one._behind._some_writes, "_again_s", 0)
    one.put(key(41), blob(41))
    until(lambda: one.notice is None)
    assert [there.get(key(each)) for each in odd] == [blob(each) for each in odd]


def test_a_folder_that_may_not_be_looked_into_hides_no_other(two, place, monkeypatch):
    one, _ = two
    for each in range(40):
        one.put(key(each), blob(each))
    real, odd = os.listdir, odd_and_even()[0]

    def refused(folder):
        if os.path.basename(folder) == name_of(key(odd[0]))[:2]:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
        return real(folder)

    monkeypatch.setattr(os, "listdir", refused)
    listed = shared_folder(str(place)).names()
    assert name_of(key(odd[0])) not in listed and len(listed) >= 36


def test_a_folder_that_another_thread_has_just_made_is_not_gone(place, monkeypatch):
    there, real = shared_folder(str(place)), Path.is_dir

    def looked_for(path):
        found = real(path)
        if path == there.root and not found:
            monkeypatch.undo()
            there.put(key(2), blob(2))  # what another thread does after this one has looked
        return found

    monkeypatch.setattr(Path, "is_dir", looked_for)
    there.put(key(1), blob(1))
    assert there.get(key(1)) == blob(1) and there.get(key(2)) == blob(2)


def test_a_rename_that_was_asked_for_twice_has_been_done(place, monkeypatch):
    """The answer to the first is lost on the network; the second finds nothing to rename."""
    there, real = shared_folder(str(place)), os.replace

    def twice(part, path):
        real(part, path)
        real(part, path)

    monkeypatch.setattr(os, "replace", twice)
    there.put(key(1), blob(1))
    assert there.get(key(1)) == blob(1)

    def vanished(part, path):
        os.unlink(part)
        real(part, path)

    monkeypatch.setattr(os, "replace", vanished)
    with pytest.raises(FileNotFoundError):
        there.put(key(2), blob(2))


def test_without_an_address_nothing_of_it_is_there(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADROOM_SHARED", "")
    before = threading.active_count()
    store = open_store(tmp_path)
    store.put(key(1), blob(1))
    assert store.get(key(2)) is None and store._behind is None and threading.active_count() == before
    store.close()

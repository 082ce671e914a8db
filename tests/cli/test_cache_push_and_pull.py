"""`cache push` and `cache pull`: what is missing and no more, from where it was stopped, in one line each."""

import errno
import json
import os

import pytest

from cache import Store, exchange, shared
from cache.remote import shared_folder
from cache.shared import framed, name_of
from tests.cli.conftest import refused
from tests.store.sharing import blob, key, odd_and_even, refuses


@pytest.fixture
def place(tmp_path):
    """The shared folder, which is yet to be made."""
    return tmp_path / "shared"


@pytest.fixture
def box(tmp_path):
    """The store of the machine that has measured, with twelve results, a view and a rate of its own."""
    store = Store(tmp_path / "box")
    for number in range(12):
        store.put(key(number), blob(number))
    store.put("views/saved", b"its own")
    store.put(key(0).replace("answers", "rates"), b"its own")
    yield store
    store.close()


def run(cli, store, *arguments):
    code, out, lines = cli("cache", *arguments, "--cache", store, "--json")
    assert code == 0 and [line for line in lines if "results, " not in line] == []
    return json.loads(out)


def test_a_box_computes_and_a_laptop_shows(cli, box, place, tmp_path):
    laptop = Store(tmp_path / "laptop")
    laptop.put(key(3), blob(3))
    n_bytes = sum(len(blob(number)) for number in range(12))
    would = run(cli, box.directory, "push", place, "--dry-run")
    assert would == {"dry_run": True, "where": str(place), "missing": 12, "missing_bytes": n_bytes, "in_both": 0}
    assert not place.exists()
    pushed = run(cli, box.directory, "push", place)
    assert (pushed["brought"], pushed["brought_bytes"], pushed["left_out"]) == (12, n_bytes, 0)
    assert run(cli, box.directory, "push", place)["missing"] == 0
    would = run(cli, laptop.directory, "pull", place, "--dry-run")
    assert (would["missing"], would["in_both"]) == (11, 1) and list(laptop.keys()) == [key(3)]
    assert run(cli, laptop.directory, "pull", place)["brought"] == 11
    assert {name: laptop.get(name) for name in laptop.keys()} == {key(number): blob(number) for number in range(12)}
    assert run(cli, laptop.directory, "pull", place)["brought"] == 0
    laptop.close()


def test_in_words(cli, box, place):
    code, out, _ = cli("cache", "push", place, "--dry-run", "--cache", box.directory)
    assert code == 0 and out.startswith("12 results (") and out.endswith(
        f" MB) missing in {place}, 0 in both; nothing was brought\n")  # fmt: skip
    code, out, _ = cli("cache", "push", place, "--cache", box.directory)
    assert code == 0 and out.startswith("12 results (") and f"brought to {place}, 0 in both before" in out
    code, out, _ = cli("cache", "verify", place, "--cache", box.directory)
    assert code == 0 and out == "12 files checked, 0 damaged and deleted, 0 half-written ones removed\n"


def test_the_place_of_the_environment_is_the_default(cli, box, place, monkeypatch):
    place.mkdir()
    monkeypatch.setenv("HEADROOM_SHARED", str(place))
    assert run(cli, box.directory, "push")["brought"] == 12
    assert run(cli, box.directory, "verify")["checked"] == 14  # of the store here


@pytest.mark.parametrize("way", ["push", "pull"])
def test_what_was_stopped_goes_on_from_there(way, box, place, tmp_path, monkeypatch):
    shared, laptop = shared_folder(str(place), make=True), Store(tmp_path / "laptop")
    if way == "pull":
        for _ in exchange.push(box, shared, exchange.missing_there(box, shared)):
            pass
    move, missing, store = {
        "push": (exchange.push, lambda: exchange.missing_there(box, shared), box),
        "pull": (exchange.pull, lambda: exchange.missing_here(laptop, shared), laptop),
    }[way]
    monkeypatch.setattr(shared, "at_once", 1)
    moving = move(store, shared, missing())
    assert [next(moving).n for _ in range(3)] == [1, 2, 3]
    moving.close()
    left = missing()
    assert 12 - 3 - 2 <= len(left.sizes) <= 12 - 3 and left.n_both == 12 - len(left.sizes)
    assert list(move(store, shared, left))[-1].n == len(left.sizes)
    assert missing().sizes == {} and list(exchange.verify_shared(shared))[-1].bad_keys == ()
    laptop.close()


def test_what_is_damaged_or_no_result_is_left_out(cli, box, place, tmp_path):
    run(cli, box.directory, "push", place)
    shared, view = shared_folder(str(place)), "views/saved"
    shared.write(name_of(key(5)), framed(key(5), blob(5))[:-1])
    shared.put(view, b"planted")
    pulled = run(cli, tmp_path / "laptop", "pull", place)
    assert (pulled["missing"], pulled["brought"], pulled["left_out"]) == (13, 11, 2)
    laptop = Store(tmp_path / "laptop")
    assert laptop.get(view) is None and laptop.get(key(5)) is None and laptop.get(key(6)) == blob(6)
    laptop.close()
    assert run(cli, tmp_path / "laptop", "verify", place)["damaged"] == [name_of(key(5))]
    assert run(cli, box.directory, "push", place)["brought"] == 1  # it is missing again
    assert run(cli, tmp_path / "laptop", "pull", place)["brought"] == 1


def test_a_result_that_is_damaged_here_is_not_pushed(box, place, monkeypatch):
    shared = shared_folder(str(place), make=True)
    missing = exchange.missing_there(box, shared)
    box.delete(key(4))  # as a damaged one is: a miss
    moved = list(exchange.push(box, shared, missing))[-1]
    assert (moved.n, moved.n_left_out) == (11, 1) and shared.get(key(4)) is None


def test_a_write_that_does_not_hold_is_noticed(cli, box, place, monkeypatch):
    from cache.shared import SharedFolder

    monkeypatch.setattr(SharedFolder, "write", lambda self, name, frame: None)
    refused(cli("cache", "push", place, "--cache", box.directory), 1, "what was written is not there", str(place))
    monkeypatch.undo()
    assert run(cli, box.directory, "push", place)["brought"] == 12
    monkeypatch.setattr(Store, "get_here", lambda self, key: b"other bytes")
    refused(cli("cache", "pull", place, "--cache", place.with_name("laptop")), 1, "did not keep what was written")


def test_a_full_place_is_one_line(cli, box, place, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("cache.shared._write", full)
    refused(cli("cache", "push", place, "--cache", box.directory), 1, "No space left", "goes on from there")


def test_files_of_another_user_stop_neither_push_nor_pull(cli, box, place, tmp_path, monkeypatch):
    odd, _ = odd_and_even(12)
    refuses(monkeypatch, "_write")
    pushed = run(cli, box.directory, "push", place)
    assert 0 < len(odd) < 12 and (pushed["brought"], pushed["left_out"]) == (12 - len(odd), len(odd))
    refused(cli("cache", "push", place, "--cache", box.directory), 1, "Permission denied", str(place))
    monkeypatch.undo()
    assert run(cli, box.directory, "push", place)["brought"] == len(odd)
    refuses(monkeypatch, "_read")
    pulled = run(cli, tmp_path / "laptop", "pull", place)
    assert (pulled["brought"], pulled["left_out"]) == (12 - len(odd), len(odd))
    told = run(cli, tmp_path / "laptop", "verify", place)
    assert (told["checked"], told["damaged"], told["unreadable"]) == (12 - len(odd), [], len(odd))
    monkeypatch.undo()
    assert run(cli, tmp_path / "laptop", "pull", place)["brought"] == len(odd)


@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    [
        (("push",), 2, ("HEADROOM_SHARED", "s3://")),
        (("pull",), 2, ("HEADROOM_SHARED",)),
        (("push", "file://"), 1, ("cannot use file://", "names no folder")),
        (("push", "file:///"), 1, ("names no folder",)),
        (("push", " "), 1, ("names no folder",)),
        (("push", "::", "--dry-run"), 1, ("chained by ::",)),
        (("push", "::"), 1, ("cannot use ::", "chained by ::")),
        (("pull", "simplecache::file://{}/shared"), 1, ("chained by ::",)),
        (("push", "nosuch://bob:hun@ter2@host/x"), 1, ("cannot use nosuch://bob:…@host/x",)),
        (("push", "{}/no/such/folder"), 1, ("no/such/folder",)),
        (("pull", "{}/no-such-folder"), 1, ("no-such-folder", "the folder does not exist")),
        (("pull", "{}/box"), 1, ("the result store of one machine",)),
        (("push", "{}/box/results"), 1, ("the result store of one machine",)),
        (("pull", "{}"), 1, ("has no results", "cache push")),
        (("pull", "{}/file"), 1, ("the folder does not exist",)),
        (("pull", "nowhere://me:secret@host/x"), 1, ("nowhere://me:…@host/x",)),
        (("pull", "a\0b"), 2, ("cannot be the name",)),
        (("size", "{}"), 2, ("takes no folder", "--cache")),
        (("clear", "{}"), 2, ("takes no folder",)),
        (("list", "--dry-run"), 2, ("--dry-run", "push and pull")),
    ],
)
def test_bad_input_gets_one_line(cli, box, tmp_path, monkeypatch, arguments, code, parts):
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    typed = [each.format(tmp_path) for each in arguments]
    refused(cli("cache", *typed, "--cache", tmp_path / "laptop"), code, *parts)
    assert not list((tmp_path / "here").iterdir())


@pytest.mark.parametrize("address, expected", [
    ("ssh://bob:hun@ter2@host/x", "ssh://bob:…@host/x"), ("ssh://bob:a/b@host:22/x", "ssh://bob:…@host:22/x"),
    ("ssh://bob@corp:pw@host", "ssh://bob@corp:…@host"), ("ssh://bob:a b\nc@host", "ssh://bob:…@host"),
    ("ssh://bob@host:22/x", "ssh://bob@host:22/x"), ("s3://bucket/a@b", "s3://bucket/a@b"), ("/a:b@c", "/a:b@c"),
])  # fmt: skip
def test_no_part_of_a_password_is_shown(address, expected):
    assert shared.shown(address) == expected
    assert shared.reason(OSError(f"{address}\n{'place ' * 500}")).startswith(expected.replace("\n", " ")[:200])
    assert len(shared.reason(OSError("place " * 500))) == 200

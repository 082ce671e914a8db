"""`cache pull`: results of another store's folder, what is missing and no more."""

import hashlib
import json

import pytest

from cache import Store
from engine.records import travels
from tests.cli.conftest import refused
from tests.conftest import REPOSITORY


def key(number: int, kind: str = "answers") -> str:
    """A key of the form that results have, of a version whose results nobody decodes here."""
    return f"0/{kind}/{hashlib.blake2b(str(number).encode(), digest_size=20).hexdigest()}"


@pytest.fixture
def box(tmp_path):
    """The store of the machine that has measured, with four results, and a view and timings of its own."""
    store = Store(tmp_path / "box")
    for number in range(4):
        store.put(key(number), bytes(1000 * number + 1))
    store.put("views/saved", b"its own")
    store.put(key(0, "rates"), b"its own")
    store.put(key(0, "tuning"), b"its own")
    yield store
    store.close()


def test_a_box_computes_and_a_laptop_shows(cli, box, tmp_path):
    laptop = Store(tmp_path / "laptop")
    laptop.put(key(3), bytes(3001))

    def pulled():
        code, out, _ = cli("cache", "pull", box.directory, "--cache", laptop.directory, "--json")
        assert code == 0
        return json.loads(out)

    first = pulled()
    assert first == {"where": str(box.directory), "copied": 3, "bytes": 3003, "in_both": 1, "left_out": 0}
    assert {each: laptop.get(each) for each in laptop.keys()} == {key(n): bytes(1000 * n + 1) for n in range(4)}
    assert pulled() == {**first, "copied": 0, "bytes": 0, "in_both": 4}
    box.put(key(5), bytes(5))
    code, out, _ = cli("cache", "pull", box.directory, "--cache", laptop.directory)
    assert code == 0 and out == f"1 result (0.0 MB) copied from {box.directory}, 4 were here\n"
    laptop.close()


def test_only_results_travel():
    digest = key(0).rpartition("/")[2]
    assert travels(key(0)) and travels(f"2/head on probe/{digest}")
    for other in ("views/saved", "passages", f"passage/{digest}", f"file-digest/{digest}", f"3/rates/{digest}",
                  f"3/speed/{digest}", f"x{key(0)}", f"{key(0)}0"):  # fmt: skip
        assert not travels(other), other


def test_the_kinds_that_stay_are_those_that_the_engine_overwrites_or_times():
    """Were one renamed, how fast a machine is would be told to all the others."""
    files = {"rates": "timing/observed_timings.py", "speed": "accuracy/speed.py", "tuning": "kernels/kernel_choice.py"}
    for kind, file in files.items():
        assert f'canonical_key("{kind}"' in (REPOSITORY / "engine" / file).read_text()


def test_a_damaged_result_is_left_out(cli, box, tmp_path):
    box.put(f"3/answers/{key(9)[-40:]}", b"not a record")
    box._cache._con.execute("UPDATE Cache SET value = zeroblob(60) WHERE key = ?", (key(0),))
    code, out, _ = cli("cache", "pull", box.directory, "--cache", tmp_path / "laptop", "--json")
    told = json.loads(out)
    assert code == 0 and (told["copied"], told["left_out"]) == (3, 2)


def test_a_store_that_cannot_be_written_ends_it_in_one_line(cli, box, tmp_path, monkeypatch):
    monkeypatch.setattr(Store, "put", lambda self, key, blob: False)
    code, out, lines = cli("cache", "pull", box.directory, "--cache", tmp_path / "laptop")
    assert code == 1 and out == "" and "the same command goes on from here" in lines[0]


def test_bad_input_gets_one_line(cli, box, tmp_path):
    (tmp_path / "empty").mkdir()
    refused(cli("cache", "pull"), 2, "cache pull needs the folder of another store")
    refused(cli("cache", "size", box.directory), 2, "cache size takes no folder", str(box.directory))
    for folder in ("empty", "nowhere"):
        refused(cli("cache", "pull", tmp_path / folder), 1, f"{folder} is not the folder of a store", "cache size")

"""`cache equal`: whether two places have the same results, to the last bit of every number."""

import json

import numpy as np
import pytest

from cache import Store
from cache.remote import shared_folder
from cache.shared import framed, name_of
from engine.records import Record, encode
from tests.cli.conftest import refused
from tests.store.sharing import key

RECEIPT = {"kind": "answers", "seconds": 1.0, "measured_at": "2026-01-01T00:00:00Z", "mask": "L0H1", "cores": 2,
           "task": {"name": "/here/own.jsonl", "shots": 1}}  # fmt: skip


def result(number, value=0.0, **told):
    return encode(Record({"values": np.arange(3.0) + number + value}, RECEIPT | told))


@pytest.fixture
def places(tmp_path):
    """Stores of two machines with eight results each, and the shared folder of a third."""
    (tmp_path / "shared").mkdir()
    stores = [Store(tmp_path / name) for name in ("one", "other")]
    shared = shared_folder(str(tmp_path / "shared"))
    for number in range(8):
        for place, seconds in zip((*stores, shared), (1.0, 2.0, 3.0), strict=True):
            where = {"seconds": seconds, "measured_at": f"2026-01-0{seconds:.0f}T00:00:00Z", "cores": int(seconds)}
            where["task"] = {"name": f"/of/{seconds:.0f}/own.jsonl", "shots": 1}
            place.put(key(number), result(number, **where))
    stores[0].put("views/saved", b"its own")
    stores[0].put(key(0).replace("answers", "tuning"), b"its own")
    stores[1].put(key(0).replace("answers", "rates"), b"its own")
    yield *stores, shared
    for store in stores:
        store.close()


def run(cli, *arguments):
    code, out, _ = cli("cache", "equal", *arguments, "--json")
    return code, json.loads(out)


def test_when_and_where_do_not_count_and_neither_does_what_is_a_machines_own(cli, places):
    one, other, shared = places
    for a, b in ((one.directory, other.directory), (one.directory, shared.address), (shared.address, other.directory)):
        code, told = run(cli, a, b)
        assert code == 0 and told == {"first": str(a), "second": str(b), "are_equal": True, "equal": 8,
                                      "different": {}, "only_first": [], "only_second": []}  # fmt: skip
    code, told = run(cli, shared.address, "--cache", one.directory)
    assert code == 0 and (told["first"], told["equal"]) == (str(one.directory), 8)
    assert run(cli, one.directory / "results", other.directory)[0] == 0


@pytest.mark.parametrize("place", [1, 2])
def test_one_bit_one_word_and_one_key_count(cli, places, place):
    one, other = places[0], places[place]
    other.put(key(1), result(1, value=2**-50))
    other.put(key(2), result(2, mask="L0H2"))
    other.put(key(3), encode(Record({"values": np.arange(3.0, dtype=np.float32) + 3}, RECEIPT)))
    other.put(key(4), encode(Record({"others": np.arange(3.0) + 4}, RECEIPT)))
    other.put(key(9), b"no record")
    one.put(key(9), b"no record either")
    other.put(key(10), result(10))
    one.put(key(11), result(11))
    code, told = run(cli, one.directory, other.directory if place == 1 else other.address)
    assert code == 1 and not told["are_equal"] and told["equal"] == 4
    assert told["different"] == {
        key(1): "the numbers of values differ",
        key(2): "the receipts differ in mask",
        key(3): "values is of another type or shape",
        key(4): "only one has others",
        key(9): "no records, and other bytes",
    }
    assert (told["only_first"], told["only_second"]) == ([key(11)], [key(10)])
    code, out, _ = cli("cache", "equal", one.directory, other.directory if place == 1 else other.address)
    assert code == 1 and f"{key(1)}: the numbers of values differ\n" in out
    assert "4 results are equal but for when and where they were measured, 5 differ, 1 are only in" in out


def test_a_damaged_file_is_one_that_is_not_there(cli, places):
    one, _, shared = places
    shared.write(name_of(key(5)), framed(key(5), result(5))[:-1])
    code, told = run(cli, one.directory, shared.address)
    assert code == 1 and told["only_first"] == [key(5)] and told["equal"] == 7


def test_bad_input_gets_one_line(cli, places, tmp_path, monkeypatch):
    monkeypatch.delenv("HEADROOM_SHARED", raising=False)
    one = places[0].directory
    (tmp_path / "empty").mkdir()
    refused(cli("cache", "equal"), 2, "cache equal needs a place")
    refused(cli("cache", "equal", one, tmp_path / "nowhere"), 1, "nowhere", "the folder does not exist")
    refused(cli("cache", "equal", tmp_path / "empty", tmp_path / "empty"), 1, "have no results")
    refused(cli("cache", "push", tmp_path / "empty", one), 2, "takes one place", str(one))
    refused(cli("cache", "equal", one, "--dry-run"), 2, "--dry-run")

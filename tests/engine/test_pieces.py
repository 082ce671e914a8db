"""What is stored is read, what is missing or unsound is measured and stored at once; and a long run's arithmetic."""

from types import SimpleNamespace

import numpy as np
import pytest

from engine.kernels.cpu_kernels import Kernels
from engine.measurement import of_records
from engine.models.session import Session
from engine.pieces import Piece
from engine.progress import Progress, driven, final, last_value
from engine.records import Record, canonical_key, decode, encode
from tests.engine.fixtures import last, left_when

SHAPES = {"scores": (2, "W"), "names": ("W",)}
SOUND = {"scores": np.zeros((2, 3)), "names": np.zeros(3)}


class OneModel:
    """In the place of Models: it gives a model that is nothing but its identity, and counts how often it is asked."""

    def __init__(self):
        self.loaded, self.held, self.n_asked = None, (), 0

    def holds(self, spec):
        return self.loaded is not None and self.loaded.spec == spec

    def get(self, spec):
        self.n_asked += 1
        family = SimpleNamespace(layer_list=lambda model: [])
        self.loaded = SimpleNamespace(spec=spec, identity=self.identity, family=family, model=None, products=Kernels())
        return self.loaded


@pytest.fixture
def bench(store, target):
    """A session without a model, and the names of the pieces that were begun and of those that ended in some way."""
    models = OneModel()
    models.identity = target.identity
    return SimpleNamespace(session=Session(store, models), begun=[], ended=[])


def key_of(name):
    return canonical_key("test", {"name": name})


def piece(bench, name, size=2):
    def measure(loaded):
        bench.begun.append(name)
        try:
            for number in range(size):
                yield Progress(number, size, message=f"in {name}")
        finally:
            bench.ended.append(name)
        return {"scores": np.full((2, 3), ord(name)), "names": np.arange(3)}, {"kind": "test", "of": name}

    return Piece(key_of(name), size, SHAPES, measure)


def records_of(target, wanted):
    """The measurement that gives the records of these pieces."""
    return of_records(target, ("test",), lambda session, records: list(wanted), lambda records: list(records))


def values(records):
    return "".join(chr(int(record.arrays["scores"][0, 0])) for record in records)


def test_what_is_stored_is_read_and_the_rest_is_measured_and_stored_at_once(bench, target, store):
    list(records_of(target, [piece(bench, "b")]).run(bench.session))
    seen = []
    for step in records_of(target, [piece(bench, name) for name in "abc"]).run(bench.session):
        if step.value is not None:
            seen.append((values(step.value), step.done, step.total, step.cached))
            assert all(store.get(key_of(name)) is not None for name in values(step.value)), "not stored at once"
            assert (store.get(key_of("c")) is not None) == ("c" in values(step.value))
    assert seen == [("a", 2, 6, False), ("ab", 4, 6, False), ("abc", 6, 6, False)]
    assert bench.begun == ["b", "a", "c"]
    receipt = decode(store.get(key_of("c"))).receipt
    assert receipt["of"] == "c" and receipt["model"] == target.identity.digest and receipt["seconds"] >= 0


def test_a_run_that_finds_everything_is_cached_and_asks_for_no_model(bench, target):
    wanted = [piece(bench, name) for name in "ab"]
    measured = last(records_of(target, wanted).run(bench.session))
    n_asked = bench.session.models.n_asked
    steps = list(records_of(target, wanted).run(bench.session))
    assert all(step.cached for step in steps) and not measured.cached and bench.session.models.n_asked == n_asked > 0
    assert values(steps[-1].value) == values(records_of(target, wanted).stored(bench.session)) == "ab"


@pytest.mark.parametrize(
    "arrays",
    [
        None,
        {"scores": SOUND["scores"]},
        SOUND | {"names": np.zeros((3, 1))},
        SOUND | {"scores": np.zeros((1, 3))},
        SOUND | {"names": np.zeros(4)},
    ],
    ids=["no record", "an array is missing", "another rank", "another length", "a letter is two lengths"],
)
def test_an_unsound_record_is_measured_anew(arrays, bench, target, store):
    wanted = [piece(bench, name) for name in "ab"]
    store.put(key_of("b"), encode(Record(SOUND, {})))
    assert records_of(target, wanted[1:]).stored(bench.session), "sound, so that this test can tell"
    store.put(key_of("b"), b"nonsense" if arrays is None else encode(Record(arrays, {})))
    assert records_of(target, wanted[1:]).so_far(bench.session) == []
    assert values(final(records_of(target, wanted).run(bench.session))) == "ab" and bench.begun == ["a", "b"]
    assert values(records_of(target, wanted).so_far(bench.session)) == "ab", "the sound one is kept"


def test_reading_alone_ends_at_the_first_that_is_missing(bench, target):
    list(records_of(target, [piece(bench, name) for name in "ac"]).run(bench.session))
    n_asked, wanted = bench.session.models.n_asked, [piece(bench, name) for name in "abc"]
    known = records_of(target, wanted).stored_part(bench.session)
    assert values(known.value) == "a" and [*known.missing] == [key_of("b")]
    assert records_of(target, wanted).stored(bench.session) is None
    assert records_of(target, wanted[1:]).so_far(bench.session) == []
    assert bench.begun == ["a", "c"] and bench.session.models.n_asked == n_asked


def test_a_run_that_is_closed_keeps_what_was_finished(bench, target, store):
    wanted = [piece(bench, name) for name in "abc"]
    left_when(records_of(target, wanted).run(bench.session), lambda step: step.message == "in b")
    assert bench.ended == ["a", "b"], "what the piece in hand has put into the model is taken out"
    assert values(records_of(target, wanted).so_far(bench.session)) == "a" and store.get(key_of("b")) is None
    assert values(final(records_of(target, wanted).run(bench.session))) == "abc" and bench.begun == ["a", "b", "b", "c"]


def test_later_pieces_may_go_by_the_records_so_far(bench, target):
    def wanted(session, records):
        while len(records) < 3:
            yield piece(bench, "abc"[len(records)])

    def counted(records):
        return len(records), 3

    each = of_records(target, ("test",), wanted, lambda records: list(records), None, counted)
    *_, step = each.run(bench.session)
    assert values(step.value) == values(each.stored(bench.session)) == "abc" and (step.done, step.total) == (3, 3)


def test_a_step_within_a_piece_stands_at_its_place_in_the_run(bench, target):
    steps = list(records_of(target, [piece(bench, "a", 4), piece(bench, "b", 6)]).run(bench.session))
    inside = [(step.done, step.total, step.message) for step in steps if step.value is None and not step.is_loading]
    assert inside == [(at, 10, "in a" if at < 4 else "in b") for at in range(10)]
    loading = [step for step in steps if step.is_loading]
    assert [(step.done, step.total) for step in loading] == [(0, 10)] and loading[0].message.startswith("loading ")


def test_part_of_a_longer_run_by_hand():
    step = Progress(3, 4, "value", "here", cached=True)
    assert step.within(10, 100) == Progress(13, 100, None, "here", True)
    assert step.within(10, 100, 20) == Progress(25, 100, None, "here", True), "3 of 4 are 15 of 20"
    assert step.within(10, 100, 20, "there").message == "there"
    assert Progress(0, 0).within(10, 100, 20).done == 10
    loading = Progress(0, 1, message="loading demo", is_loading=True)
    assert loading.within(10, 100, 20, "there") == Progress(10, 100, None, "loading demo", is_loading=True)
    assert step.map(len) == Progress(3, 4, 5, "here", True) and Progress(1, 2).map(len) == Progress(1, 2)


def test_the_last_value_is_that_of_the_last_step_that_has_one():
    steps = [Progress(0, 4), Progress(1, 4, "a"), Progress(2, 4, ""), Progress(4, 4)]
    assert final(steps) == ""

    def whole():
        found = yield from last_value(steps, 10, 100, 40, "label")
        yield Progress(100, 100, found)

    *inside, end = whole()
    assert [(step.done, step.total, step.value, step.message) for step in inside] == [
        (10, 100, None, "label"),
        (20, 100, None, "label"),
        (30, 100, None, "label"),
        (50, 100, None, "label"),
    ]
    assert end.value == ""


def test_a_driven_generator_gives_what_it_returns_and_is_closed_with_its_driver():
    ended = []

    def inner(n):
        try:
            yield from range(n)
        finally:
            ended.append(n)
        return "returned"

    def outer(n):
        yield (yield from driven(inner(n), lambda each: each * 10))

    assert list(outer(3)) == [0, 10, 20, "returned"] and list(outer(0)) == ["returned"] and ended == [3, 0]
    steps = outer(5)
    assert next(steps) == 0
    steps.close()
    assert ended == [3, 0, 5]

"""A measurement reads what is stored, measures the rest, and says beforehand how much that is."""

import numpy as np
import pytest

from engine.composed import composed
from engine.heads.composition import feeding
from engine.heads.in_text import head_in_texts
from engine.heads.ov_tokens import ov_tokens
from engine.measurement import OPERATIONS_A_SECOND, Workload, by_name, single
from engine.pieces import Piece
from engine.progress import Progress, final
from engine.timing import observed_timings as rates
from engine.timing.workload import CHARACTERS_A_TOKEN
from tests.engine.fixtures import last, target_in

HEAD = (1, 0)
TEXTS = {"short": "The cat sat on the mat.", "long": "The cat sat on the mat, and the dog lay on the floor."}


@pytest.fixture
def target(session, tiny_opt):
    return target_in(session, tiny_opt)


def test_stored_and_left_before_and_after(session, target):
    wanted = ov_tokens(target, TEXTS["short"], HEAD)
    assert wanted.stored(session) is None and wanted.left(session) == Workload({"forward": len(TEXTS["short"])})
    assert session.models.loaded is None
    found = final(wanted.run(session))
    np.testing.assert_array_equal(wanted.stored(session).own, found.own)
    assert wanted.look(session).is_complete
    assert last(wanted.run(session)).cached


def test_only_missing_records_are_left(session, target):
    some, wanted = ({"short": TEXTS["short"]}, TEXTS)
    list(head_in_texts(target, some, HEAD).run(session))
    measurement = head_in_texts(target, wanted, HEAD)
    assert measurement.stored(session) is None
    assert measurement.left(session) == Workload({"patterns": len(TEXTS["long"])})
    values = [set(step.value) for step in measurement.run(session) if step.value is not None]
    assert values == [{"short"}, {"short", "long"}]


def test_a_mapped_measurement_has_the_same_records(session, target):
    wanted = feeding(target, HEAD)
    mapped = wanted.map(lambda found: found.trace.shape)
    assert mapped.stored(session) is None and mapped.left(session) == wanted.left(session)
    final(wanted.run(session))
    assert mapped.stored(session) == final(mapped.run(session)) == (1, target.shape.n_heads)


def test_a_measurement_until_its_value_is_enough_is_complete_then(session, target):
    wanted = head_in_texts(target, TEXTS, HEAD)
    one, three = (wanted.until(lambda found, n=n: len(found) >= n, n) for n in (1, 3))
    assert one.left(session) == wanted.left(session) and one.key != three.key != wanted.key
    assert set(final(one.run(session))) == set(one.stored(session)) == {"short"} and not one.left(session).characters
    assert three.stored(session) is None and three.left(session) == Workload({"patterns": len(TEXTS["long"])})
    assert set(final(three.run(session))) == set(three.stored(session)) == {*TEXTS}, "all there are"


def test_without_records_there_is_nothing_to_measure(session, target):
    wanted = feeding(target, (0, 0))
    assert wanted.look(session).is_complete
    [step] = wanted.run(session)
    assert step.cached and step.value.trace.shape == (0, target.shape.n_heads) and session.models.loaded is None


def test_progress_within_a_record_is_its_share_of_all(session, target):
    def measure(loaded):
        for step in range(4):
            yield Progress(step, 4)
        return {"numbers": np.zeros(2)}, {}

    pieces = [Piece(f"test {number}", 2, {"numbers": (2,)}, measure) for number in range(2)]
    both = by_name(target, dict(zip("ab", pieces, strict=True)), lambda name, record: name)
    whole = composed(target, ("whole",), lambda run: run.part(single(target, pieces[0], repr)))
    parts = [step.part for step in whole.run(session) if not step.is_loading]
    assert parts == [0, 0.25, 0.5, 0.75, 1, 1]
    steps = list(both.run(session))
    assert [step.part for step in steps] == [0.5, 0.5, 0.625, 0.75, 0.875, 1]
    assert [(step.done, step.total) for step in steps] == [(2, 4), (2, 4), (2, 4), (3, 4), (4, 4), (4, 4)]


def test_seconds_are_those_of_earlier_passes_or_of_the_models_size(session, target):
    work = Workload({"patterns": 1000.0})
    operations = 2 * target.identity.n_params * 1000 / CHARACTERS_A_TOKEN
    assert work.seconds(session.store, target) is None
    assert work.seconds_by_size(session.store, target) == pytest.approx(2 * operations / OPERATIONS_A_SECOND)
    rates.learn(session.store, target, "patterns", 500, 3.0)
    assert work.seconds(session.store, target) == pytest.approx(6.0)

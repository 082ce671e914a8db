"""A measurement reads what is stored, measures the rest, and says beforehand how much that is."""

import numpy as np
import pytest

from engine.composed import composed
from engine.heads.composition import feeding
from engine.heads.in_text import head_in_texts
from engine.heads.ov_tokens import ov_tokens
from engine.measurement import OPERATIONS_A_SECOND, Workload, by_name, single
from engine.models import rates
from engine.pieces import Piece
from engine.progress import Progress, final
from engine.questions.amounts import CHARACTERS_A_TOKEN
from tests.engine.fixtures import last, subject_in

HEAD = (1, 0)
TEXTS = {"short": "The cat sat on the mat.", "long": "The cat sat on the mat, and the dog lay on the floor."}


@pytest.fixture
def subject(lab, tiny_opt):
    return subject_in(lab, tiny_opt)


def test_stored_and_left_before_and_after(lab, subject):
    wanted = ov_tokens(subject, TEXTS["short"], HEAD)
    assert wanted.stored(lab) is None and wanted.left(lab) == Workload({"forward": len(TEXTS["short"])})
    assert lab.models.loaded is None
    found = final(wanted.run(lab))
    np.testing.assert_array_equal(wanted.stored(lab).own, found.own)
    assert wanted.look(lab).is_complete
    assert last(wanted.run(lab)).cached


def test_only_missing_records_are_left(lab, subject):
    some, wanted = ({"short": TEXTS["short"]}, TEXTS)
    list(head_in_texts(subject, some, HEAD).run(lab))
    measurement = head_in_texts(subject, wanted, HEAD)
    assert measurement.stored(lab) is None
    assert measurement.left(lab) == Workload({"patterns": len(TEXTS["long"])})
    values = [set(step.value) for step in measurement.run(lab) if step.value is not None]
    assert values == [{"short"}, {"short", "long"}]


def test_a_mapped_measurement_has_the_same_records(lab, subject):
    wanted = feeding(subject, HEAD)
    mapped = wanted.map(lambda found: found.trace.shape)
    assert mapped.stored(lab) is None and mapped.left(lab) == wanted.left(lab)
    final(wanted.run(lab))
    assert mapped.stored(lab) == final(mapped.run(lab)) == (1, subject.shape.n_heads)


def test_a_measurement_until_its_value_is_enough_is_complete_then(lab, subject):
    wanted = head_in_texts(subject, TEXTS, HEAD)
    one, three = (wanted.until(lambda found, n=n: len(found) >= n, n) for n in (1, 3))
    assert one.left(lab) == wanted.left(lab) and one.key != three.key != wanted.key
    assert set(final(one.run(lab))) == set(one.stored(lab)) == {"short"} and not one.left(lab).characters
    assert three.stored(lab) is None and three.left(lab) == Workload({"patterns": len(TEXTS["long"])})
    assert set(final(three.run(lab))) == set(three.stored(lab)) == {*TEXTS}, "all there are"


def test_without_records_there_is_nothing_to_measure(lab, subject):
    wanted = feeding(subject, (0, 0))
    assert wanted.look(lab).is_complete
    [step] = wanted.run(lab)
    assert step.cached and step.value.trace.shape == (0, subject.shape.n_heads) and lab.models.loaded is None


def test_progress_within_a_record_is_its_share_of_all(lab, subject):
    def measure(loaded):
        for step in range(4):
            yield Progress(step, 4)
        return {"numbers": np.zeros(2)}, {}

    pieces = [Piece(f"test {number}", 2, {"numbers": (2,)}, measure) for number in range(2)]
    both = by_name(subject, dict(zip("ab", pieces, strict=True)), lambda name, record: name)
    whole = composed(subject, ("whole",), lambda run: run.part(single(subject, pieces[0], repr)))
    parts = [step.part for step in whole.run(lab) if not step.is_loading]
    assert parts == [0, 0.25, 0.5, 0.75, 1, 1]
    steps = list(both.run(lab))
    assert [step.part for step in steps] == [0.5, 0.5, 0.625, 0.75, 0.875, 1]
    assert [(step.done, step.total) for step in steps] == [(2, 4), (2, 4), (2, 4), (3, 4), (4, 4), (4, 4)]


def test_seconds_are_those_of_earlier_passes_or_of_the_models_size(lab, subject):
    work = Workload({"patterns": 1000.0})
    operations = 2 * subject.identity.n_params * 1000 / CHARACTERS_A_TOKEN
    assert work.seconds(lab.store, subject) is None
    assert work.seconds_by_size(lab.store, subject) == pytest.approx(2 * operations / OPERATIONS_A_SECOND)
    rates.learn(lab.store, subject, "patterns", 500, 3.0)
    assert work.seconds(lab.store, subject) == pytest.approx(6.0)

"""A measurement, and one made of others, reads what is stored, measures the rest, and says beforehand how much that
is."""

import numpy as np
import pytest

from engine.composed import all_of, composed, every, then
from engine.errors import Canceled, HeadroomError
from engine.heads.circuits import feeding, ov_tokens
from engine.heads.in_text import head_in_texts
from engine.measurement import OPERATIONS_A_SECOND, Workload, by_name, single
from engine.pieces import Piece
from engine.progress import Progress, final
from engine.timing import observed_timings as rates
from engine.timing.workload import CHARACTERS_A_TOKEN
from tests.engine.fixtures import last

HEAD = (1, 0)
TEXTS = {"short": "The cat sat on the mat.", "long": "The cat sat on the mat, and the dog lay on the floor."}


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


def test_without_records_there_is_nothing_to_measure(session, target):
    wanted = feeding(target, (0, 0))
    assert wanted.stored_part(session).is_complete
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


SHORT, LONG = TEXTS.values()


def n_tokens(target, text):
    return ov_tokens(target, text, HEAD).map(lambda found: len(found.own))


def test_every_part_is_read_or_measured_and_what_is_left_is_added_up(session, target):
    wanted = every(
        target, ("two",), {text: lambda session, text=text: n_tokens(target, text) for text in (SHORT, LONG)}
    )
    nothing = wanted.stored_part(session).value
    assert not (nothing.values or nothing.partial or nothing.failed) and [*nothing.missing] == [SHORT, LONG]
    assert wanted.left(session) == Workload({"forward": len(SHORT) + len(LONG)}) and session.models.loaded is None
    final(n_tokens(target, SHORT).run(session))
    known = wanted.stored_part(session)
    assert [*known.value.values] == [SHORT] and [*known.value.missing] == [LONG] and wanted.stored(session) is None
    assert known.left == Workload({"forward": len(LONG)})
    steps = list(wanted.run(session))
    assert steps[-1].value.values == wanted.stored(session).values and set(wanted.stored(session).values) == {
        SHORT,
        LONG,
    }
    assert not steps[-1].cached and (steps[-1].done, steps[-1].total) == (2, 2)
    assert [step.done for step in steps] == sorted(step.done for step in steps)
    assert last(wanted.run(session)).cached


def test_a_part_that_fails_is_set_aside_with_the_reason(session, target):
    def fails(session):
        raise HeadroomError("no such rows")

    wanted = every(target, ("one fails",), {"a": fails, "b": lambda session: n_tokens(target, SHORT)})
    found = final(wanted.run(session))
    assert found.failed == {"a": "no such rows"} and [*found.values] == ["b"]
    assert wanted.stored_part(session).is_complete, "a part that cannot be measured is not left to measure"

    def canceled(session):
        raise Canceled("stopped")

    with pytest.raises(Canceled):
        final(every(target, ("canceled",), {"a": canceled}).run(session))


def test_values_of_unfinished_parts_are_partial(session, target):
    texts = {"short": SHORT, "long": LONG}
    list(head_in_texts(target, {"short": SHORT}, HEAD).run(session))
    wanted = every(target, ("texts",), {"texts": lambda session: head_in_texts(target, texts, HEAD)})
    known = wanted.stored_part(session).value
    assert not known.values and [*known.partial["texts"]] == ["short"]
    found = final(wanted.run(session))
    assert not found.partial and set(found.values["texts"]) == {"short", "long"}


def test_values_in_order_are_none_where_they_are_missing(session, target):
    parts = [n_tokens(target, text) for text in (SHORT, LONG, SHORT)]
    wanted = all_of(parts, "texts")
    final(parts[1].run(session))
    n_long = parts[1].stored(session)
    assert wanted.so_far(session) == (None, n_long, None) and wanted.stored(session) is None
    assert wanted.left(session) == Workload({"forward": len(SHORT)})
    steps = list(wanted.run(session))
    n_short = parts[0].stored(session)
    values = [step.value for step in steps if step.value is not None]
    assert values[0] == (n_short, None, None) and values[-1] == wanted.stored(session) == (n_short, n_long, n_short)
    assert {step.message for step in steps if not step.is_loading} <= {"texts", ""}
    assert (steps[-1].done, steps[-1].total, steps[-1].cached) == (3, 3, False)


def test_what_follows_from_a_missing_value_is_expected_and_measured_once_it_is_known(session, target):
    expected = Workload({"gradient": 7.0})
    wanted = then(n_tokens(target, SHORT), lambda n: n_tokens(target, LONG[:n]), lambda: expected, ("long",))
    other = then(n_tokens(target, SHORT), lambda n: n_tokens(target, LONG), lambda: expected, ("other",))
    assert wanted.key != other.key, "jobs are told apart by it"
    assert wanted.stored(session) is None
    assert wanted.left(session) == Workload({"forward": float(len(SHORT)), "gradient": 7.0})
    n = final(n_tokens(target, SHORT).run(session))
    assert wanted.left(session) == Workload({"forward": n})
    assert final(wanted.run(session)) == wanted.stored(session) == n_tokens(target, LONG[:n]).stored(session)


def test_a_part_that_two_ask_for_counts_once(session, target):
    def body(run):
        first = yield from run.part(n_tokens(target, SHORT))
        again = yield from run.part(n_tokens(target, SHORT))
        return None if first is None else first + again

    wanted = composed(target, ("twice",), body, 2)
    assert wanted.left(session) == Workload({"forward": len(SHORT)})
    assert final(wanted.run(session)) == 2 * n_tokens(target, SHORT).stored(session)


def test_measurements_of_other_requests_have_other_keys(target):
    parts = {name: lambda session: n_tokens(target, SHORT) for name in "ab"}
    keys = [n_tokens(target, SHORT).key, n_tokens(target, LONG).key]
    keys += [every(target, (name,), parts).key for name in "ab"]
    assert len(set(keys)) == 4 and n_tokens(target, SHORT).key == keys[0]

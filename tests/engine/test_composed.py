"""Measurements made of others: they measure what is missing, or read what is there and say how much the rest takes."""

import pytest

from engine.composed import all_of, composed, every, then
from engine.errors import Cancelled, HeadroomError
from engine.heads.in_text import head_in_texts
from engine.heads.ov_tokens import ov_tokens
from engine.measurement import Workload
from engine.progress import final
from tests.engine.fixtures import last, target_in

HEAD = (1, 0)
SHORT, LONG = "The cat sat on the mat.", "The cat sat on the mat, and the dog lay on the floor."


@pytest.fixture
def target(session, tiny_opt):
    return target_in(session, tiny_opt)


def n_tokens(target, text):
    return ov_tokens(target, text, HEAD).map(lambda found: len(found.own))


def test_every_part_is_read_or_measured_and_what_is_left_is_added_up(session, target):
    wanted = every(
        target, ("two",), {text: lambda session, text=text: n_tokens(target, text) for text in (SHORT, LONG)}
    )
    nothing = wanted.look(session).value
    assert not (nothing.values or nothing.partial or nothing.failed) and [*nothing.missing] == [SHORT, LONG]
    assert wanted.left(session) == Workload({"forward": len(SHORT) + len(LONG)}) and session.models.loaded is None
    final(n_tokens(target, SHORT).run(session))
    known = wanted.look(session)
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
    assert wanted.look(session).is_complete, "a part that cannot be measured is not left to measure"

    def cancelled(session):
        raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        final(every(target, ("cancelled",), {"a": cancelled}).run(session))


def test_values_of_unfinished_parts_are_partial(session, target):
    texts = {"short": SHORT, "long": LONG}
    list(head_in_texts(target, {"short": SHORT}, HEAD).run(session))
    wanted = every(target, ("texts",), {"texts": lambda session: head_in_texts(target, texts, HEAD)})
    known = wanted.look(session).value
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
    wanted = then(n_tokens(target, SHORT), lambda n: n_tokens(target, LONG[:n]), lambda: expected)
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

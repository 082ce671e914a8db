"""Measurements made of others: they measure what is missing, or read what is there and say how much the rest takes."""

import pytest

from engine.composed import all_of, composed, every, then
from engine.errors import Cancelled, HeadroomError
from engine.heads.in_text import head_in_texts
from engine.heads.ov_tokens import ov_tokens
from engine.measurement import Workload
from engine.progress import final
from tests.engine.fixtures import last, subject_in

HEAD = (1, 0)
SHORT, LONG = "The cat sat on the mat.", "The cat sat on the mat, and the dog lay on the floor."


@pytest.fixture
def subject(lab, tiny_opt):
    return subject_in(lab, tiny_opt)


def n_tokens(subject, text):
    return ov_tokens(subject, text, HEAD).map(lambda found: len(found.own))


def test_every_part_is_read_or_measured_and_what_is_left_is_added_up(lab, subject):
    wanted = every(subject, ("two",), {text: lambda lab, text=text: n_tokens(subject, text) for text in (SHORT, LONG)})
    nothing = wanted.look(lab).value
    assert not (nothing.values or nothing.partial or nothing.failed) and [*nothing.missing] == [SHORT, LONG]
    assert wanted.left(lab) == Workload({"forward": len(SHORT) + len(LONG)}) and lab.models.loaded is None
    final(n_tokens(subject, SHORT).run(lab))
    known = wanted.look(lab)
    assert [*known.value.values] == [SHORT] and [*known.value.missing] == [LONG] and wanted.stored(lab) is None
    assert known.left == Workload({"forward": len(LONG)})
    steps = list(wanted.run(lab))
    assert steps[-1].value.values == wanted.stored(lab).values and set(wanted.stored(lab).values) == {SHORT, LONG}
    assert not steps[-1].cached and (steps[-1].done, steps[-1].total) == (2, 2)
    assert [step.done for step in steps] == sorted(step.done for step in steps)
    assert last(wanted.run(lab)).cached


def test_a_part_that_fails_is_set_aside_with_the_reason(lab, subject):
    def fails(lab):
        raise HeadroomError("no such rows")

    wanted = every(subject, ("one fails",), {"a": fails, "b": lambda lab: n_tokens(subject, SHORT)})
    found = final(wanted.run(lab))
    assert found.failed == {"a": "no such rows"} and [*found.values] == ["b"]
    assert wanted.look(lab).is_complete, "a part that cannot be measured is not left to measure"

    def cancelled(lab):
        raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        final(every(subject, ("cancelled",), {"a": cancelled}).run(lab))


def test_values_of_unfinished_parts_are_partial(lab, subject):
    texts = {"short": SHORT, "long": LONG}
    list(head_in_texts(subject, {"short": SHORT}, HEAD).run(lab))
    wanted = every(subject, ("texts",), {"texts": lambda lab: head_in_texts(subject, texts, HEAD)})
    known = wanted.look(lab).value
    assert not known.values and [*known.partial["texts"]] == ["short"]
    found = final(wanted.run(lab))
    assert not found.partial and set(found.values["texts"]) == {"short", "long"}


def test_values_in_order_are_none_where_they_are_missing(lab, subject):
    parts = [n_tokens(subject, text) for text in (SHORT, LONG, SHORT)]
    wanted = all_of(parts, "texts")
    final(parts[1].run(lab))
    n_long = parts[1].stored(lab)
    assert wanted.so_far(lab) == (None, n_long, None) and wanted.stored(lab) is None
    assert wanted.left(lab) == Workload({"forward": len(SHORT)})
    steps = list(wanted.run(lab))
    n_short = parts[0].stored(lab)
    values = [step.value for step in steps if step.value is not None]
    assert values[0] == (n_short, None, None) and values[-1] == wanted.stored(lab) == (n_short, n_long, n_short)
    assert {step.message for step in steps if not step.is_loading} <= {"texts", ""}
    assert (steps[-1].done, steps[-1].total, steps[-1].cached) == (3, 3, False)


def test_what_follows_from_a_missing_value_is_expected_and_measured_once_it_is_known(lab, subject):
    expected = Workload({"gradient": 7.0})
    wanted = then(n_tokens(subject, SHORT), lambda n: n_tokens(subject, LONG[:n]), lambda: expected)
    assert wanted.stored(lab) is None
    assert wanted.left(lab) == Workload({"forward": float(len(SHORT)), "gradient": 7.0})
    n = final(n_tokens(subject, SHORT).run(lab))
    assert wanted.left(lab) == Workload({"forward": n})
    assert final(wanted.run(lab)) == wanted.stored(lab) == n_tokens(subject, LONG[:n]).stored(lab)


def test_a_part_that_two_ask_for_counts_once(lab, subject):
    def body(run):
        first = yield from run.part(n_tokens(subject, SHORT))
        again = yield from run.part(n_tokens(subject, SHORT))
        return None if first is None else first + again

    wanted = composed(subject, ("twice",), body, 2)
    assert wanted.left(lab) == Workload({"forward": len(SHORT)})
    assert final(wanted.run(lab)) == 2 * n_tokens(subject, SHORT).stored(lab)


def test_measurements_of_other_requests_have_other_keys(subject):
    parts = {name: lambda lab: n_tokens(subject, SHORT) for name in "ab"}
    keys = [n_tokens(subject, SHORT).key, n_tokens(subject, LONG).key]
    keys += [every(subject, (name,), parts).key for name in "ab"]
    assert len(set(keys)) == 4 and n_tokens(subject, SHORT).key == keys[0]

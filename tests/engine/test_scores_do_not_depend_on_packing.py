"""A log-likelihood is the same however questions are packed and batched, and the same call gives the same bits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.accuracy.scoring import score
from engine.errors import HeadroomError
from engine.questions import encoding
from engine.questions.encoding import Encoded, batches, encode_questions, pack
from engine.questions.requests import Question, TaskSpec, get_requests
from tests.engine.fixtures import finished, loaded, run, write_questions


def scores_of(model, encoded):
    return finished(score(model, encoded))[0]


def test_packed_equals_one_row_a_choice(tiny_opt, tmp_path, monkeypatch):
    model = loaded(tiny_opt)
    questions = get_requests(TaskSpec(str(write_questions(tmp_path / "own.jsonl", 20)))).questions
    encoded = encode_questions(questions, model.tokenizer, True, model.identity.shape.n_ctx)
    packed = scores_of(model, encoded)
    monkeypatch.setattr(encoding, "MIN_SHARED", 2.0)  # nothing shares that much: a row a choice
    np.testing.assert_allclose(scores_of(model, encoded), packed, atol=1e-4, equal_nan=True)
    monkeypatch.setattr(encoding, "BATCH_TOKENS", 1)
    np.testing.assert_allclose(scores_of(model, encoded), packed, atol=1e-4, equal_nan=True)
    alone = np.concatenate(
        [
            np.pad(row, ((0, 0), (0, packed.shape[1] - row.shape[1])), constant_values=np.nan)
            for row in (scores_of(model, [choices]) for choices in encoded)
        ]
    )
    np.testing.assert_allclose(alone, packed, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("precision", ["int8", "bf16", "fp32"])
def test_the_same_call_repeats_exactly_and_a_limit_changes_nothing(precision, tiny_opt, tmp_path, session):
    questions = write_questions(tmp_path / "own.jsonl", 40)
    first = run(session, tiny_opt, precision, questions, "").value
    session.store.clear()
    again = run(session, tiny_opt, precision, questions, "").value
    np.testing.assert_array_equal(first.log_likelihood_nats, again.log_likelihood_nats)
    session.store.clear()
    some = run(session, tiny_opt, precision, questions, "", limit=21).value
    np.testing.assert_array_equal(some.log_likelihood_nats[:, :2], first.log_likelihood_nats[:21, :2])


@given(st.lists(st.lists(st.integers(3, 6), min_size=1, max_size=30), min_size=1, max_size=5), st.integers(0, 12))
def test_every_token_is_read_once_at_its_own_place(tails, n_shared):
    trunk = tuple(range(100, 100 + n_shared))
    choices = [Encoded(0, number, (trunk + (2, *tail))[:-1], tuple(tail), 0) for number, tail in enumerate(tails)]
    rows = pack(choices)
    read = {}
    for row in rows:
        for number, position, target in row.read:
            # the token before the target, seen from the row, is the one before it in the choice's own sequence
            read.setdefault(row.choices[number].choice, []).append(
                (row.tokens[position], row.positions[position], target)
            )
    for choice in choices:
        whole = choice.inputs
        start = len(whole) - len(choice.targets)
        expected = [(whole[start + i], start + i, target) for i, target in enumerate(choice.targets)]
        assert read[choice.choice] == expected
    assert sum(map(len, batches(rows))) == len(rows)


def test_an_empty_continuation_is_refused(tiny_opt):
    model = loaded(tiny_opt)
    question = Question(7, ("Some text", "Some text"), (" more", ""), (0,), (4, 1), "x")
    with pytest.raises(HeadroomError, match="question 7, choice 1"):
        encode_questions([question], model.tokenizer, True, 256)


def test_a_long_context_is_cut_on_the_left(tiny_opt):
    model = loaded(tiny_opt)
    question = Question(0, ("boats " * 500,), (" letters",), (0,), (8,), "x")
    choice = encode_questions([question], model.tokenizer, True, 256)[0][0]
    assert len(choice.inputs) == 256 and choice.n_cut > 0

"""The same examples for every question: computed once, the same numbers, and what the harness draws for the first."""

import numpy as np
import pytest

from engine.accuracy import scoring
from engine.accuracy.restarts import score_each
from engine.accuracy.scoring import MIN_PREFIX, score, shared_prefix
from engine.models.masks import parse_mask, pruned
from engine.models.slicing import applied, sliced
from engine.questions.encoding import encode_questions, pack
from engine.questions.requests import TaskSpec, get_requests
from tests.engine.fixtures import STOCK, finished, loaded, write_questions

MASKS = ["", "L0H1 F1", "L0H*", "L2H* F2", "L1H0-2 F0"]


@pytest.fixture(scope="module")
def questions():
    return get_requests(TaskSpec("demo_outfit", 2, same_examples=True)).questions[:8]


@pytest.mark.parametrize("text", MASKS)
@pytest.mark.parametrize("family", STOCK)
def test_a_shared_prefix_changes_no_number(family, text, folder_of, questions, monkeypatch):
    model = loaded(folder_of(family))
    encoded = encode_questions(questions, model.tokenizer, True, 256)
    assert len(questions) > 3 and shared_prefix([row for choices in encoded for row in pack(choices)]) > MIN_PREFIX
    mask, calls = parse_mask(text, model.identity.shape), []
    real = scoring.hidden_states
    monkeypatch.setattr(scoring, "hidden_states", lambda *a: calls.append(a[2].n) or real(*a))
    with applied(model, sliced(model, mask)):
        shared = finished(score(model, encoded))
    assert min(calls) > MIN_PREFIX
    monkeypatch.setattr(scoring, "MIN_PREFIX", 10_000)
    monkeypatch.setattr(scoring, "hidden_states", real)
    with pruned(model, mask):
        apart = finished(score(model, encoded))
    np.testing.assert_allclose(shared[0], apart[0], atol=2e-4)
    np.testing.assert_array_equal(shared[1], apart[1])


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_low_precision_stays_near_and_repeats(precision, folder_of, questions, monkeypatch):
    model = loaded(folder_of("opt"), precision)
    encoded = encode_questions(questions, model.tokenizer, True, 256)
    first, again = finished(score(model, encoded)), finished(score(model, encoded))
    np.testing.assert_array_equal(first[0], again[0])
    monkeypatch.setattr(scoring, "MIN_PREFIX", 10_000)
    apart = finished(score(model, encoded))[0]
    assert np.nanmax(np.abs(first[0] - apart) / (1 + np.abs(apart))) < 0.1


def test_the_oracle_agrees_with_single_evaluations(folder_of, questions):
    model = loaded(folder_of("opt"), "bf16")
    encoded = encode_questions(questions, model.tokenizer, True, 256)
    masks = [parse_mask(text, model.identity.shape) for text in MASKS]
    for mask, found in zip(masks, finished(score_each(model, encoded, masks)), strict=True):
        with applied(model, sliced(model, mask)):
            np.testing.assert_array_equal(found[0], finished(score(model, encoded))[0])


def test_examples_are_those_of_the_harnesss_first_question():
    own = get_requests(TaskSpec("demo_outfit", 3)).questions
    same = get_requests(TaskSpec("demo_outfit", 3, same_examples=True)).questions
    assert same[0].contexts == own[0].contexts and same[0].golds == own[0].golds
    none = get_requests(TaskSpec("demo_outfit", 0)).questions
    examples = same[0].contexts[0].removesuffix(none[0].contexts[0])
    assert examples and all(q.contexts[0] == examples + plain.contexts[0] for q, plain in zip(same, none, strict=True))
    assert [q.contexts for q in own[1:5]] != [q.contexts for q in same[1:5]]
    assert [q.golds for q in own] == [q.golds for q in same]


def test_what_shares_little_is_not_split(folder_of, tmp_path):
    questions = get_requests(TaskSpec(str(write_questions(tmp_path / "own.jsonl", 6)), 2)).questions
    model = loaded(folder_of("opt"))
    rows = [row for choices in encode_questions(questions, model.tokenizer, True, 256) for row in pack(choices)]
    assert shared_prefix(rows) == 0 and shared_prefix(rows[:1]) == 0

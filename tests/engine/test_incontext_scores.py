"""In-context-learning scores against hand computation on made-up losses, and texts that have the tokens they need."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from scipy import stats

from engine.errors import HeadroomError, UsageError
from engine.models.session import Session
from engine.progress import final
from engine.texts import incontext
from engine.texts.passages import Source, slices, solved, strung_together, texts_of
from tests.conftest import TEXT
from tests.engine.fixtures import questions_in, refused_by, target_in, write_questions


def losses(n_texts=5, n_tokens=520, seed=0):
    return list(np.random.default_rng(seed).gamma(2.0, 1.5, (n_texts, n_tokens)).astype(np.float32))


@pytest.fixture(scope="module")
def tokenizer(tiny_opt):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny_opt)


def n_tokens(text, tokenizer):
    return len(tokenizer(text, add_special_tokens=False).input_ids)


def test_intervals_are_students_t_over_texts():
    texts = losses()
    by_hand = [float(text[499]) - float(text[49]) for text in texts]
    found = incontext.icl_score(texts)
    low, high = stats.t.interval(0.95, 4, loc=np.mean(by_hand), scale=stats.sem(by_hand))
    assert (found.value, found.low, found.high) == pytest.approx((np.mean(by_hand), low, high), abs=1e-9)


def test_a_score_around_the_two_indices_is_a_mean_of_as_many_tokens_on_either_side():
    texts = losses()
    by_hand = [text[489:510].mean() - text[39:60].mean() for text in texts]  # 490 to 510, 40 to 60
    assert incontext.icl_score(texts, around=10).value == pytest.approx(np.mean(by_hand), abs=1e-6)
    assert incontext.icl_score(texts, around=0) == incontext.icl_score(texts)
    for around in (-1, 13):
        refused_by(UsageError, "choose 0 to 12", lambda around=around: incontext.scores(texts, around))


def test_a_change_is_paired():
    before, after = losses(seed=1), losses(seed=2)
    by_hand = [(a[499] - a[49]) - (b[499] - b[49]) for a, b in zip(after, before, strict=True)]
    found = incontext.icl_change(before, after)
    low, high = stats.t.interval(0.95, 4, loc=np.mean(by_hand), scale=stats.sem(by_hand))
    assert (found.value, found.low, found.high) == pytest.approx((np.mean(by_hand), low, high), abs=1e-5)
    same = incontext.icl_change(before, [text + 7 for text in before])  # a constant is no change, and no spread
    assert (same.value, same.low, same.high) == pytest.approx((0, 0, 0), abs=1e-5)
    refused_by(HeadroomError, "same texts", lambda: incontext.icl_change(before, after[:4]))


def test_one_text_has_a_score_and_no_interval():
    found = incontext.icl_score(losses(1))
    assert math.isfinite(found.value) and math.isnan(found.low) and math.isnan(found.high) and found.n == 1


def test_short_texts_have_no_score_and_the_line_says_why():
    short = np.ones(511)
    assert incontext.icl_score([short, *losses(3)]) == incontext.icl_score(losses(3)), "left out, as if not there"
    with pytest.raises(HeadroomError, match="at least 512 tokens, and the longest here has 511") as error:
        incontext.icl_score([short, np.ones(20)])
    assert "\n" not in str(error.value)


def test_loss_by_index_counts_from_1_and_leaves_out_what_has_no_loss():
    texts = losses(4, 600)
    texts[2] = texts[2][:555]
    found = incontext.loss_by_index(texts)
    assert found.index.tolist() == pytest.approx(list(range(1, 556))), "to the end of the shortest text"
    assert (found.first == found.last).all() and set(found.n) == {4}
    at_100 = [text[99] for text in texts]
    low, high = stats.t.interval(0.95, 3, loc=np.mean(at_100), scale=stats.sem(at_100))
    assert (found.mean[99], found.low[99], found.high[99]) == pytest.approx((np.mean(at_100), low, high), abs=1e-6)
    without_first = [np.concatenate([[np.nan], text[1:]]) for text in texts]
    assert incontext.loss_by_index(without_first).index[0] == pytest.approx(2)
    for nothing in ([], [np.array([np.nan])]):
        with pytest.raises(HeadroomError):
            incontext.loss_by_index(nothing)


@settings(max_examples=50)
@given(some.integers(2, 700), some.integers(1, 40), some.booleans())
def test_bins_are_even_in_ln_and_hold_every_index_once(n, bins, first_known):
    text = np.arange(1.0, n + 1)
    text[0] = 1.0 if first_known else np.nan
    found = incontext.loss_by_index([text, text], bins)
    assert len(found.index) <= bins
    assert found.first[0] == (1 if first_known else 2) and found.last[-1] == n
    assert (found.first[1:] == found.last[:-1] + 1).all()
    for first, last, index, mean in zip(found.first, found.last, found.index, found.mean, strict=True):
        held = np.arange(first, last + 1)
        assert index == pytest.approx(np.exp(np.log(held).mean())) and mean == pytest.approx(held.mean())
    edges = np.geomspace(found.first[0], n + 1, bins + 1)
    assert all(
        any(low <= first and last < high for low, high in zip(edges, edges[1:], strict=False))
        for first, last in zip(found.first, found.last, strict=True)
    )


def test_a_loss_straight_in_ln_index_has_that_slope_everywhere():
    ln = np.log(np.arange(1, 601))
    found = incontext.slope([9 - 1.25 * ln, 7 - 0.75 * ln])
    assert found.mean == pytest.approx(np.full(len(found.mean), -1.0), abs=1e-12)
    low, high = stats.t.interval(0.95, 1, loc=-1.0, scale=stats.sem([-1.25, -0.75]))
    assert found.low == pytest.approx(np.full(len(found.low), low)) and found.high[0] == pytest.approx(high)
    assert found.first[0] == 1 and found.last[-1] == 600


def test_a_slope_is_the_difference_of_two_bins_by_hand():
    text = np.array([4.0, 3.0, 5.0, 1.0])
    found = incontext.slope([text], bins=2)  # edges 1, sqrt 5, 5: indices 1 to 2, and 3 to 4
    before, after = np.log([1, 2]).mean(), np.log([3, 4]).mean()
    assert found.mean.tolist() == pytest.approx([(3.0 - 3.5) / (after - before)])
    assert found.index.tolist() == pytest.approx([np.exp((before + after) / 2)])


TEXTS = {
    "prose": TEXT * 30,
    "without a space": "riverboats" * 700,
    "wide characters": "🙂 κόσμος שלום " * 400,
    "short": TEXT,
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
@pytest.mark.parametrize("wanted", [512, 100, 7])
def test_slices_are_consecutive_and_have_the_tokens(text, wanted, tokenizer):
    found = slices(text, tokenizer, wanted, limit=60)
    assert text.startswith("".join(found))
    assert all(wanted <= n_tokens(piece, tokenizer) <= wanted + 4 for piece in found), "and hardly more"
    rest = text[len("".join(found)) :]
    assert len(found) == 60 or n_tokens(rest, tokenizer) < wanted, "only what is too short is left"


def test_solved_questions_are_strung_together_until_they_are_long_enough(tokenizer, tmp_path):
    file = write_questions(tmp_path / "boats.jsonl", 60)
    questions = solved(questions_in(file, split="train").rendered)
    found = strung_together(questions, tokenizer, 4)
    assert len(set(found)) == 4
    for text in found:
        assert 512 <= n_tokens(text, tokenizer) <= 516
        parts = text.split("\n\n")
        assert len(set(parts)) == len(parts) and set(parts[:-1]) <= set(questions), "none twice"
        assert any(question.startswith(parts[-1]) for question in questions), "the last one cut"
    assert found[:2] == strung_together(questions, tokenizer, 2), "more texts are the same and others"
    assert found != strung_together(questions, tokenizer, 4, seed=1)
    with pytest.raises(HeadroomError, match="at least 512 tokens, and the longest here has"):
        strung_together(questions[:3], tokenizer, 1)


def test_texts_come_from_a_task_a_passage_or_a_text_and_are_stored(tiny_opt, tokenizer, tmp_path, session):
    target = target_in(session, tiny_opt)
    sources = [
        Source("task", str(write_questions(tmp_path / "boats.jsonl", 60)), n_texts=3),
        Source("passage", "The ferry", n_texts=2),
        Source("text", "mine", TEXT * 12, n_texts=2),
    ]
    for source in sources:
        wanted = texts_of(target, source)
        assert wanted.stored(session) is None
        texts = final(wanted.run(session))
        assert len(texts) == source.n_texts and all(n_tokens(text, tokenizer) >= 512 for text in texts)
        fresh = Session(session.store)
        assert wanted.stored(fresh) == final(wanted.run(fresh)) == texts
        assert fresh.models.loaded is None, "stored: no model is loaded"
    others = [*sources, Source("text", "mine", TEXT * 13, n_texts=2)]
    assert len({texts_of(target, source).key for source in others}) == len(others)


def test_what_is_too_short_or_unknown_is_one_plain_line(tiny_opt, session):
    target = target_in(session, tiny_opt)
    tokens = r"at least 512 tokens, and the longest here has \d+; choose"
    for source, words in (
        (Source("text", "mine", TEXT), tokens),
        (Source("passage", "Privet Drive, twice"), tokens),
        (Source("passage", "No such"), "no built-in passage is called 'No such'"),
        (Source("text", "mine", " \n "), "only whitespace"),
    ):
        refused_by(HeadroomError, words, lambda source=source: final(texts_of(target, source).run(session)))
    for wrong in ({"kind": "book"}, {"n_texts": 0}, {"n_texts": 201}):
        refused_by(UsageError, "choose", lambda wrong=wrong: Source(**{"kind": "task", "name": "demo_copy", **wrong}))

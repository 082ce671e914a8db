"""Intervals, flips, orders and levels against scipy and against their definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from engine.accuracy.evaluation import Answers, accuracy
from engine.errors import UsageError
from engine.importance.rankings import mask_at, n_pruned, order, permille, random_order, random_order_within_layers
from engine.models.masks import Edits, Mask
from engine.questions.requests import Question
from engine.shapes import ModelShape
from engine.statistics import paired, wilson

SHAPE = ModelShape(5, 4, 4, 32, 8, 64, 512, 256)


def answers(right):
    questions = tuple(Question(i, ("c", "c"), (" a", " b"), (0,), (1, 4), str(i)) for i in range(len(right)))
    scores = np.array([[-1.0, -2.0] if good else [-2.0, -1.0] for good in right]).reshape(-1, 2)
    return Answers(questions, scores, np.zeros((len(right), 2), bool), np.zeros(len(right)), False)


@given(st.integers(0, 300), st.integers(1, 300))
def test_wilson_interval(n_right, n):
    n_right = min(n_right, n)
    interval = stats.binomtest(n_right, n).proportion_ci(0.95, method="wilson")
    assert wilson(n_right, n) == pytest.approx((interval.low, interval.high), abs=1e-9)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=200))
def test_flips_and_mcnemar(pairs):
    found = paired(answers([a for a, _ in pairs]).correct, answers([b for _, b in pairs]).correct)
    gained, lost = sum(b and not a for a, b in pairs), sum(a and not b for a, b in pairs)
    assert (found.n, found.gained, found.lost) == (len(pairs), gained, lost)
    expected = stats.binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
    assert found.p_mcnemar == pytest.approx(expected)


def test_flips_are_counted_on_the_questions_both_have():
    assert paired(answers([True] * 5).correct, answers([True, False]).correct).n == 2


def test_acc_norm_divides_by_characters():
    # the longer choice scores lower as a sum and higher a character
    found = accuracy(answers([True, True, False]))
    assert found.acc == pytest.approx(2 / 3) and found.acc_norm == 0.0
    assert accuracy(answers([])).n == 0


def test_order_is_ascending_with_the_tie_break_first_then_position():
    assert list(order(np.array([0.3, 0.1, 0.2]))) == [1, 2, 0]
    assert list(order(np.array([0.1, 0.1, 0.0, 0.1]), np.array([3.0, 1.0, 0.0, 2.0]))) == [2, 1, 3, 0]
    assert list(order(np.zeros(3))) == [0, 1, 2]
    with pytest.raises(UsageError, match="1 of 2 scores"):
        order(np.array([0.1, np.nan]))


@given(st.integers(0, 1000))
def test_a_level_prunes_the_floor_of_its_share(level):
    head_order, ffn_order = random_order(20, 3), random_order(5, 3)
    mask = mask_at(SHAPE, head_order, ffn_order, level, level)
    assert mask.n_heads_pruned == n_pruned(level, 20) == level * 20 // 1000
    assert mask.n_ffns_pruned == level * 5 // 1000
    gone = [index for index in range(20) if not mask.heads[index // 4][index % 4]]
    assert set(gone) == set(head_order[: len(gone)])
    if level >= 10:
        before = mask_at(SHAPE, head_order, ffn_order, level - 10, level - 10)
        assert Edits(mask, Mask.full(SHAPE)).on(before) == mask, "levels are nested"


def test_random_orders_are_seeded_permutations():
    assert list(random_order(20, 1)) == list(random_order(20, 1)) != list(random_order(20, 2))
    like = order(np.arange(20.0).reshape(5, 4))
    within = random_order_within_layers(SHAPE, like, 0)
    assert sorted(within) == list(range(20)) and [i // 4 for i in within] == [i // 4 for i in like]


@pytest.mark.parametrize("typed, expected", [("0", 0), ("12.5", 125), (70, 700), ("100", 1000), ("0.1", 1)])
def test_percent_to_permille(typed, expected):
    assert permille(typed) == expected


@pytest.mark.parametrize("typed", ["101", "-0.1", "nan", "inf", "ten", "", "33.333"])
def test_wrong_percent(typed):
    with pytest.raises(UsageError):
        permille(typed)

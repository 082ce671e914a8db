"""Intervals, flips and changes, orders and levels, against scipy, by their coverage and by their definitions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from engine.accuracy.evaluation import Answers, accuracy
from engine.errors import UsageError
from engine.importance.orders import Orders, Ranking, orders_from
from engine.importance.rankings import n_pruned, order, permille, random_order
from engine.importance.rules import RULES, Evidence, random_order_within_layers
from engine.importance.scores import Scores
from engine.models.masks import Edits, Mask
from engine.questions.rendering import Question
from engine.shapes import ModelShape
from engine.statistics import MIN_QUESTIONS, Paired, detectable, holm, paired, share_of, smallest_clear, wilson
from tests.engine.fixtures import refused_by


def change(n, gained, lost):
    """The counts with McNemar's p from its definition: as uneven a split as this or more so, of fair coins."""
    split = [math.comb(gained + lost, k) for k in range(gained + lost + 1)]
    p = sum(ways for k, ways in enumerate(split) if min(k, gained + lost - k) <= min(gained, lost)) / sum(split)
    return Paired(n, gained, lost, min(1.0, p))


def test_the_interval_and_the_test_never_contradict_each_other():
    for gained in range(41):
        for lost in range(41 - gained):
            each = change(40, gained, lost)
            low, high = each.interval
            assert -1 <= low <= (gained - lost) / 40 <= high <= 1
            assert (low > 0 or high < 0) == (each.p_mcnemar < 0.05) == each.is_clear


def test_the_published_example():
    """Bonett & Price 2012: adjusted Wald of (1, 8) discordant of 50 is (p12 - p21) of (2, 9) in 52."""
    low, high = Paired(50, 8, 1, 0.039).interval
    half = 1.959964 * math.sqrt((11 / 52 - (7 / 52) ** 2) / 52)
    assert (low, high) == pytest.approx((7 / 52 - half, 7 / 52 + half), abs=1e-6)


@pytest.mark.parametrize("p_gain, p_lose", [(0.05, 0.05), (0.02, 0.2), (0.0, 0.1), (0.3, 0.3), (0.01, 0.01)])
def test_the_interval_covers_what_is_true_nearly_always(p_gain, p_lose):
    n, covered, stay = 40, 0.0, 1 - p_gain - p_lose
    for gained in range(n + 1):
        for lost in range(n + 1 - gained):
            chance = math.comb(n, gained) * math.comb(n - gained, lost) * p_gain**gained * p_lose**lost
            chance *= stay ** (n - gained - lost)
            low, high = change(n, gained, lost).interval
            covered += chance * (low - 1e-12 <= p_gain - p_lose <= high + 1e-12)
    assert covered >= 0.94


def test_too_few_questions_are_never_clear():
    assert not change(MIN_QUESTIONS - 1, 0, 20).is_clear and math.isnan(change(0, 0, 0).interval[0])


@pytest.mark.parametrize("looks", [1, 10])
@pytest.mark.parametrize("n", [9, 16, 48, 100, 200])
def test_what_n_questions_can_show(n, looks):
    """Against the test's own p at every count, and the binomial distribution written out."""
    fewest = smallest_clear(n, looks)
    assert change(n, 0, fewest).p_mcnemar < 0.05 / looks <= change(n, 0, fewest - 1).p_mcnemar

    def found_with(loss):
        return sum(math.comb(n, k) * loss**k * (1 - loss) ** (n - k) for k in range(fewest, n + 1))

    loss = detectable(n, looks)
    assert loss == pytest.approx(stats.beta.ppf(0.8, fewest, n - fewest + 1), abs=1e-5)
    assert found_with(loss) >= 0.8 > found_with(loss - 1e-4) and loss > fewest / n * 0.9


def test_five_questions_can_show_no_loss():
    assert smallest_clear(5) == 0 and math.isnan(detectable(5))
    assert smallest_clear(8) == 6 and smallest_clear(8, looks=10) == 0 and math.isnan(detectable(8, looks=10))


def test_p_adjusted_for_several_looks():
    """Holm's example: 0.01, 0.04, 0.03, 0.005 become 0.03, 0.06, 0.06, 0.02."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.2]) == [0.2] and holm([0.9, 0.8]) == [1.0, 1.0] and holm([]) == []


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
    refused_by(UsageError, "1 of 2 scores", lambda: order(np.array([0.1, np.nan])))


@given(st.integers(0, 1000))
def test_a_level_prunes_the_floor_of_its_share(level):
    head_order, ffn_order = random_order(20, 3), random_order(5, 3)
    mask = Orders(SHAPE, head_order, ffn_order).mask(level, level)
    assert mask.n_heads_pruned == n_pruned(level, 20) == level * 20 // 1000
    assert mask.n_ffns_pruned == level * 5 // 1000
    gone = [index for index in range(20) if not mask.heads[index // 4][index % 4]]
    assert set(gone) == set(head_order[: len(gone)])
    if level >= 10:
        before = Orders(SHAPE, head_order, ffn_order).mask(level - 10, level - 10)
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


SMALL = ModelShape(2, 4, 4, 32, 8, 64, 512, 256)
HEADS = Scores("heads", 10, np.array([[8.0, 1, 2, 3], [7, 6, 5, 4]]))
PREFIX = np.array([[0.0, 0.9, 0.1, 0.2], [0.05, 0.31, 0.0, 0.5]])


def heads_by(name):
    return orders_from(SMALL, Ranking(name), Evidence(heads=HEADS, prefix_matching=PREFIX)).heads.tolist()


def test_induction_heads_go_first_or_last():
    assert heads_by("importance") == [1, 2, 3, 7, 6, 5, 4, 0]
    assert heads_by("induction-first")[:3] == [1, 7, 5]
    assert heads_by("induction-protected") == [2, 3, 6, 4, 0, 1, 7, 5]


@pytest.mark.parametrize("name", list(RULES))
def test_every_ranking_is_an_order_of_all_heads_and_says_what_it_lacks(name):
    assert sorted(heads_by(name)) == list(range(8))
    assert Evidence().missing(name, False, False) == []
    lacking = Evidence().missing(name, True, True)
    assert lacking == list(RULES[name].needs) and ("ffns" not in lacking or name != "random")
    assert Evidence(heads=HEADS, prefix_matching=PREFIX).missing(name, True, False) == []


def test_a_share_of_a_difference_within_rounding_is_nan():
    assert share_of(1.0, 4.0, 0.1) == 0.25 and share_of(1.0, -4.0, 0.1) == -0.25
    assert all(math.isnan(share_of(1.0, whole, 0.1)) for whole in (0.0, 0.1, -0.1, math.nan))
    assert np.isnan(share_of(np.array([0.0, 1.0, math.inf]), 0.0, 0.0)).all()
    assert share_of(np.array([0.0, 1.0]), 2.0, 0.0).tolist() == [0.0, 0.5]

"""How much was gained or lost from one mask to another: the interval's coverage, accord with the test, the words."""

import math
from statistics import pvariance

import numpy as np
import pytest
from scipy import stats

from engine.statistics import MIN_QUESTIONS, Paired, change_interval, detectable, holm, parted, smallest_clear
from pages.ui.prune.figure import change_in_words


def change(n, gained, lost):
    """The counts with McNemar's p from its definition: as uneven a split as this or more so, of fair coins."""
    split = [math.comb(gained + lost, k) for k in range(gained + lost + 1)]
    p = sum(ways for k, ways in enumerate(split) if min(k, gained + lost - k) <= min(gained, lost)) / sum(split)
    return Paired(n, gained, lost, min(1.0, p))


def test_the_interval_and_the_test_never_contradict_each_other():
    for gained in range(41):
        for lost in range(41 - gained):
            each = change(40, gained, lost)
            low, high = change_interval(each)
            assert -1 <= low <= (gained - lost) / 40 <= high <= 1
            assert (low > 0 or high < 0) == (each.p_mcnemar < 0.05) == each.is_clear


def test_the_published_example():
    """Bonett & Price 2012: adjusted Wald of (1, 8) discordant of 50 is (p12 - p21) of (2, 9) in 52."""
    low, high = change_interval(Paired(50, 8, 1, 0.039))
    half = 1.959964 * math.sqrt((11 / 52 - (7 / 52) ** 2) / 52)
    assert (low, high) == pytest.approx((7 / 52 - half, 7 / 52 + half), abs=1e-6)


@pytest.mark.parametrize("p_gain, p_lose", [(0.05, 0.05), (0.02, 0.2), (0.0, 0.1), (0.3, 0.3), (0.01, 0.01)])
def test_the_interval_covers_what_is_true_nearly_always(p_gain, p_lose):
    n, covered, stay = 40, 0.0, 1 - p_gain - p_lose
    for gained in range(n + 1):
        for lost in range(n + 1 - gained):
            chance = math.comb(n, gained) * math.comb(n - gained, lost) * p_gain**gained * p_lose**lost
            chance *= stay ** (n - gained - lost)
            low, high = change_interval(change(n, gained, lost))
            covered += chance * (low - 1e-12 <= p_gain - p_lose <= high + 1e-12)
    assert covered >= 0.94


def test_the_words_follow_the_test():
    few = change(MIN_QUESTIONS - 1, 0, 20)
    assert "Too few questions" in change_in_words(few) and not few.is_clear
    assert "**No detectable change**: anything from −1.4 to +1.4 points fits" in change_in_words(change(200, 0, 0))
    assert "**Lost 39.0 points**, 95 % interval" in change_in_words(change(200, 22, 100))
    gained = change_in_words(change(200, 30, 5))
    low, high = change_interval(change(200, 30, 5))
    assert f"**Gained 12.5 points**, 95 % interval {100 * low:.1f} to {100 * high:.1f}" in gained
    assert "No detectable change" in change_in_words(change(200, 5, 0)), "p = 0.06"
    assert math.isnan(change_interval(change(0, 0, 0))[0])


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


def test_two_groups_are_parted_where_they_vary_least_within():
    """Otsu's threshold: where between them the variance is largest it is smallest within, by a plain loop."""
    rng = np.random.default_rng(0)
    for values in (rng.random(9), np.append(rng.normal(0, 0.1, 20), rng.normal(1, 0.1, 4)), np.array([0.0, 0, 0, 1])):
        ordered = sorted(values)
        within = {
            at: at * pvariance(ordered[:at]) + (len(ordered) - at) * pvariance(ordered[at:])
            for at in range(1, len(ordered))
        }
        best = min(within, key=within.__getitem__)
        assert parted(values) == pytest.approx((ordered[best - 1] + ordered[best]) / 2)
    assert math.isnan(parted(np.array([2.0, 2.0]))) and math.isnan(parted(np.array([math.nan])))

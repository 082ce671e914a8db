"""How much rankings agree: Spearman's rho against scipy, its p and interval against their promises."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from engine.errors import UsageError
from engine.importance.rankings import PERMUTATIONS, aggregate, agreement, agreement_within_layers, top_overlap
from engine.importance.scores import Scores
from engine.questions.rendering import TaskSpec
from engine.studies.surveys import Survey, agreement_rows, written_row
from tests.engine.fixtures import refused_by

NAMES = "abcde"
matrices = st.tuples(st.integers(2, 5), st.integers(3, 24)).flatmap(
    lambda shape: hnp.arrays(float, shape, elements=st.integers(-4, 4).map(float))
)
quick = settings(max_examples=60)


def named(rows):
    return dict(zip(NAMES, rows, strict=False))


def rho(scores):
    return agreement(scores, permutations=0).srcc


def correlated(n, k=2, r=0.7, seed=0):
    """k rows of n normal scores, every two correlated by r."""
    rng = np.random.default_rng(seed)
    return math.sqrt(r) * rng.normal(size=n) + math.sqrt(1 - r) * rng.normal(size=(k, n))


def distinct(n):
    return st.permutations(range(n)).map(lambda values: np.array(values, float))


@quick
@given(matrices)
def test_srcc_is_scipys_of_the_scores_and_undefined_for_constant_rows(rows):
    found = rho(named(rows))
    for (i, a), (j, b) in itertools.product(enumerate(rows), repeat=2):
        if len(set(a)) == 1 or len(set(b)) == 1:
            assert math.isnan(found[i, j])
        else:
            assert found[i, j] == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-12)
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_allclose(np.diag(found)[np.ptp(rows, axis=1) > 0], 1, atol=1e-12)
    assert np.nanmax(np.abs(found), initial=0) <= 1


@pytest.mark.parametrize("k", [1, 2, 3])
def test_any_number_of_tasks_gives_a_matrix(k):
    """spearmanr gives a number for two columns and a matrix from three on."""
    scores = {name: row.reshape(4, 6) for name, row in named(correlated(24, k)).items()}
    found = agreement(scores, permutations=19)
    assert found.labels == tuple(NAMES[:k])
    for matrix in (found.srcc, found.low, found.high, found.p, found.overlap):
        assert matrix.shape == (k, k)
    if k == 2:
        assert found.srcc[0, 1] == pytest.approx(stats.spearmanr(*correlated(24, k)).statistic, abs=1e-12)
    if k == 3:
        np.testing.assert_allclose(found.srcc, stats.spearmanr(correlated(24, k), axis=1).statistic, atol=1e-12)


@pytest.mark.parametrize("value", [0.0, 1.0, 1e-30, 0.1, -3e8])
def test_a_constant_row_is_undefined_everywhere_without_a_warning(value):
    found = agreement({"even": np.full((2, 9), value), "own": np.arange(18.0).reshape(2, 9)}, permutations=19)
    for matrix in (found.srcc, found.low, found.high, found.p):
        assert np.isnan(matrix[0]).all() and np.isnan(matrix[:, 0]).all() and np.isfinite(matrix[1, 1])
    assert math.isnan(found.mean)


def test_scores_that_differ_by_little_are_not_constant():
    assert rho({"a": 1 + 1e-15 * np.arange(5.0), "b": np.arange(5.0)})[0, 1] == pytest.approx(1)
    assert rho({"a": 1e-40 * np.arange(5.0), "b": -np.arange(5.0)})[0, 1] == pytest.approx(-1)


def test_undefined_scores_give_no_coefficient():
    found = agreement({"a": np.array([1.0, np.nan, 3, 4]), "b": np.arange(4.0)}, permutations=9)
    assert np.isnan(found.srcc[0]).all() and found.srcc[1, 1] == pytest.approx(1)


def test_srcc_has_the_same_bits_in_whatever_order_a_library_adds_up():
    """A figure must not tell which processor put the report together."""
    generator = np.random.default_rng(0)
    rows = generator.random((7, 333)).round(2)  # some of them equal
    named = {str(number): row for number, row in enumerate(rows)}
    whole = agreement(named, 0).srcc
    assert (np.diagonal(whole) == 1).all() and (whole == whole.T).all()
    for _ in range(20):
        order = generator.permutation(333)
        np.testing.assert_array_equal(agreement({name: row[order] for name, row in named.items()}, 0).srcc, whole)


def test_p_of_independent_scores_is_uniform():
    rows = np.random.default_rng(5).normal(size=(30, 40))
    found = agreement(dict(enumerate(rows)), permutations=199)
    p = found.p[np.triu_indices(30, 1)]
    assert stats.kstest(p, "uniform").statistic < 0.1
    assert 0.02 < (p < 0.05).mean() < 0.09 and 0.45 < p.mean() < 0.55
    np.testing.assert_array_equal(found.p, found.p.T)


def test_p_of_equal_and_of_opposite_scores_is_the_smallest_there_is():
    a = np.random.default_rng(1).normal(size=30)
    np.testing.assert_allclose(agreement({"a": a, "b": 2 * a + 1, "c": -a}).p, 1 / (PERMUTATIONS + 1))


@pytest.mark.parametrize(
    "rows", [[[1.0, 2, 3, 4, 5, 6], [2.0, 1, 3, 6, 4, 5]], [[0.0, 0, 1, 2, 3, 3], [1.0, 2, 2, 0, 5, 1]]]
)
def test_p_is_the_share_of_all_relabelings_that_agree_as_much(rows):
    """Two-sided and exact, all 720 of them, also with ties."""
    ranks = [stats.rankdata(row) for row in rows]
    observed = abs(np.corrcoef(*ranks)[0, 1])
    others = [abs(np.corrcoef(ranks[0], shuffled)[0, 1]) for shuffled in itertools.permutations(ranks[1])]
    exact = np.mean(np.array(others) >= observed - 1e-9)
    assert 0.01 < exact < 0.99
    # the mean of two estimates from 1999 relabelings each: 4 standard deviations are at most 0.032
    assert agreement(named(np.array(rows))).p[0, 1] == pytest.approx(exact, abs=0.032)


@pytest.mark.parametrize("seed", range(4))
def test_p_agrees_with_scipy(seed):
    a, b = correlated(60, r=0.2, seed=seed)
    p = agreement({"a": a, "b": b}).p[0, 1]
    assert p == pytest.approx(stats.spearmanr(a, b).pvalue, abs=0.04)
    ranks = stats.rankdata(b)
    shuffled = stats.permutation_test((stats.rankdata(a),), lambda x, axis: -((x - ranks) ** 2).sum(axis),
                                      permutation_type="pairings", n_resamples=1999, vectorized=True,
                                      rng=np.random.default_rng(seed))  # fmt: skip
    assert p == pytest.approx(shuffled.pvalue, abs=0.05)


@pytest.mark.parametrize("n, r", [(24, 0.3), (60, 0.6), (144, 0.0)])
def test_the_interval_contains_the_truth_in_95_of_100_cases(n, r):
    truth, inside, cases = 6 / math.pi * math.asin(r / 2), 0, 600  # Spearman's rho of correlated normals
    for seed in range(cases):
        found = agreement(named(correlated(n, r=r, seed=seed)), permutations=0)
        assert found.low[0, 1] < found.srcc[0, 1] < found.high[0, 1]
        inside += found.low[0, 1] <= truth <= found.high[0, 1]
    assert 0.92 < inside / cases < 0.98  # standard deviation of the share: 0.009


def test_the_mean_is_that_of_different_labels_that_are_defined():
    a = np.arange(6.0)
    assert agreement({"a": a, "b": a, "c": -a}, 0).mean == pytest.approx(-1 / 3)
    assert agreement({"a": a, "b": a, "even": np.zeros(6)}, 0).mean == pytest.approx(1)
    assert math.isnan(agreement({"a": a}, 0).mean)


@quick
@given(st.integers(1, 40).flatmap(lambda n: st.tuples(distinct(n), distinct(n), st.permutations(range(n)))))
def test_overlap_is_a_symmetric_share_of_the_top_30_percent(drawn):
    a, b, relabeling = drawn
    count = max(1, 3 * a.size // 10)
    top_a, top_b = ({head for head in range(a.size) if x[head] >= a.size - count} for x in (a, b))
    assert top_overlap(a, b) == top_overlap(b, a) == len(top_a & top_b) / count
    assert top_overlap(a, a) == 1
    assert top_overlap(a[list(relabeling)], b[list(relabeling)]) == top_overlap(a, b)


def test_overlap_of_other_shares_and_of_random_and_opposite_rankings():
    a, rng = np.arange(100.0).reshape(10, 10), np.random.default_rng(0)
    assert top_overlap(a, -a) == 0 and top_overlap(a, -a, 0.6) == pytest.approx(1 / 3)
    assert top_overlap(a, a.T, 0.01) == 1, "at least one counts, and both have the same best"
    assert top_overlap(a, -a, 0.0) == 0
    by_chance = [top_overlap(a, rng.permutation(100)) for _ in range(400)]
    assert np.mean(by_chance) == pytest.approx(0.3, abs=0.02)
    found = agreement({"a": a, "b": -a, "c": a + 5}, 0).overlap
    np.testing.assert_array_equal(found, [[1, 0, 1], [0, 1, 0], [1, 0, 1]])


@quick
@given(matrices)
def test_aggregates_are_plain_means_of_scores_of_shares_or_of_ranks(rows):
    scores = named(rows.reshape(len(rows), 1, -1))
    assert aggregate(scores).shape == aggregate(scores, "ranks").shape == (1, rows.shape[1])
    np.testing.assert_allclose(aggregate(scores)[0], rows.mean(0), atol=1e-12)
    ranks = [[(np.sum(row < value) + (np.sum(row == value) + 1) / 2) / row.size for value in row] for row in rows]
    np.testing.assert_allclose(aggregate(scores, "ranks")[0], np.mean(ranks, axis=0), atol=1e-12)
    shares = [[value / (sum(map(abs, row)) or 1) for value in row] for row in rows]
    np.testing.assert_allclose(aggregate(scores, "shares")[0], np.mean(shares, axis=0), atol=1e-12)


@pytest.mark.parametrize("function", [agreement, agreement_within_layers, aggregate])
@pytest.mark.parametrize("scores, words", [
    ({}, "no scores"),
    ({"a": np.zeros((2, 4)), "b": np.zeros((4, 2))}, r"\(2, 4\).*\(4, 2\)"),
    ({"heads": np.zeros((2, 4)), "ffns": np.zeros(2)}, "different shapes"),
])  # fmt: skip
def test_nothing_and_different_shapes_are_refused_in_one_line(function, scores, words):
    refused_by(UsageError, words, lambda: function(scores))


def test_agreement_within_layers_is_not_that_of_layers():
    rng = np.random.default_rng(3)
    scores = {name: rng.random((4, 6)) + 10 * np.arange(4)[:, None] for name in "abc"}  # layers rank alike
    scores["c"][1] = 7.0  # no order in this layer: left out of the means of its pairs alone
    found = agreement_within_layers(scores)
    for i, a in enumerate(scores):
        for j, b in enumerate(scores):
            layers = [layer for layer in range(4) if layer != 1 or "c" not in (a, b)]
            each = [stats.spearmanr(scores[a][layer], scores[b][layer]).statistic for layer in layers]
            assert found[i, j] == pytest.approx(np.mean(each)), (a, b)
    assert abs(found[0, 1]) < 0.5 and agreement(scores).srcc[0, 1] > 0.9
    for shape, why in (((4,), "FFNs"), ((4, 1), "one head a layer")):
        few = agreement_within_layers({name: each[:, 0].reshape(shape) for name, each in scores.items()})
        assert few.shape == (3, 3) and np.isnan(few).all(), why
    constant = agreement_within_layers({"a": scores["a"], "b": np.ones((4, 6))})
    assert math.isnan(constant[0, 1]) and constant[0, 0] == pytest.approx(1)


def test_rows_compare_every_two_tasks_the_aggregate_and_chance_and_every_two_shot_counts():
    rows = iter(correlated(20, 5, seed=9).reshape(5, 4, 5))
    wanted = [("x", 0), ("x", 5), ("y", 0), ("y", 5), ("z", 5)]
    scores = {TaskSpec(name, shots): Scores("heads", 9, next(rows)) for name, shots in wanted}
    table = [written_row(row) for row in agreement_rows(Survey(scores), "scores")]
    pairs = {(row["kind"], row["at"], row["a"], row["b"]): row for row in table}
    assert len(pairs) == len(table) == 6 + 10 + 1 + 1  # 4 labels at 0 shots, 5 at 5; x and y at two shot counts
    flat = {spec: found.scores.ravel() for spec, found in scores.items()}
    x, y, z = (flat[TaskSpec(name, 5)] for name in "xyz")
    assert pairs["tasks", "5", "x", "z"]["srcc"] == pytest.approx(stats.spearmanr(x, z).statistic)
    assert pairs["tasks", "5", "y", "aggregate"]["srcc"] == pytest.approx(stats.spearmanr(y, x + y + z).statistic)
    assert pairs["shots", "x", "0 shots", "5 shots"]["srcc"] == pytest.approx(
        stats.spearmanr(flat[TaskSpec("x", 0)], x).statistic)  # fmt: skip
    assert all(row["low"] <= row["srcc"] <= row["high"] and 0 < row["p"] <= 1 for row in table)
    assert agreement_rows(Survey(), "scores") == []

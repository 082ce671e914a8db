"""Pruning orders and levels, from scores to an order to a `Mask`; agreement between rankings.

Levels are in permille (700 = 70%): whole numbers, so that floor(p * N / 1000) is exact and keys hold no floats.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from engine.errors import UsageError
from engine.statistics import Z_95

AGGREGATES = ("scores", "shares", "ranks")
TOP_SHARE = 0.3  # the share of heads that Bansal et al. keep
PERMUTATIONS = 1999
DIGITS = 9  # for functions whose last bits depend on the processor
MAX_PERMUTED = 512  # components; above, rho * sqrt(n - 1) is practically normal, and permuting takes seconds


def order(scores: np.ndarray, tie_break: np.ndarray | None = None) -> np.ndarray:
    """Returns flat indices of `scores` from least to most important; equals ordered by `tie_break`, then by position.

    UsageError if a score is nan: the order of undefined scores would be arbitrary.
    """
    flat = np.asarray(scores, float).ravel()
    if np.isnan(flat).any():
        raise UsageError(f"{int(np.isnan(flat).sum())} of {flat.size} scores are undefined (nan); compute them again")
    second = np.zeros(flat.size) if tie_break is None else np.asarray(tie_break, float).ravel()
    return np.lexsort((np.arange(flat.size), second, flat))


def random_order(n: int, seed: int = 0) -> np.ndarray:
    """Returns a seeded random order of n components: the control that any ranking has to beat."""
    return np.random.default_rng(seed).permutation(n)


def n_pruned(permille: int, n: int) -> int:
    """Returns the number of components pruned at a level: floor(p * n / 1000). UsageError outside 0 to 1000."""
    if not 0 <= permille <= 1000:
        raise UsageError(f"pruning level is {permille / 10:g}%; choose 0 to 100")
    return permille * n // 1000


def permille(percent: float | str) -> int:
    """Converts a level typed in percent to permille. UsageError: not a number from 0 to 100, or finer than 0.1%."""
    try:
        value = float(percent)
    except ValueError as error:
        raise UsageError(f"pruning level {percent!r} is not a number; give percent, 0 to 100") from error
    if not math.isfinite(value) or not 0 <= value <= 100:
        raise UsageError(f"pruning level is {value:g}%; choose 0 to 100")
    if abs(value * 10 - round(value * 10)) > 1e-6:
        raise UsageError(f"pruning level is {value:g}%; choose steps of 0.1%")
    return round(value * 10)


@dataclass(frozen=True)
class Agreement:
    """Agreement between every two of k rankings; all arrays are (k, k).

    labels: names of the rankings
    srcc: Spearman's rho of their scores, nan if one of them is constant
    low, high: a 95% interval (Fisher's z, Bonett and Wright's standard error; nan if rho is 1 or -1)
    p: two-sided, from random relabelings of the components (for more than 512, from the normal limit)
    overlap: share of the top 30% of one that is in the top 30% of the other; nan where ties leave open what is in it
    """

    labels: tuple[str, ...]
    srcc: np.ndarray
    low: np.ndarray
    high: np.ndarray
    p: np.ndarray
    overlap: np.ndarray

    @property
    def mean(self) -> float:
        """The mean coefficient of different labels; nan if there are none."""
        pairs = self.srcc[np.triu_indices(len(self.labels), 1)]
        return float(np.nanmean(pairs)) if np.isfinite(pairs).any() else math.nan


def agreement(scores: Mapping[str, np.ndarray], permutations: int = PERMUTATIONS) -> Agreement:
    """Returns the Agreement of every two score arrays over the same components. UsageError: no scores, or different
    shapes."""
    rows = _rows(scores)
    ranks = _centered(_ranks(rows))
    together, srcc = ranks @ ranks.T, _correlations(ranks)
    n, generator = rows.shape[1], np.random.default_rng(0)
    extreme = np.zeros_like(srcc)
    for _ in range(permutations if n <= MAX_PERMUTED else 0):
        extreme += np.abs(ranks @ ranks[:, generator.permutation(n)].T) >= np.abs(together)
    p = np.where(np.isnan(srcc), np.nan, (extreme + 1) / (permutations + 1))
    p = (p + p.T) / 2  # a pair is relabeled from either side
    if n > MAX_PERMUTED:
        # the limit of the permutation test
        p = np.vectorize(lambda x: float(f"{math.erfc(x):.9g}"))(np.abs(srcc) * math.sqrt((n - 1) / 2))
    with np.errstate(divide="ignore"):
        z, error = np.arctanh(np.clip(srcc, -1, 1)), np.sqrt((1 + srcc**2 / 2) / max(n - 3, 1))
    # for two equal orders the interval would be a point, even with few components
    z[(np.abs(srcc) > 1 - 1e-12) & ~np.eye(len(srcc), dtype=bool)] = np.nan
    low, high = (np.round(np.tanh(z + side * Z_95 * error), DIGITS) for side in (-1, 1))
    chosen = list(scores)
    open_ones = {name for name in chosen if _ties_at_cut(scores[name])}
    shared = [[math.nan if {a, b} & open_ones else top_overlap(scores[a], scores[b]) for b in chosen] for a in chosen]
    return Agreement(tuple(chosen), srcc, low, high, p, np.array(shared))


def agreement_within_layers(scores: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns (k, k): for every two of the score arrays (L, H), the mean over layers of Spearman's rho of the heads of
    a layer: agreement that is not about layers. nan for one component a layer, or if no layer has scores that differ in
    both."""
    rows = _rows(scores).reshape(len(scores), *next(iter(scores.values())).shape)
    layers = range(rows.shape[1] if rows.ndim == 3 and rows.shape[2] > 1 else 0)
    each = [_correlations(_centered(_ranks(rows[:, layer]))) for layer in layers]
    stacked = np.reshape(each, (-1, len(rows), len(rows)))
    known = np.isfinite(stacked).sum(0)
    return np.divide(np.nansum(stacked, 0), known, out=np.full(known.shape, np.nan), where=known > 0)


def n_top(n: int, share: float = TOP_SHARE) -> int:
    """Returns how many of n components are in the top `share`; at least one."""
    return max(1, math.floor(share * n))


def top_overlap(a: np.ndarray, b: np.ndarray, share: float = TOP_SHARE) -> float:
    """Returns which share of the top `share` of `a` is in the top `share` of `b`, 0-1; the top has at least one."""
    count = n_top(a.size, share)
    best = [set(np.argsort(-scores.ravel(), kind="stable")[:count].tolist()) for scores in (a, b)]
    return len(best[0] & best[1]) / count


def _ties_at_cut(scores: np.ndarray) -> bool:
    """Whether components that tie are on both sides of the end of the top share, so that either may be in it."""
    falling, n = np.sort(scores, axis=None)[::-1], n_top(scores.size)
    return n < falling.size and bool(falling[n - 1] == falling[n])


def aggregate(scores: Mapping[str, np.ndarray], how: str = "scores") -> np.ndarray:
    """Returns one array of scores for all tasks: the mean of their scores (Bansal et al.); with `shares` the mean of
    their shares of the task's total (the sum of absolute scores); with `ranks` the mean of their ranks (0-1).

    By scores, a task with large gradients dominates; by shares and ranks, every task has equal weight.
    """
    if how not in AGGREGATES:
        raise UsageError(f"aggregate of {how!r} is unknown; choose {', '.join(AGGREGATES)}")
    rows = _rows(scores)
    if how == "shares":
        totals = np.abs(rows).sum(1, keepdims=True)
        rows = rows / np.where(totals > 0, totals, 1)
    if how == "ranks":
        rows = _ranks(rows) / rows.shape[1]
    return rows.mean(0).reshape(next(iter(scores.values())).shape)


def _rows(scores: Mapping[str, np.ndarray]) -> np.ndarray:
    if not scores:
        raise UsageError("no scores to compare; measure the importance of a task first")
    shapes = {np.shape(array) for array in scores.values()}
    if len(shapes) > 1:
        raise UsageError(f"scores have different shapes {sorted(shapes)}; compare scores of one model and one kind")
    return np.stack([np.asarray(array, float).ravel() for array in scores.values()])


def _ranks(rows: np.ndarray) -> np.ndarray:
    """Returns each row's ranks from 1; equals share their mean rank."""
    from scipy.stats import rankdata

    return rankdata(rows, axis=1)


def _centered(ranks: np.ndarray) -> np.ndarray:
    """Returns twice the ranks, minus their mean: whole numbers, so that sums of products are exact in any order of
    addition and identical on all machines."""
    doubled = 2 * ranks
    return doubled - doubled.mean(1, keepdims=True)


def _correlations(centered: np.ndarray) -> np.ndarray:
    """Returns (k, k): the correlations of every two rows, nan if one is constant."""
    sums = centered @ centered.T
    lengths = np.sqrt(np.outer(sums.diagonal(), sums.diagonal()))
    return np.clip(np.divide(sums, lengths, out=np.full_like(sums, np.nan), where=lengths > 0), -1, 1)

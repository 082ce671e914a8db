"""The table of criteria, which score heads and FFNs; pruning orders and levels, from scores to an order to a `Mask`;
agreement between rankings.

A criterion is a ranking of engine.importance.rankings_of under the same name. Larger scores = kept longer.

Levels are in permille (700 = 70%): whole numbers, so that floor(p * N / 1000) is exact and keys hold no floats.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from engine.accuracy.restarts import lost
from engine.errors import UsageError
from engine.heads.copy_suppression import N_WINDOWS, copy_suppression
from engine.heads.entity_induction import entity_induction
from engine.heads.function_vectors import function_vectors
from engine.heads.induction import induction
from engine.heads.retrieval import retrieval
from engine.measurement import Measurement
from engine.models.session import Target
from engine.shapes import ModelShape
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
    p: two-sided, from random relabellings of the components (for more than 512, from the normal limit)
    overlap: share of the top 30% of one that is in the top 30% of the other
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
    ranks = _centred(_ranks(rows))
    together, srcc = ranks @ ranks.T, _correlations(ranks)
    n, generator = rows.shape[1], np.random.default_rng(0)
    extreme = np.zeros_like(srcc)
    for _ in range(permutations if n <= MAX_PERMUTED else 0):
        extreme += np.abs(ranks @ ranks[:, generator.permutation(n)].T) >= np.abs(together)
    p = np.where(np.isnan(srcc), np.nan, (extreme + 1) / (permutations + 1))
    p = (p + p.T) / 2  # a pair is relabelled from either side
    if n > MAX_PERMUTED:
        # the limit of the permutation test
        p = np.vectorize(lambda x: float(f"{math.erfc(x):.9g}"))(np.abs(srcc) * math.sqrt((n - 1) / 2))
    with np.errstate(divide="ignore"):
        z, error = np.arctanh(np.clip(srcc, -1, 1)), np.sqrt((1 + srcc**2 / 2) / max(n - 3, 1))
    # for two equal orders the interval would be a point, even with few components
    z[(np.abs(srcc) > 1 - 1e-12) & ~np.eye(len(srcc), dtype=bool)] = np.nan
    low, high = (np.round(np.tanh(z + side * Z_95 * error), DIGITS) for side in (-1, 1))
    chosen = list(scores)
    shared = [[top_overlap(scores[a], scores[b]) for b in chosen] for a in chosen]
    return Agreement(tuple(chosen), srcc, low, high, p, np.array(shared))


def agreement_within_layers(scores: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns (k, k): for every two of the score arrays (L, H), the mean over layers of Spearman's rho of the heads of
    a layer: agreement that is not about layers. nan for one component a layer, or if no layer has scores that differ in
    both."""
    rows = _rows(scores).reshape(len(scores), *next(iter(scores.values())).shape)
    layers = range(rows.shape[1] if rows.ndim == 3 and rows.shape[2] > 1 else 0)
    each = [_correlations(_centred(_ranks(rows[:, layer]))) for layer in layers]
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


def _centred(ranks: np.ndarray) -> np.ndarray:
    """Returns twice the ranks, minus their mean: whole numbers, so that sums of products are exact in any order of
    addition and identical on all machines."""
    doubled = 2 * ranks
    return doubled - doubled.mean(1, keepdims=True)


def _correlations(centred: np.ndarray) -> np.ndarray:
    """Returns (k, k): the correlations of every two rows, nan if one is constant."""
    sums = centred @ centred.T
    lengths = np.sqrt(np.outer(sums.diagonal(), sums.diagonal()))
    return np.clip(np.divide(sums, lengths, out=np.full_like(sums, np.nan), where=lengths > 0), -1, 1)


Part = Literal["heads", "ffns"]
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Criterion:
    """A way to score components.

    label: the title
    heads, ffns: the names of the scores; FFNs usually go by the accuracy lost without each
    measured_from: what the scores are measured from:
        gradients: of the loss by a gate on each component (the arrays of engine.importance.importance)
        ablations: the answers without each component
        weights, activity: the arrays of `magnitude_piece` and `activity_pieces` in engine.importance.activity, or both
        prompts, words: prompts of their own, of which `--prompts` sets the number for those of words
    of: returns the scores: from (arrays, heads or ffns); for ablations, with scores that break ties, from (the full
        model's answers, all others); for prompts, a measurement of (number of prompts, scores) from (target, number)
    help: describes the components pruned last
    cost: the measurements needed
    paper: the source
    """

    label: str
    heads: str
    ffns: str
    measured_from: tuple[str, ...]
    of: Callable[..., Any]
    help: str
    cost: str
    paper: str

    def score(self, part: Part) -> str:
        """Returns the name of the score of heads or of FFNs."""
        return self.heads if part == "heads" else self.ffns


def _published(found: Arrays, part: Part) -> np.ndarray:
    """Returns I_h: the sum over positions and examples, divided by the number of positions with a gradient (sequence
    length - 1), in the last layer by the number of continuation tokens, as in llm-interpret at batch size 1."""
    scores, lengths = found["absolute"].astype(np.float64).sum(0), found["lengths"]
    scores[:-1] /= lengths[:, 0].sum()
    scores[-1] /= lengths[:, 1].sum()
    return scores


def _by_one_divisor(found: Arrays, part: Part) -> np.ndarray:
    scores, (n_positions, n_targets) = _published(found, part), found["lengths"].sum(0)
    scores[-1] *= 1 / (n_positions / n_targets)
    return scores


def _taylor(found: Arrays, part: Part) -> np.ndarray:
    gold = found["gold"]
    return np.abs(found[part][np.arange(len(gold)), gold].astype(np.float64)).mean(0)


def _activation(found: Arrays, part: Part) -> np.ndarray:
    return found["head_norms" if part == "heads" else "ffn_norms"] / found["n"][0]


def _wanda(found: Arrays, part: Part) -> np.ndarray:
    of, per_layer = ("head", found["head_norms"].shape) if part == "heads" else ("ffn", found["ffn_norms"].shape)
    weighted = found[f"{of}_outputs"] * np.sqrt(found[f"{of}_squares"] / found["n"][0])
    return weighted.reshape(*per_layer, -1).sum(-1)


def _prefix_matching(target: Target, n_prompts: int) -> Measurement[tuple[int, np.ndarray]]:
    return induction(target).map(lambda found: (found.n["prefix_matching"], found.mean["prefix_matching"]))


def _of_words(kind: str, value: str, target: Target, n_prompts: int) -> Measurement[tuple[int, np.ndarray]]:
    known = entity_induction(target, n_prompts=n_prompts, kinds=(kind,))
    return known.map(lambda found: (n_prompts, getattr(found, value)[kind].mean(0)))


_FORWARD = "one forward pass per train question, shared by activation, wanda and first-token"
_OF_WORDS = "32 prompts of 66 tokens per model, each about three passes, shared by both scores of words"
CRITERIA = {
    "importance": Criterion(
        "Importance as published", "heads", "ffns", ("gradients",), _published,
        "the paper's: heads by |z · gradient|, summed over positions; FFNs by the accuracy lost without each",
        "one backward pass per train question; for FFNs one forward pass without each",
        "Bansal et al. 2212.09095",
    ),
    "gradient": Criterion(
        "Gradient", "heads-one-divisor", "ffns", ("gradients",), _by_one_divisor,
        "the paper's score of heads with one divisor for all layers: its own weights the last layer more",
        "the passes of importance",
        "after Bansal et al. 2212.09095",
    ),
    "weight": Criterion(
        "Weight", "heads-weight", "ffns-weight", ("weights",), lambda found, part: found[part].astype(np.float64),
        "large weights: the norm of a head's value and output matrices multiplied, of an FFN's matrices",
        "no questions: the weights are read once per model",
        "Han et al. 1506.02626, per component",
    ),
    "activation": Criterion(
        "Activation", "heads-activation", "ffns-activation", ("activity",), _activation,
        "large outputs: the mean length of what a component adds to the residual stream",
        _FORWARD,
        "Molchanov et al. 1611.06440",
    ),
    "wanda": Criterion(
        "Wanda", "heads-wanda", "ffns-wanda", ("weights", "activity"), _wanda,
        "|weight| times the size of its input, summed over a component's output weights",
        _FORWARD,
        "Sun et al. 2306.11695, per component",
    ),
    "taylor": Criterion(
        "Taylor", "heads-taylor", "ffns-taylor", ("gradients",), _taylor,
        "a large first-order effect: the mean over questions of |dLoss/dgate|",
        "one backward pass per train question, shared with importance of heads",
        "Michel et al. 1905.10650; Molchanov et al. 1906.10771",
    ),
    "oracle": Criterion(
        "Oracle", "heads-oracle", "ffns", ("ablations",), lost,
        "much accuracy lost without that component alone",
        "one forward pass per train question without each component",
        "Michel et al. 1905.10650",
    ),
    "prefix": Criterion(
        "Prefix matching", "heads-prefix", "ffns", ("prompts",), _prefix_matching,
        "heads that look at what followed the same token before; FFNs as by importance",
        "ten short probes",
        "Olsson et al. 2209.11895",
    ),
    "function-vector": Criterion(
        "Function vector", "heads-function-vector", "ffns", ("prompts",),
        lambda target, n: function_vectors(target).map(lambda found: (len(found.rise), found.mean)),
        "heads whose mean output on solved word pairs restores the answer after shuffled ones; FFNs as by importance",
        "64 prompts of word pairs per model, each about three passes, and 128 more passes",
        "Todd et al. 2310.15213",
    ),
    "token-induction": Criterion(
        "Token induction", "heads-token-induction", "ffns", ("words",), partial(_of_words, "token", "rise"),
        "heads whose output raises the token that came next in an earlier copy; FFNs as by importance",
        "32 prompts of 66 tokens per model, each about three passes",
        "Feucht et al. 2504.03022",
    ),
    "concept-induction": Criterion(
        "Concept induction", "heads-concept-induction", "ffns", ("words",), partial(_of_words, "concept", "rise"),
        "heads whose output raises the rest of a word that came next in an earlier copy; FFNs as by importance",
        _OF_WORDS,
        "Feucht et al. 2504.03022",
    ),
    "concept-matching": Criterion(
        "Concept matching", "heads-concept-matching", "ffns", ("words",), partial(_of_words, "concept", "attention"),
        "heads that look at the end of the word that came next in an earlier copy; FFNs as by importance",
        _OF_WORDS,
        "Feucht et al. 2504.03022",
    ),
    "copy-suppression": Criterion(
        "Copy suppression", "heads-copy-suppression", "ffns", ("prompts",),
        lambda target, n: copy_suppression(target).map(lambda found: (N_WINDOWS, found)),
        "heads that lower earlier tokens which the model is about to repeat; FFNs as by importance",
        "two windows of a text per model, which the unembedding reads at every layer",
        "McDougall et al. 2310.04625",
    ),
    "retrieval": Criterion(
        "Retrieval", "heads-retrieval", "ffns", ("prompts",),
        lambda target, n: retrieval(target).map(lambda found: (len(found), found.mean(0))),
        "heads that look at the words which the model copies from far back; FFNs as by importance",
        "eight texts of 256 and 512 tokens per model, and ten decoded tokens each",
        "Wu et al. 2404.15574",
    ),
    "first-token": Criterion(
        "Beyond first token", "heads-first-token", "ffns", ("activity",),
        lambda found, part: 1 - found["first_token"] / max(found["n"][1], 1),
        "heads that look at more than the first token; FFNs as by importance",
        _FORWARD,
        "after Xiao et al. 2309.17453",
    ),
}  # fmt: skip
# by score, the criterion that says how it is measured; `gate` is Taylor's, with the gradients of every choice
MEASURED_BY = {score: each for each in CRITERIA.values() for score in (each.heads, each.ffns)}
MEASURED_BY |= {"ffns": CRITERIA["oracle"], "gate": CRITERIA["taylor"]}
# not how much a head matters, but what it does
KINDS = ("token-induction", "concept-induction", "concept-matching", "copy-suppression", "retrieval")
SLOW = ("function-vector", *KINDS, "oracle")  # criteria of many times the passes of the others


def part_of(what: str) -> Part:
    """Returns whether a score is of heads or of FFNs."""
    return "ffns" if what.startswith("ffns") else "heads"


def passes(what: str, shape: ModelShape) -> int:
    """Returns about how many forward passes per question a score takes."""
    n_ablated = shape.n_layers if part_of(what) == "ffns" else shape.n_heads_total
    # a forward and a backward pass; a pass that returns patterns
    costs = {"gradients": 3, "activity": 2, "ablations": n_ablated + 1}
    return max(costs.get(each, 1) for each in MEASURED_BY[what].measured_from)

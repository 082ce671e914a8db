"""The table of pruning orders: the evidence that each needs, and its rule."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from engine.heads.induction import INDUCTION_FROM
from engine.importance.criteria import CRITERIA
from engine.importance.rankings import order, random_order
from engine.importance.scores import Scores
from engine.shapes import ModelShape

QUICK, QUICK_QUESTIONS = "quick-gradient", 8  # without 20% of its heads SmolLM2-135M answers as much as by 64


@dataclass(frozen=True)
class Evidence:
    """The evidence for ordering components that is known so far: the scores of the ranking, prefix matching (L, H), and
    the known part of the order of layers."""

    heads: Scores | None = None
    ffns: Scores | None = None
    prefix_matching: np.ndarray | None = None
    layers: np.ndarray | None = None

    def missing(self, ranking: str, heads_too: bool, ffns_too: bool) -> list[str]:
        """Returns the evidence that `ranking` still needs to order heads, FFNs or both."""
        wanted = [name for name in RULES[ranking].needs if (ffns_too if name == "ffns" else heads_too)]
        return [name for name in wanted if getattr(self, name) is None]


def random_order_within_layers(shape: ModelShape, like: np.ndarray, seed: int = 0) -> np.ndarray:
    """Returns a head order that visits the layers in the sequence of `like` but takes a random head of each."""
    generator = np.random.default_rng(seed)
    waiting = [list(layer * shape.n_heads + generator.permutation(shape.n_heads)) for layer in range(shape.n_layers)]
    return np.array([waiting[index // shape.n_heads].pop() for index in like])


Both = tuple[np.ndarray, np.ndarray]  # the orders of heads and of FFNs


def _by(scores: Scores | None, n: int) -> np.ndarray:
    return np.arange(n) if scores is None else order(scores.scores, scores.tie_break)


def _by_scores(shape: ModelShape, seed: int, known: Evidence) -> Both:
    return _by(known.heads, shape.n_heads_total), _by(known.ffns, shape.n_layers)


def _reversed(shape: ModelShape, seed: int, known: Evidence) -> Both:
    heads, ffns = _by_scores(shape, seed, known)
    return heads[::-1], ffns[::-1]


def _random(shape: ModelShape, seed: int, known: Evidence) -> Both:
    return random_order(shape.n_heads_total, seed), random_order(shape.n_layers, seed)


def _within_layers(shape: ModelShape, seed: int, known: Evidence) -> Both:
    heads, ffns = _by_scores(shape, seed, known)
    return random_order_within_layers(shape, heads, seed), ffns


def _induction_first(shape: ModelShape, seed: int, known: Evidence) -> Both:
    heads, ffns = _by_scores(shape, seed, known)
    return heads if known.prefix_matching is None else order(-known.prefix_matching), ffns


def _induction_protected(shape: ModelShape, seed: int, known: Evidence) -> Both:
    heads, ffns = _by_scores(shape, seed, known)
    if known.prefix_matching is None:
        return heads, ffns
    is_inductive = known.prefix_matching.ravel()[heads] >= INDUCTION_FROM
    return np.concatenate([heads[~is_inductive], heads[is_inductive]]), ffns


@dataclass(frozen=True)
class Rule:
    """A pruning order.

    help: the components pruned first; for a criterion, those pruned last
    needs: the evidence for heads and FFNs (fields of Evidence)
    of: returns the orders of heads and FFNs from (shape, seed, evidence)
    is_of_one: whether one task can be pruned by it
    is_of_many: whether sweeps can prune by it
    sources: returns the tasks whose scores it uses, if not those of the pruned task, from (the pruned task, the task
        that was named, all tasks)
    """

    help: str
    needs: tuple[str, ...] = ("heads", "ffns")
    of: Callable[[ModelShape, int, Evidence], Both] = _by_scores
    is_of_one: bool = True
    is_of_many: bool = True
    sources: Callable[[str, str, Sequence[str]], Sequence[str]] | None = None


RULES = {
    # "own" in sweeps, as opposed to other tasks'
    "importance": Rule(CRITERIA["importance"].help, is_of_many=False),
    "own": Rule("the components that are least important for the task itself", is_of_one=False),
    **{name: Rule(criterion.help) for name, criterion in CRITERIA.items() if name != "importance"},
    # sweeps take all scores from equally many questions
    QUICK: Rule(f"the lowest `gradient` scores from {QUICK_QUESTIONS} training questions", is_of_many=False),
    "reversed": Rule("the most important components", of=_reversed),
    "random": Rule("components in a seeded random order, the baseline", (), _random),
    "within-layers": Rule(
        "random heads, as many in each layer as by importance; FFNs by importance", of=_within_layers
    ),
    "induction-first": Rule(
        "the heads that match prefixes best; FFNs by importance", ("prefix_matching", "ffns"), _induction_first
    ),
    "induction-protected": Rule(
        f"the least important components, but heads with a prefix matching of at least {INDUCTION_FROM} last",
        ("heads", "prefix_matching", "ffns"),
        _induction_protected,
    ),
    "task": Rule(
        "the components that are least important for another task",
        is_of_one=False,
        sources=lambda task, named, pool: [named],
    ),
    "aggregate": Rule(
        "the components that are least important over all tasks",
        is_of_one=False,
        sources=lambda task, named, pool: pool,
    ),
    "others": Rule(
        "the components that are least important over all other tasks",
        is_of_one=False,
        sources=lambda task, named, pool: [name for name in pool if name != task],
    ),
    # engine.studies.sweeps replaces the heads, level after level, as Bansal et al. name as future work
    "rescored": Rule(
        "the least important components, with importance measured again before each level", ("ffns",), is_of_one=False
    ),
}

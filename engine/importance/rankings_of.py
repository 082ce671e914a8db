"""From "prune 40 % of the heads by this ranking" to a `Mask`; scores are looked up, or computed where needed."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import UsageError
from engine.heads.induction import InductionScores, induction, recall_induction
from engine.importance.importance import Scores, importance, recall_scores
from engine.importance.rankings import mask_at, order, random_order
from engine.jobs import Progress
from engine.models.checkpoints import Identity
from engine.models.loading import LoadSpec, Models, identify
from engine.models.masks import Mask
from engine.questions.requests import Requests, TaskSpec, get_requests, select
from engine.shapes import ModelShape

# what each ranking needs to know of the heads and of the FFNs
NEEDS = {
    "importance": ("heads", "ffns"),
    "reversed": ("heads", "ffns"),
    "random": (),
    "induction-first": ("prefix_matching", "ffns"),
    "induction-protected": ("heads", "prefix_matching", "ffns"),
}
INDUCTION_FROM = 0.3  # prefix-matching score from which a head is protected as an induction head
INDUCTION_SEED = 0


@dataclass(frozen=True)
class Ranking:
    """How components are ordered: `importance` = this task's own scores, least important first; `reversed`; `random`;
    `induction-first` = highest prefix matching (Olsson) first; `induction-protected` = importance, but heads that match
    prefixes go last. FFNs go by importance in these two.

    Scores come from `n_questions` of the task's train split (None = all), so that a ranking is never judged on the
    questions that made it. `heads_by` and `ffns_by` name the score (engine.importance.importance.WHAT).
    """

    name: str = "importance"
    seed: int = 0
    n_questions: int | None = None
    split: str = "train"
    heads_by: str = "heads"
    ffns_by: str = "ffns"

    def __post_init__(self) -> None:
        if self.name not in NEEDS:
            raise UsageError(f"ranking {self.name!r} is unknown; choose one of {', '.join(NEEDS)}")


@dataclass(frozen=True)
class Evidence:
    """What is known so far of the components that are to be ordered: importance, prefix matching (L, H)."""

    heads: Scores | None = None
    ffns: Scores | None = None
    prefix_matching: np.ndarray | None = None

    def missing(self, ranking: str, heads_too: bool, ffns_too: bool) -> list[str]:
        """What `ranking` would need besides, to order heads, FFNs or both."""
        wanted = [name for name in NEEDS[ranking] if (ffns_too if name == "ffns" else heads_too)]
        return [name for name in wanted if getattr(self, name) is None]


@dataclass(frozen=True)
class Orders:
    """Flat head indices and FFN indices, first to be pruned first, and what they were made of."""

    heads: np.ndarray
    ffns: np.ndarray
    evidence: Evidence = Evidence()

    def mask(self, identity: Identity, heads_permille: int, ffns_permille: int) -> Mask:
        """The mask at two levels of these orders."""
        return mask_at(identity.shape, self.heads, self.ffns, heads_permille, ffns_permille)


def orders_from(shape: ModelShape, ranking: Ranking, evidence: Evidence) -> Orders:
    """The orders of `ranking`. Where the evidence it needs is missing, any order: none must be taken from it then."""
    n = shape.n_heads_total
    if ranking.name == "random":
        return Orders(random_order(n, ranking.seed), random_order(shape.n_layers, ranking.seed), evidence)
    heads, ffns = _by(evidence.heads, n), _by(evidence.ffns, shape.n_layers)
    if ranking.name == "reversed":
        heads, ffns = heads[::-1], ffns[::-1]
    elif evidence.prefix_matching is not None:
        score = evidence.prefix_matching.ravel()
        if ranking.name == "induction-first":
            heads = order(-score)
        elif ranking.name == "induction-protected":
            inductive = score[heads] >= INDUCTION_FROM
            heads = np.concatenate([heads[~inductive], heads[inductive]])
    return Orders(heads, ffns, evidence)


def recall_orders(
    identity: Identity, spec: LoadSpec, task: TaskSpec, ranking: Ranking, bos: bool | None, data_dir: str | Path | None,
    store: Any, ffns_too: bool = True,
) -> Orders | None:  # fmt: skip
    """The orders of `ranking` when everything they need is stored, else None; loads and computes nothing."""
    evidence = Evidence()
    if NEEDS[ranking.name]:
        requests = get_requests(replace(task, split=ranking.split), data_dir, store)
        wanted = [name for name in NEEDS[ranking.name] if ffns_too or name != "ffns"]
        evidence = recall_evidence(identity, spec, requests, ranking, wanted, bos, store)
    if evidence.missing(ranking.name, True, ffns_too):
        return None
    return orders_from(identity.shape, ranking, evidence)


def recall_evidence(
    identity: Identity, spec: LoadSpec, requests: Requests, ranking: Ranking, wanted: Collection[str],
    bos: bool | None, store: Any,
) -> Evidence:  # fmt: skip
    """What is stored of the `wanted` (names as in NEEDS); `requests` are those that importance is measured on."""
    selection, found = select(requests, ranking.n_questions, "stratified"), {}
    for name, what in (("heads", ranking.heads_by), ("ffns", ranking.ffns_by)):
        if name in wanted:
            found[name] = recall_scores(identity, spec, requests, selection, what, bos, store)
    if "prefix_matching" in wanted:
        scores = recall_induction(identity, spec, "olsson", INDUCTION_SEED, store)
        found["prefix_matching"] = None if scores is None else scores.mean["prefix_matching"]
    return Evidence(**found)


def compute_orders(
    models: Models, spec: LoadSpec, task: TaskSpec, ranking: Ranking, bos: bool | None, data_dir: str | Path | None,
    store: Any, ffns_too: bool = True,
) -> Iterator[Progress]:  # fmt: skip
    """Yields Progress; the last one's value is the Orders. What is stored is not computed again."""
    identity = identify(spec, store)
    needs = [name for name in NEEDS[ranking.name] if ffns_too or name != "ffns"]
    evidence, done, all_cached = Evidence(), 0, True
    requests = selection = None
    if {"heads", "ffns"} & set(needs):
        requests = get_requests(replace(task, split=ranking.split), data_dir, store)
        selection = select(requests, ranking.n_questions, "stratified")
    n = selection.n if selection else 1
    sizes = {"heads": n, "ffns": n * (identity.shape.n_layers + 1), "prefix_matching": 1}
    total = sum(sizes[name] for name in needs) or 1
    for name in needs:
        if name == "prefix_matching":
            steps, label = induction(models, spec, "olsson", INDUCTION_SEED, store), "induction scores"
        else:
            assert requests is not None and selection is not None
            what = ranking.heads_by if name == "heads" else ranking.ffns_by
            steps = importance(models, spec, requests, selection, what, bos, store)
            label = "head importance" if name == "heads" else "FFN importance"
        value, cached = None, False
        for step in steps:
            value, cached = (step.value if step.value is not None else value), step.cached
            at = done + min(sizes[name], step.done)
            yield Progress(at, total, message=step.message if step.message.startswith("loading") else label,
                           cached=step.cached)  # fmt: skip
        assert value is not None
        found = value.mean["prefix_matching"] if isinstance(value, InductionScores) else value
        evidence, done = replace(evidence, **{name: found}), done + sizes[name]
        all_cached &= cached
    yield Progress(total, total, orders_from(identity.shape, ranking, evidence), cached=all_cached)


def _by(scores: Scores | None, n: int) -> np.ndarray:
    return np.arange(n) if scores is None else order(scores.scores, scores.tie_break)

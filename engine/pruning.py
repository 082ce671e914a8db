"""From "prune 40 % of the heads by this ranking" to a `Mask`; scores are looked up, or computed where needed."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from engine.checkpoints import Identity
from engine.errors import UsageError
from engine.importance import Scores, importance, recall_scores
from engine.jobs import Progress
from engine.loading import LoadSpec, Models, identify
from engine.masks import Mask
from engine.rankings import mask_at, order, random_order
from engine.requests import Selection, TaskSpec, get_requests, select

RANKINGS = ("importance", "random", "reversed")


@dataclass(frozen=True)
class Ranking:
    """How components are ordered: `importance` = this task's own scores, least important first; `reversed`; `random`.

    Scores come from `n_questions` of the task's train split (None = all), so that a ranking is never judged on the
    questions that made it. `heads_by` and `ffns_by` name the score (engine.importance.WHAT).
    """

    name: str = "importance"
    seed: int = 0
    n_questions: int | None = None
    split: str = "train"
    heads_by: str = "heads"
    ffns_by: str = "ffns"

    def __post_init__(self) -> None:
        if self.name not in RANKINGS:
            raise UsageError(f"ranking {self.name!r} is unknown; choose one of {', '.join(RANKINGS)}")


@dataclass(frozen=True)
class Orders:
    """Flat head indices and FFN indices, first to be pruned first, with the scores behind them (None: not needed)."""

    heads: np.ndarray
    ffns: np.ndarray
    head_scores: Scores | None = None
    ffn_scores: Scores | None = None

    def mask(self, identity: Identity, heads_permille: int, ffns_permille: int) -> Mask:
        """The mask at two levels of these orders."""
        return mask_at(identity.shape, self.heads, self.ffns, heads_permille, ffns_permille)


def recall_orders(
    identity: Identity, spec: LoadSpec, task: TaskSpec, ranking: Ranking, bos: bool | None, data_dir: str | Path | None,
    store: Any, ffns_too: bool = True,
) -> Orders | None:  # fmt: skip
    """The orders of `ranking` when everything they need is stored, else None; loads and computes nothing."""
    if ranking.name == "random":
        return _orders(identity, ranking, None, None)
    requests, selection = _ranked_questions(task, ranking, data_dir, store)
    heads = recall_scores(identity, spec, requests, selection, ranking.heads_by, bos, store)
    ffns = recall_scores(identity, spec, requests, selection, ranking.ffns_by, bos, store) if ffns_too else None
    return None if heads is None or (ffns_too and ffns is None) else _orders(identity, ranking, heads, ffns)


def compute_orders(
    models: Models, spec: LoadSpec, task: TaskSpec, ranking: Ranking, bos: bool | None, data_dir: str | Path | None,
    store: Any, ffns_too: bool = True,
) -> Iterator[Progress]:  # fmt: skip
    """Yields Progress; the last one's value is the Orders. What is stored is not computed again."""
    identity = identify(spec, store)
    if ranking.name == "random":
        yield Progress(1, 1, _orders(identity, ranking, None, None), cached=True)
        return
    requests, selection = _ranked_questions(task, ranking, data_dir, store)
    n_runs = identity.shape.n_layers + 1 if ffns_too else 0
    total = selection.n * (1 + n_runs)

    def scores(what: str, offset: int, label: str) -> Generator[Progress, None, Scores]:
        value = None
        for step in importance(models, spec, requests, selection, what, bos, store):
            value = step.value if step.value is not None else value
            message = step.message if step.message.startswith("loading") else label
            yield Progress(offset + step.done, total, message=message, cached=step.cached)
        assert isinstance(value, Scores)
        return value

    heads = yield from scores(ranking.heads_by, 0, "head importance")
    ffns = (yield from scores(ranking.ffns_by, selection.n, "FFN importance")) if ffns_too else None
    yield Progress(total, total, _orders(identity, ranking, heads, ffns),
                   cached=heads.cached and (ffns is None or ffns.cached))  # fmt: skip


def _ranked_questions(task: TaskSpec, ranking: Ranking, data_dir: Any, store: Any) -> tuple[Any, Selection]:
    requests = get_requests(replace(task, split=ranking.split), data_dir, store)
    return requests, select(requests, ranking.n_questions, "stratified")


def _orders(identity: Identity, ranking: Ranking, heads: Scores | None, ffns: Scores | None) -> Orders:
    shape = identity.shape
    if ranking.name == "random":
        return Orders(random_order(shape.n_heads_total, ranking.seed), random_order(shape.n_layers, ranking.seed))
    head_order = np.arange(shape.n_heads_total) if heads is None else order(heads.scores, heads.tie_break)
    ffn_order = np.arange(shape.n_layers) if ffns is None else order(ffns.scores, ffns.tie_break)
    if ranking.name == "reversed":
        head_order, ffn_order = head_order[::-1], ffn_order[::-1]
    return Orders(head_order, ffn_order, heads, ffns)

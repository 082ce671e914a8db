"""From "prune 40% of the heads by this ranking" to a `Mask`: the evidence that an order needs, and how it is read
from the store or measured.
"""

from collections.abc import Collection, Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from engine.composed import ComposedRun, composed
from engine.errors import UsageError, refuse_unknown
from engine.heads.induction import induction
from engine.importance.criteria import CRITERIA, Part, passes
from engine.importance.layers import LAYERS_BY, layer_order, n_passes
from engine.importance.rankings import n_pruned
from engine.importance.rules import QUICK, QUICK_QUESTIONS, RULES, Evidence
from engine.importance.scores import importance
from engine.measurement import Measurement
from engine.models.masks import Edits, Mask, parse_edits, without_layers
from engine.models.session import Target
from engine.progress import Progress
from engine.questions.rendering import RenderedQuestions, TaskSpec, render_questions, select
from engine.shapes import ModelShape

Axis = Literal["heads", "ffns", "layers"]
OF_ONE_TASK = tuple(name for name, rule in RULES.items() if rule.is_of_one)
OF_MANY_TASKS = tuple(name for name, rule in RULES.items() if rule.is_of_many)
PARTS: tuple[Part, ...] = ("heads", "ffns")
# component names by evidence
RANKED = {"heads": "heads", "prefix_matching": "heads", "ffns": "FFNs", "layers": "layers"}


@dataclass(frozen=True)
class Orders:
    """Flat head indices, FFN indices and layers of a model of `shape`, first to be pruned first."""

    shape: ModelShape
    heads: np.ndarray
    ffns: np.ndarray
    layers: np.ndarray | None = None

    def mask(self, heads_permille: int, ffns_permille: int, layers_permille: int = 0) -> Mask:
        """Returns the mask at these levels, everything that any of the orders prunes: of each the first
        floor(p * N / 1000)."""
        heads, ffns = np.ones(self.shape.n_heads_total, bool), np.ones(self.shape.n_layers, bool)
        heads[np.asarray(self.heads, int)[: n_pruned(heads_permille, heads.size)]] = False
        ffns[np.asarray(self.ffns, int)[: n_pruned(ffns_permille, ffns.size)]] = False
        mask = Mask.from_arrays(heads.reshape(self.shape.n_layers, self.shape.n_heads), ffns)
        n = n_pruned(layers_permille, self.shape.n_layers)
        return mask if self.layers is None or not n else without_layers(mask, {*self.layers[:n].tolist()})


@dataclass(frozen=True)
class Ranking:
    """How components are ordered.

    name: one of RULES
    seed: of random orders
    n_questions: how many questions the scores come from (None = all); `quick-gradient` takes 8 at most
    split: of the questions; train, so that a ranking is never judged on the questions that made it
    heads_by, ffns_by: the score used as importance (engine.importance.scores.WHAT)
    layers_by: how whole layers are ordered, for every name (engine.importance.layers.LAYERS_BY)
    """

    name: str = "importance"
    seed: int = 0
    n_questions: int | None = None
    split: str = "train"
    heads_by: str = "heads"
    ffns_by: str = "ffns"
    layers_by: str = "influence"

    def __post_init__(self) -> None:
        if self.name not in RULES:
            raise UsageError(f"ranking {self.name!r} is unknown; choose one of {', '.join(OF_ONE_TASK)}")
        refuse_unknown("order of layers", self.layers_by, LAYERS_BY)

    @property
    def criterion(self) -> str:
        """The criterion that scores components (engine.importance.criteria.CRITERIA); importance if the order needs
        none."""
        return "gradient" if self.name == QUICK else self.name if self.name in CRITERIA else "importance"

    @property
    def n_scored(self) -> int | None:
        """How many questions the scores come from (None = all)."""
        return min(QUICK_QUESTIONS, self.n_questions or QUICK_QUESTIONS) if self.name == QUICK else self.n_questions

    def what(self, part: Part) -> str:
        """Returns the score that heads or FFNs are ordered by (engine.importance.scores.WHAT)."""
        if self.criterion != "importance":
            return CRITERIA[self.criterion].score(part)
        return self.heads_by if part == "heads" else self.ffns_by


@dataclass(frozen=True)
class Pruning:
    """A choice of components to prune: levels of a ranking by the scores of `task`, and the edits `typed` on top.

    task: the task whose scores make the ranking
    ranking: how components are ordered
    heads_permille, ffns_permille: levels of heads and FFNs
    typed: single components pruned or kept on top
    layers_permille: level of whole layers
    """

    task: TaskSpec
    ranking: Ranking
    heads_permille: int
    ffns_permille: int
    typed: Edits
    layers_permille: int = 0

    def __str__(self) -> str:
        """Returns a text of the ranking's name, the levels and the typed edits."""
        layers = f" {self.layers_permille} {self.ranking.layers_by}" if self.layers_permille else ""
        return f"{self.ranking.name} {self.heads_permille} {self.ffns_permille}{layers} {self.typed.key()}"

    @property
    def by_level(self) -> bool:
        """Whether any level is above 0."""
        return bool(self.heads_permille or self.ffns_permille or self.layers_permille)

    @property
    def n_layers_dropped(self) -> int:
        """How many whole layers are pruned by level."""
        return n_pruned(self.layers_permille, len(self.typed.prune.ffns))

    def level(self, axis: Axis) -> int:
        """Returns the level of one axis, in permille."""
        return getattr(self, f"{axis}_permille")

    def at(self, axis: Axis, permille: int) -> "Pruning":
        """Returns a copy with the level of one axis changed."""
        return replace(self, **{f"{axis}_permille": permille})

    def missing(self, known: Evidence) -> list[str]:
        """Returns the evidence still needed before the mask is known."""
        missing = known.missing(self.ranking.name, self.heads_permille > 0, self.ffns_permille > 0)
        n = self.n_layers_dropped
        return missing + ["layers"] * (n > 0 and (known.layers is None or len(known.layers) < n))

    def mask(self, orders: Orders) -> Mask:
        """Returns the mask by these orders and the typed edits."""
        return self.typed.on(self.by_levels(orders))

    def by_levels(self, orders: Orders) -> Mask:
        """Returns the mask by these orders alone."""
        return orders.mask(self.heads_permille, self.ffns_permille, self.layers_permille)

    def known_mask(self, shape: ModelShape, known: Evidence) -> Mask | None:
        """Returns the mask, or None if evidence is missing."""
        return None if self.missing(known) else self.mask(orders_from(shape, self.ranking, known))


def n_components(shape: ModelShape, axis: Axis) -> int:
    """Returns how many components an axis has: heads, or as many FFNs as layers."""
    return shape.n_heads_total if axis == "heads" else shape.n_layers


def same_parts(first: ModelShape, second: ModelShape) -> bool:
    """Returns whether the heads and FFNs of two models can be paired by position."""
    return (first.n_layers, first.n_heads) == (second.n_layers, second.n_heads)


def pruning_of_second(pruning: Pruning, first: ModelShape, second: ModelShape) -> Pruning:
    """Returns the Pruning of the second model for that of the first: the same levels of its own order, and the typed
    edits if both have equally many heads and FFNs."""
    typed = pruning.typed if same_parts(first, second) else parse_edits("", second)
    return replace(pruning, typed=typed)


def orders_from(shape: ModelShape, ranking: Ranking, known: Evidence) -> Orders:
    """Returns the orders of `ranking`. If evidence is missing, the order is arbitrary and must not be used."""
    heads, ffns = RULES[ranking.name].of(shape, ranking.seed, known)
    return Orders(shape, heads, ffns, known.layers)


def evidence(
    target: Target,
    task: TaskSpec,
    ranking: Ranking,
    wanted: Collection[str],
    n_layers: int = 0,
    data_dir: str | Path | None = None,
    rendered: RenderedQuestions | None = None,
) -> Measurement[Evidence]:
    """Returns the `wanted` Evidence (fields of Evidence) and, if any layers are dropped, the first `n_layers` of
    their order; missing evidence is None.

    `rendered`: the questions of the task, if available. Each part is named and counted separately; the share of
    a step is relative to all parts.
    """
    shape, needed = target.shape, [name for name in RANKED if name in wanted or name == "layers" and n_layers]
    of_questions = {*PARTS, *(["layers"] if LAYERS_BY[ranking.layers_by] else [])}

    def body(run: ComposedRun) -> Generator[Progress[Any], None, Evidence]:
        result, questions = Evidence(), None
        if of_questions & {*needed}:
            all_questions = rendered or render_questions(
                replace(task, split=ranking.split), data_dir, run.session.store
            )
            questions = select(all_questions, ranking.n_scored, "stratified")
        n = questions.n if questions else 1
        sizes = {name: n * passes(ranking.what(name), shape) for name in PARTS} | {"prefix_matching": 1}
        sizes["layers"] = n * n_passes(shape, ranking.layers_by, n_layers)
        run.total = sum(sizes[name] for name in needed) or 1
        for name in needed:
            label, size = f"ranking {RANKED[name]}", sizes[name]
            yield Progress(0, size, None, label, True, share=run.done / run.total)  # the first step may take long
            part: Measurement[Any]
            if name == "prefix_matching":
                part = induction(target).map(lambda scores: scores.mean["prefix_matching"])
            elif name == "layers":
                part = layer_order(target, questions, ranking.layers_by, n_layers, ranking.seed)
            else:
                assert questions is not None
                part = importance(target, questions, ranking.what("heads" if name == "heads" else "ffns"))
            result = replace(result, **{name: (yield from run.part(part, size, label, counts=False))})
        return result

    return composed(target, ("evidence", task, ranking, *needed, n_layers, data_dir), body)


def orders_of(
    target: Target, pruning: Pruning, data_dir: str | Path | None = None, rendered: RenderedQuestions | None = None
) -> Measurement[Orders]:
    """Returns the Orders that the levels of `pruning` need; `rendered` as for `evidence`."""
    wanted, n_layers = pruning.missing(Evidence()), pruning.n_layers_dropped
    known = evidence(target, pruning.task, pruning.ranking, wanted, n_layers, data_dir, rendered)
    return known.map(
        lambda known: None if pruning.missing(known) else orders_from(target.shape, pruning.ranking, known)
    )

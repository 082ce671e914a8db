"""Results for one head: ranks, effects of ablating it, and heads that feed it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from engine.accuracy.evaluation import Answers
from engine.composed import Gathered
from engine.heads.attention import Head
from engine.heads.circuits import Feeding, OvTokens
from engine.heads.idealized import PATTERNS, Losses, Recovered, recovered_in_questions, recovered_in_texts
from engine.heads.in_text import HeadInText, HeadOnProbe
from engine.heads.induction import VARIANTS, InductionScores
from engine.importance.rankings import order
from engine.importance.scores import Scores
from engine.measurement import StoredPart
from engine.questions.rendering import TaskSpec
from engine.shapes import ModelShape
from engine.statistics import Paired
from engine.studies.ablations import known_costs
from engine.studies.removal import AccuracyWithout, line_of
from engine.texts.incontext import MeanOverTexts
from engine.texts.tokenloss import TokenLosses


@dataclass(frozen=True)
class HeadRank:
    """A head's score by one criterion for one task, and its rank among all heads, 1 = highest."""

    what: str
    task: TaskSpec
    score: float
    rank: int
    n_heads: int


@dataclass(frozen=True)
class Portrait:
    """The results for a head so far.

    shape: of the model
    head: (layer, head)
    scores: induction scores by variant
    kinds: stored scores (L, H) of kinds of heads by criterion
    probe: its pattern on random tokens
    texts: its pattern and raised tokens by passage
    tokens, typed: tokens that it raises by its weights, of a passage and of a typed text
    feeding: heads that feed it
    losses: (with the head, without it) by passage
    answers: (with the head, without it) by task
    ideal_texts, ideal_answers: with ideal patterns (engine.heads.idealized), on passages, and by task
    importance: by criterion and task
    context: the in-context score, and its change without the head
    left: what is missing of each part; its workload is counted once it is asked for, not at every step
    failed: why a part cannot be measured
    done: names of the complete parts
    """

    shape: ModelShape
    head: Head
    scores: Mapping[str, InductionScores] = field(default_factory=dict)
    kinds: Mapping[str, np.ndarray] = field(default_factory=dict)
    probe: HeadOnProbe | None = None
    texts: Mapping[str, HeadInText] = field(default_factory=dict)
    tokens: OvTokens | None = None
    typed: OvTokens | None = None
    feeding: Feeding | None = None
    losses: Mapping[str, tuple[TokenLosses, TokenLosses]] = field(default_factory=dict)
    answers: Mapping[TaskSpec, tuple[Answers, Answers]] = field(default_factory=dict)
    ideal_texts: Losses | None = None
    ideal_answers: Mapping[TaskSpec, Mapping[str, Answers]] = field(default_factory=dict)
    importance: Mapping[tuple[str, TaskSpec], Scores] = field(default_factory=dict)
    context: tuple[MeanOverTexts, MeanOverTexts] | None = None
    left: Mapping[str, StoredPart[None]] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    done: tuple[str, ...] = ()

    def with_parts(self, known: Gathered[str, dict[str, Any]]) -> "Portrait":
        """Returns a copy with the known fields of its parts; mappings are merged."""
        changes: dict[str, Any] = {"failed": dict(known.failed)}
        for fields in (*known.partial.values(), *known.values.values()):
            for name, value in fields.items():
                changes[name] = {**changes.get(name, {}), **value} if isinstance(value, dict) else value
        left = {name: StoredPart(None, missing) for name, missing in known.missing.items()}
        done = tuple(name for name in known.values if name not in changes["failed"])
        return replace(self, **changes, left=left, done=done)

    @property
    def n_heads(self) -> int:
        return self.shape.n_heads_total

    def score(self, name: str, variant: str = VARIANTS[0]) -> float:
        """Returns one induction score of the head; nan if unknown or undefined."""
        found = self.scores.get(variant)
        return float("nan") if found is None else float(found.mean[name][self.head])

    def rank(self, name: str, variant: str = VARIANTS[0]) -> int:
        """Returns the head's rank by that score, 1 = highest; 0 if unknown or undefined."""
        mine = self.score(name, variant)
        return 0 if np.isnan(mine) else 1 + int((self.scores[variant].mean[name] > mine).sum())

    def rank_in_kind(self, name: str) -> int:
        """Returns the head's rank by a score of `kinds`, 1 = highest."""
        return 1 + int((self.kinds[name] > self.kinds[name][self.head]).sum())

    @property
    def effects(self) -> dict[TaskSpec, AccuracyWithout]:
        """The effect of ablating the head on each task."""
        return {task: line_of(full, without) for task, (full, without) in self.answers.items()}

    @property
    def costs(self) -> tuple[dict[TaskSpec, Paired], dict[TaskSpec, bool]]:
        """The change of accuracy without the head on each task, and whether it is clear."""
        removed = {task: scores for (_, task), scores in self.importance.items() if scores.is_clear is not None}
        apart = {task: effect.change for task, effect in self.effects.items()}
        return known_costs(self.head, [*(apart | removed)], removed, apart)

    @property
    def recovered(self) -> dict[TaskSpec | None, dict[str, Recovered]]:
        """By task, and under None for the built-in texts: how much of the head's effect each ideal pattern recovers."""
        found: dict[TaskSpec | None, dict[str, Recovered]] = {}
        if self.ideal_texts is not None:
            found[None] = {kind: recovered_in_texts(self.ideal_texts, kind) for kind in PATTERNS}
        for task, answers in self.ideal_answers.items():
            found[task] = {kind: recovered_in_questions(answers, kind) for kind in PATTERNS}
        return found

    @property
    def places(self) -> list[HeadRank]:
        """The head's rank by each criterion and task."""
        flat, found = self.head[0] * self.shape.n_heads + self.head[1], []
        for (what, task), scores in self.importance.items():
            least_first = order(scores.scores, scores.tie_break).tolist()
            rank = self.n_heads - least_first.index(flat)
            found.append(HeadRank(what, task, float(scores.scores[self.head]), rank, self.n_heads))
        return found

    @property
    def partners(self) -> np.ndarray | None:
        """(earlier layers, H): QK trace times previous-token score, the contributions to the head's own QK trace; None
        while either is unknown."""
        if self.feeding is None or VARIANTS[0] not in self.scores:
            return None
        return self.feeding.trace * self.scores[VARIANTS[0]].mean["previous_token"][: self.head[0]]

    @property
    def rests(self) -> float:
        """The share of its attention to the first token, over the built-in texts; nan while they are not measured."""
        return float(np.mean([seen.rests for seen in self.texts.values()])) if self.texts else float("nan")

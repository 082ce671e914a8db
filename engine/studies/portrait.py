"""What is known of one head, as numbers: its ranks, what is lost without it, what feeds it, and one sentence that says
what it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from engine.accuracy.evaluation import Answers, accuracy
from engine.composed import Gathered
from engine.heads.attention import Head
from engine.heads.composition import Feeding
from engine.heads.idealised import PATTERNS, Losses, Recovered, recovered_in_questions, recovered_in_texts
from engine.heads.in_text import HeadInText, HeadOnProbe
from engine.heads.induction import VARIANTS, InductionScores
from engine.heads.ov_tokens import OvTokens
from engine.importance.importance import Scores
from engine.importance.rankings import order
from engine.importance.rankings_of import INDUCTION_FROM
from engine.measurement import Stored, Workload
from engine.questions.requests import TaskSpec
from engine.shapes import ModelShape
from engine.statistics import Paired, change_interval, paired
from engine.texts.incontext import MeanOverTexts
from engine.texts.tokenloss import TokenLosses

CLEARLY = 0.5  # of its attention, from which a head rests on the first token


@dataclass(frozen=True)
class Effect:
    """A task with and without the head, on the same questions: accuracies 0-1, the change with its 95 % interval."""

    task: TaskSpec
    acc: float
    acc_without: float
    change: float
    low: float
    high: float
    paired: Paired


@dataclass(frozen=True)
class HeadRank:
    """Where a head stands by one criterion for one task: its score, and its rank among all heads, 1 = most."""

    what: str
    task: TaskSpec
    score: float
    rank: int
    n_heads: int


@dataclass(frozen=True)
class Portrait:
    """What is known so far. `scores` by variant; `texts` and `losses` (with the head, without it) by passage; `answers`
    (with, without) by task; `ideal_texts`, and by task `ideal_answers`, as engine.heads.idealised gives them;
    `importance` by criterion and task; `context` the in-context-learning score and its change without the head. `left`
    says of each part that is missing what there is still to read, `failed` why it cannot be had; `done` names those
    that are there whole.
    """

    shape: ModelShape
    head: Head
    scores: Mapping[str, InductionScores] = field(default_factory=dict)
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
    left: Mapping[str, Workload] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    done: tuple[str, ...] = ()

    def with_parts(self, known: Gathered[str, dict[str, Any]]) -> "Portrait":
        """With what is known of its parts: fields by name, mappings are added to."""
        changes: dict[str, Any] = {"failed": dict(known.failed)}
        for fields in (*known.partial.values(), *known.values.values()):
            for name, value in fields.items():
                changes[name] = {**changes.get(name, {}), **value} if isinstance(value, dict) else value
        left = {name: Stored(None, missing).left for name, missing in known.missing.items()}
        done = tuple(name for name in known.values if name not in changes["failed"])
        return replace(self, **changes, left=left, done=done)

    @property
    def n_heads(self) -> int:
        return self.shape.n_heads_total

    def score(self, name: str, variant: str = VARIANTS[0]) -> float:
        """One induction score of the head; nan where it is not known or undefined."""
        found = self.scores.get(variant)
        return float("nan") if found is None else float(found.mean[name][self.head])

    def rank(self, name: str, variant: str = VARIANTS[0]) -> int:
        """Of that score among all heads, 1 = highest; 0 where it is not known or undefined."""
        mine = self.score(name, variant)
        return 0 if np.isnan(mine) else 1 + int((self.scores[variant].mean[name] > mine).sum())

    @property
    def effects(self) -> list[Effect]:
        """What leaving the head out does to each task."""
        found = []
        for task, (full, without) in self.answers.items():
            change = paired(full.correct, without.correct)
            low, high = change_interval(change)
            both = accuracy(full).acc, accuracy(without).acc
            found.append(Effect(task, *both, both[1] - both[0], low, high, change))
        return found

    @property
    def recovered(self) -> dict[TaskSpec | None, dict[str, Recovered]]:
        """By task, and under None in the built-in texts: what each ideal pattern leaves of the head's effect."""
        found: dict[TaskSpec | None, dict[str, Recovered]] = {}
        if self.ideal_texts is not None:
            found[None] = {kind: recovered_in_texts(self.ideal_texts, kind) for kind in PATTERNS}
        for task, answers in self.ideal_answers.items():
            found[task] = {kind: recovered_in_questions(answers, kind) for kind in PATTERNS}
        return found

    @property
    def places(self) -> list[HeadRank]:
        """Where the head stands by each criterion and task."""
        flat, found = self.head[0] * self.shape.n_heads + self.head[1], []
        for (what, task), scores in self.importance.items():
            least_first = order(scores.scores, scores.tie_break).tolist()
            rank = self.n_heads - least_first.index(flat)
            found.append(HeadRank(what, task, float(scores.scores[self.head]), rank, self.n_heads))
        return found

    @property
    def partners(self) -> np.ndarray | None:
        """(layers before, H): QK trace times previous-token score, the parts of the head's own QK trace; None while
        either is not known."""
        if self.feeding is None or VARIANTS[0] not in self.scores:
            return None
        return self.feeding.trace * self.scores[VARIANTS[0]].mean["previous_token"][: self.head[0]]

    @property
    def rests(self) -> float:
        """Share of its attention that goes to the first token, over the built-in texts; nan where they are unread."""
        return float(np.mean([seen.rests for seen in self.texts.values()])) if self.texts else float("nan")

    @property
    def verdict(self) -> str:
        """What the head is, in one sentence, from its scores alone; "" while they are not known."""
        if VARIANTS[0] not in self.scores:
            return ""
        matching, copying = self.score("prefix_matching"), (1 + self.score("copying")) / 4  # Olsson's, as a share
        ranked = self._ranked("prefix_matching", "prefix matching")
        chance = 1 / self.scores[VARIANTS[0]].n_tokens  # share of the sample's tokens that any one of them is
        copies = f"copying {100 * copying:.0f} % (chance {100 * chance:.0f} %)"
        if matching >= INDUCTION_FROM and copying > chance:
            return f"An induction head: {ranked}; {copies}."
        if matching >= INDUCTION_FROM:
            return f"It matches prefixes but does not copy: {ranked}; {copies}."
        for name, words in (("previous_token", "previous-token"), ("duplicate_token", "duplicate-token")):
            if self.score(name) >= INDUCTION_FROM:
                return f"A {words} head: {self._ranked(name, f'{words} score')}; no induction head: {ranked}."
        if self.rests >= CLEARLY:
            rests = f"{100 * self.rests:.0f} % of its attention to plain text rests on the first token"
            return f"No induction head ({ranked}): {rests}."
        return f"No induction head, nor one for previous or duplicate tokens: {ranked}."

    def _ranked(self, name: str, words: str) -> str:
        return f"{words} {self.score(name):.2f}, rank {self.rank(name)} of {self.n_heads:,}"


def joined(portraits: Sequence[Portrait]) -> Portrait:
    """Several portraits of one head as one; of what two know the later one counts, and what any has is not left."""
    first, *rest = portraits
    for more in rest:
        changes: dict[str, Any] = {}
        for name in ("scores", "texts", "losses", "answers", "ideal_answers", "importance", "failed", "left"):
            changes[name] = {**getattr(first, name), **getattr(more, name)}
        for name in ("probe", "tokens", "typed", "feeding", "ideal_texts", "context"):
            changes[name] = getattr(more, name) or getattr(first, name)
        first = replace(first, **changes, done=tuple(dict.fromkeys((*first.done, *more.done))))
    return replace(first, left={name: left for name, left in first.left.items() if name not in first.done})

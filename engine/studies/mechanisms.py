"""What in-context learning needs: the gain of tasks from examples, without the top heads of each kind, and without as
many random ones; and how much the kinds overlap.

After Yin and Steinhardt (2502.14010): ablating one kind of heads also with the heads of the other kinds left out tells
what it does by itself. Departure: heads output 0 by default, not their mean. A loss is beyond random if it is clear,
and its paired difference to that of every random set, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache as once
from functools import cached_property, partial
from typing import Any

import numpy as np

from engine.accuracy.evaluation import Answers, evaluation
from engine.accuracy.restarts import first_changed, under_each
from engine.composed import ComposedRun, composed
from engine.errors import Canceled, HeadroomError, UsageError, refuse_unknown
from engine.heads.fills import FILLS, filled_evaluation
from engine.importance.criteria import CRITERIA
from engine.importance.rankings import aggregate, agreement, order
from engine.importance.scores import OF_ALL_TASKS, importance
from engine.measurement import Measurement, Workload
from engine.models.masks import Mask
from engine.models.session import Target
from engine.progress import Progress
from engine.questions.rendering import CHUNK, Questions, TaskSpec
from engine.questions.tasks import task_info
from engine.shapes import ModelShape
from engine.statistics import Z_95
from engine.studies.removal import drawn_heads, without
from engine.studies.surveys import SurveySettings
from engine.timing.workload import all_characters

KINDS = {  # the criterion of each kind of heads
    "induction": "prefix",
    "concept": "concept-matching",
    "function vector": "function-vector",
    "retrieval": "retrieval",
    "importance": "gradient",
}
SOON = ("induction", "retrieval", "importance")  # kinds whose heads are scored first: one pass for each prompt
OF_DEMO, OF_PAIRS = ("demo_outfit", "demo_translation"), ("pairs_plural", "pairs_past")  # tasks by default
N_ASKED = 48  # questions per task by default
FULL, RANDOM = "full model", "random"
SHARES = (50, 100)  # permille of all heads
N_RANDOM, N_OF_DEMO = 3, 8  # random sets for each share: three answer in minutes on a real model
TOP_TEN = 100  # permille, for overlaps
LATE, MOST_S = 0.25, 60.0  # share of the layers that late heads leave alone; seconds until something is stored


@dataclass(frozen=True)
class MechanismSettings:
    """Settings: `tasks` at `shots` examples and at 0; the `shares` of heads removed, in permille; the `kinds`;
    `excludes`: also without the other kinds' heads; `n_random` random sets per share; `fill`: what removed heads
    output, one of FILLS; `labels`: of the examples (engine.questions.labels). UsageError: invalid settings."""

    tasks: tuple[str, ...]
    shots: int = 5
    shares: tuple[int, ...] = SHARES
    kinds: tuple[str, ...] = tuple(KINDS)
    excludes: bool = False
    n_random: int = N_RANDOM
    fill: str = "zero"
    labels: str = "true"

    def __post_init__(self) -> None:
        refuse_unknown("fill", self.fill, FILLS)
        if unknown := [kind for kind in self.kinds if kind not in KINDS]:
            raise UsageError(f"kind {unknown[0]!r} is unknown; choose some of {', '.join(KINDS)}")
        if not self.tasks or not self.kinds or not self.shares:
            raise UsageError("no task, kind, or share is chosen; choose one or more of each")
        if self.shots < 1:
            raise UsageError("0 examples give nothing to lose; choose 1 or more")

    @property
    def specs(self) -> list[TaskSpec]:
        """The tasks with examples, each followed by itself without."""
        return [TaskSpec(name, shots, labels=self.labels) for name in self.tasks for shots in (self.shots, 0)]

    @property
    def n_sets(self) -> int:
        """How many sets of heads are measured, the empty one included."""
        return self.n_sets_of(len(self.kinds))

    def n_sets_of(self, n_kinds: int) -> int:
        """Returns the same if so many kinds can be scored; one alone has no others to leave out."""
        return 1 + len(self.shares) * (n_kinds * (1 + (self.excludes and n_kinds > 1)) + self.n_random)


@dataclass(frozen=True)
class RemovedHeads:
    """Heads that are removed together, by flat index: the top `share` (permille) of a `kind`, without those of the
    other kinds if it `excludes` them; of RANDOM a `draw`; of FULL none."""

    kind: str
    share: int = 0
    excludes: bool = False
    draw: int = 0
    heads: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        return FULL if self.kind == FULL else f"without {self.kind} heads"


@dataclass(frozen=True)
class LostGain:
    """The gain from examples that is lost, in points of accuracy, with its 95% interval: a mean over tasks of a mean
    over the same questions with and without examples and heads."""

    points: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Mechanisms:
    """The results so far.

    settings: the settings
    scores: (L, H) by kind
    answered: which questions are answered right, by set of heads and task, each (2, n) bool: with examples and without
    failed: why a kind could not be scored
    """

    settings: MechanismSettings
    scores: Mapping[str, np.ndarray] = field(default_factory=dict)
    answered: Mapping[RemovedHeads, Mapping[str, np.ndarray]] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def full(self) -> Mapping[str, np.ndarray]:
        """The answers of the full model; none before they are measured."""
        return self.answered.get(RemovedHeads(FULL), {})

    @property
    def gain(self) -> float:
        """What examples add to the accuracy of the full model, in points: a mean over tasks."""
        gains = [100 * (right[0].mean() - right[1].mean()) for right in self.full.values()]
        return float(np.mean(gains)) if gains else math.nan

    def lost(self, removed: RemovedHeads, instead: RemovedHeads | None = None) -> LostGain:
        """Returns the gain lost without some heads; with `instead`, how much more is lost than without those."""
        before = self.full if instead is None else self.answered[instead]
        by_task = [_gains(before[name]) - _gains(right) for name, right in self.answered[removed].items()]
        return mean_of_tasks(by_task)

    def at_random(self, share: int) -> tuple[float, float]:
        """Returns the smallest and largest gain lost without random heads, in points; nan before they are measured."""
        points = [self.lost(each).points for each in self.answered if each.kind == RANDOM and each.share == share]
        return (min(points), max(points)) if points else (math.nan, math.nan)

    def beyond_random(self, removed: RemovedHeads) -> bool:
        """Whether the loss is clear, and clearly larger, on the same questions, than that of every random set, all of
        which are measured."""
        drawn = [each for each in self.answered if each.kind == RANDOM and each.share == removed.share]
        if len(drawn) < self.settings.n_random:
            return False
        return all(self.lost(removed, instead).low > 0 for instead in (None, *drawn))

    @property
    def is_complete(self) -> bool:
        """Whether all sets of the kinds that can be scored are measured."""
        return len(self.answered) == self.settings.n_sets_of(len(self.settings.kinds) - len(self.failed))

    def rows(self, shape: ModelShape) -> list[dict[str, Any]]:
        """Returns one row per set of heads but the empty one: kind, share (0-1), exclusive, draw, points lost with
        their interval, the range of the random sets of as many heads, n_heads, whether the loss is beyond random, the
        mean of the heads' scores of their kind, and the heads' names."""
        found = []
        for each in self.answered:
            if each.kind == FULL:
                continue
            lost, (low, high) = self.lost(each), self.at_random(each.share)
            found.append({
                "kind": each.kind, "share": each.share / 1000, "exclusive": each.excludes, "draw": each.draw,
                "points_lost": lost.points, "low": lost.low, "high": lost.high, "random_low": low, "random_high": high,
                "n_heads": len(each.heads), "beyond_random": each.kind != RANDOM and self.beyond_random(each),
                "score": float(self.scores[each.kind].ravel()[[*each.heads]].mean()) if each.kind != RANDOM else None,
                "heads": " ".join(shape.head_names[head] for head in each.heads),
            })  # fmt: skip
        return found


def mean_of_tasks(by_task: Sequence[np.ndarray]) -> LostGain:
    """Returns the mean, in points, of the means of each task's differences (n,), with a 95% interval. As in
    `engine.statistics.Paired` one question is added that gains and one that loses, so that a small sample without any
    change does not count as certain."""
    variance = 0.0
    for each in by_task:
        more = np.concatenate([each, [1.0, -1.0]])
        variance += more.var(ddof=1) / len(more)
    middle = 100 * float(np.mean([each.mean() for each in by_task]))
    half = 100 * Z_95 * math.sqrt(variance) / len(by_task)
    return LostGain(middle, middle - half, middle + half)


def mechanisms(target: Target, setting: SurveySettings, settings: MechanismSettings) -> Measurement[Mechanisms]:
    """Returns the Mechanisms so far; kinds that cannot be scored are listed with the reason."""

    def body(run: ComposedRun) -> Generator[Progress[Any], None, Mechanisms]:
        questions = {spec: setting.validation_questions(spec, run.session.store) for spec in settings.specs}
        ranked = once(lambda spec: setting.train_questions(spec, run.session.store))  # the same for every set of heads
        size = sum(each.n for each in questions.values())
        run.total = size * (settings.n_sets + len(settings.kinds))
        found = yield from _scored(run, target, setting, settings, size)
        if len(found.scores) + len(found.failed) < len(settings.kinds):
            run.expect("sets of heads", lambda: _answering(questions.values()).times(settings.n_sets))
            return found
        sets, together = sets_of_heads(target.shape, settings, found.scores), set[tuple[TaskSpec, Mask]]()
        if run.measures and settings.fill == "zero":
            together = yield from _late_heads(run, target, questions, sets)
        for removed in sorted(sets, key=lambda each: (each.kind != FULL, each.excludes, -each.share)):
            right = yield from _right(run, target, ranked, settings.fill, questions, removed, together)
            answered = found.answered if right is None else {**found.answered, removed: right}
            found = replace(found, answered={each: answered[each] for each in sets if each in answered})
            yield run.so_far(found, removed.label)
        return found

    return composed(target, ("mechanisms", setting, settings), body)


def sets_of_heads(
    shape: ModelShape, settings: MechanismSettings, scores: Mapping[str, np.ndarray]
) -> list[RemovedHeads]:
    """Returns the sets in the order of results: none, then for each share the top heads of each kind and random ones,
    then those without the other kinds' heads. The largest share is measured first. Equal scores are ordered by
    position; at least one head."""
    found, ranked = [RemovedHeads(FULL)], {kind: order(-each).tolist() for kind, each in scores.items()}
    counts = {share: max(1, share * shape.n_heads_total // 1000) for share in settings.shares}
    for share, count in counts.items():
        found += [RemovedHeads(kind, share, heads=tuple(heads[:count])) for kind, heads in ranked.items()]
        for draw in range(settings.n_random):
            drawn = drawn_heads(np.arange(shape.n_heads_total), count, (share, draw))
            found.append(RemovedHeads(RANDOM, share, draw=draw, heads=drawn))
    for share, count in counts.items() if settings.excludes and len(ranked) > 1 else ():
        for kind, heads in ranked.items():
            others = {head for other, best in ranked.items() if other != kind for head in best[:count]}
            left = [head for head in heads if head not in others][:count]
            found.append(RemovedHeads(kind, share, True, heads=tuple(left)))
    return found


def overlaps(shape: ModelShape, scores: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """Returns one row for every two kinds: `a`, `b`, heads in the top TOP_TEN (permille) of both (`shared`) of `n`, and
    Spearman's rho of their scores (`srcc`)."""
    kinds, count = list(scores), max(1, TOP_TEN * shape.n_heads_total // 1000)
    if len(kinds) < 2:
        return []
    top = {kind: {*order(-each)[:count].tolist()} for kind, each in scores.items()}
    srcc = agreement(scores, permutations=0).srcc
    return [
        {"a": a, "b": b, "shared": len(top[a] & top[b]), "n": count, "srcc": float(srcc[i, j])}
        for i, a in enumerate(kinds)
        for j, b in enumerate(kinds)
        if i < j
    ]


def depths(shape: ModelShape, scores: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Returns the mean depth of the top TOP_TEN (permille) of each kind: 0 = the first layer, 1 = the last."""
    count = max(1, TOP_TEN * shape.n_heads_total // 1000)
    return {
        kind: float((order(-each)[:count] // shape.n_heads).mean() / max(1, shape.n_layers - 1))
        for kind, each in scores.items()
    }


def _gains(right: np.ndarray) -> np.ndarray:
    return right[0].astype(float) - right[1]


def _scored(
    run: ComposedRun, target: Target, setting: SurveySettings, settings: MechanismSettings, size: int
) -> Generator[Progress[Any], None, Mechanisms]:
    """Returns the scores of each kind so far, and why others could not be scored; those of SOON are measured first.
    Each kind takes `size` of the progress."""
    mechanisms = Mechanisms(settings)
    for kind in sorted(settings.kinds, key=lambda kind: kind not in SOON):
        end = run.done + size
        try:
            scores = yield from _scores(run, target, setting, settings, kind, size)
            by_kind = mechanisms.scores if scores is None else {**mechanisms.scores, kind: scores}
            mechanisms = replace(mechanisms, scores={each: by_kind[each] for each in settings.kinds if each in by_kind})
        except Canceled:
            raise
        except HeadroomError as error:
            mechanisms = replace(mechanisms, failed={**mechanisms.failed, kind: str(error)})
        run.done = end
        yield run.so_far(mechanisms, f"{kind} scores")
    return mechanisms


def _scores(
    run: ComposedRun, target: Target, setting: SurveySettings, settings: MechanismSettings, kind: str, size: int
) -> Generator[Progress[Any], None, np.ndarray | None]:
    """Returns (L, H), or None if something is missing: of a score that depends on the task, the mean of the tasks'
    shares of their total."""
    what = CRITERIA[KINDS[kind]].heads
    tasks = settings.tasks[:1] if what in OF_ALL_TASKS else settings.tasks
    found = dict[str, np.ndarray]()
    for name in tasks:
        questions = setting.train_questions(TaskSpec(name, settings.shots, labels=settings.labels), run.session.store)
        wanted = importance(target, questions, what)
        known = yield from run.part(wanted, size // len(tasks), f"{kind} scores")
        found |= {} if known is None else {name: known.scores}
    if len(found) < len(tasks):
        return None
    scores = aggregate(found, "shares" if len(tasks) > 1 else "scores")
    if not np.ptp(scores):  # retrieval, if the model copies nothing
        raise HeadroomError(f"all heads score {scores.flat[0]:g}, so there is no top; leave this kind out")
    return scores


def _right(
    run: ComposedRun,
    target: Target,
    ranked: Callable[[TaskSpec], Questions],
    fill: str,
    questions: Mapping[TaskSpec, Questions],
    removed: RemovedHeads,
    together: Collection[tuple[TaskSpec, Mask]],
) -> Generator[Progress[Any], None, dict[str, np.ndarray] | None]:
    """Returns (2, n) by task, or None if answers are missing; the same questions with examples and without. `together`:
    as from `_late_heads`."""
    mask, answers = without(target.shape, removed.heads), dict[TaskSpec, Answers]()
    for spec, each in questions.items():
        wanted = filled_evaluation(target, each, partial(ranked, spec), mask, fill)
        size = 0 if (spec, mask) in together else each.n
        known = yield from run.part(wanted, size, f"{task_info(spec.name).title}, {removed.label}")
        answers |= {} if known is None else {spec: known}
    if len(answers) < len(questions):
        return None
    found, specs = {}, list(questions)
    for few, zero in zip(specs[::2], specs[1::2], strict=True):
        by_id = [
            dict(zip((question.doc_id for question in each.questions), each.correct.tolist(), strict=True))
            for each in (answers[few], answers[zero])
        ]
        shared = [number for number in by_id[0] if number in by_id[1]]
        found[few.name] = np.array([[each[number] for number in shared] for each in by_id], bool)
    return found


def _late_heads(
    run: ComposedRun, target: Target, questions: Mapping[TaskSpec, Questions], sets: Sequence[RemovedHeads]
) -> Generator[Progress[Any], None, set[tuple[TaskSpec, Mask]]]:
    """Measures the full model and the sets whose heads all lie late, for which the layers before are computed once.
    Returns what was measured. A chunk is stored only after all of these sets, so a slow model answers set by set."""
    masks, together = [without(target.shape, each.heads) for each in sets], set[tuple[TaskSpec, Mask]]()
    late = [mask for mask in dict.fromkeys(masks) if first_changed(mask, masks[0]) >= LATE * target.shape.n_layers]
    for spec, each in questions.items():
        wanted = [mask for mask in late if evaluation(target, each, mask).stored(run.session) is None]
        a_chunk = Workload({"forward": all_characters(each) * len(wanted) * CHUNK / max(CHUNK, each.n)})
        if len(wanted) > 2 and a_chunk.seconds_by_size(run.session.store, target) < MOST_S:
            label = f"{task_info(spec.name).title}, full model and late heads"
            yield from run.part(under_each(target, each, wanted), each.n * len(wanted), label)
            together |= {(spec, mask) for mask in wanted}
    return together


def _answering(questions: Any) -> Workload:
    return Workload({"forward": float(sum(all_characters(each) for each in questions))})

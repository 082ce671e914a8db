"""Accuracy over many masks: tasks x shot counts x pruning levels x rankings, in one run that resumes where it stopped.

Everything measured is stored by its own content, so two sweeps that share a mask share the work.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from cache import Store
from engine.accuracy.evaluation import Answers, accuracy, evaluation
from engine.errors import Cancelled, HeadroomError, UsageError
from engine.heads.induction import induction
from engine.importance.criteria import pass_of
from engine.importance.importance import importance
from engine.importance.rankings import n_pruned, order
from engine.importance.rankings_of import (
    INDUCTION_SEED,
    NEEDS,
    OF_MANY_TASKS,
    OF_OTHERS,
    Evidence,
    Orders,
    Ranking,
    orders_from,
)
from engine.models.masks import Mask
from engine.models.rates import Pass, seconds_for, together_s
from engine.models.subject import Lab, Subject
from engine.progress import Progress, last_value
from engine.questions.amounts import all_characters
from engine.questions.requests import TaskSpec
from engine.shapes import ModelShape
from engine.statistics import paired
from engine.studies.surveys import Setting, Survey, in_words, survey, together


@dataclass(frozen=True)
class Point:
    """One accuracy to measure: a task, two levels, and whose importance says what goes first.

    `by` is one of engine.importance.rankings_of.OF_MANY_TASKS, always at the same shot count: `own`, this task's
    importance, and what else takes one task alone; `task`, that of the task `of`; `aggregate` over the sweep's tasks;
    `others`, the aggregate without this task; `rescored`: own, but measured anew on what is left before each of the
    sweep's levels, which Bansal et al. name as future work. `seed` is that of `random` and `within-layers`.
    """

    task: TaskSpec
    heads_permille: int
    ffns_permille: int
    by: str = "own"
    of: str = ""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.by not in OF_MANY_TASKS:
            raise UsageError(f"ranking {self.by!r} is unknown; choose one of {', '.join(OF_MANY_TASKS)}")

    def permille(self, axis: str) -> int:
        """The level of `heads` or `ffns`."""
        return self.heads_permille if axis == "heads" else self.ffns_permille


@dataclass(frozen=True)
class Row:
    """What was measured at a point: `acc` with Wilson's 95 % interval, and against the full model on the same questions
    how many were gained and lost, with the exact McNemar p."""

    point: Point
    n: int
    acc: float
    low: float
    high: float
    chance: float
    n_heads_pruned: int
    n_ffns_pruned: int
    gained: int
    lost: int
    p_mcnemar: float

    def cells(self) -> dict[str, Any]:
        """The row of a table."""
        point, rest = self.point, asdict(self)
        del rest["point"]
        return {"task": point.task.name, "shots": point.task.shots, "heads": point.heads_permille / 1000,
                "ffns": point.ffns_permille / 1000, "by": point.by, "of": point.of, "seed": point.seed,
                **rest}  # fmt: skip


@dataclass(frozen=True)
class Swept:
    """Rows so far, in the order of the points, and for tasks that could not be measured the reason. `left`: how much is
    still to be read for the others, in characters by kind of pass; told where nothing is computed."""

    rows: tuple[Row, ...] = ()
    failed: Mapping[TaskSpec, str] = field(default_factory=dict)
    left: Mapping[Pass, float] = field(default_factory=dict, compare=False)

    def takes_s(self, store: Store, subject: Subject) -> float | None:
        """Seconds that what is left would take here; None while that is not known."""
        return together_s(seconds_for(store, subject, kind, characters) for kind, characters in self.left.items())


def points(
    tasks: Sequence[TaskSpec], heads: Sequence[int], ffns: Sequence[int], by: str = "own", of: str = "", seed: int = 0
) -> list[Point]:
    """Every task at every pair of levels, in permille."""
    return [Point(task, h, f, by, of, seed) for task in tasks for h in heads for f in ffns]


def sweep(
    lab: Lab, setting: Setting, wanted: Sequence[Point], pool: Sequence[str], compute: bool = True
) -> Iterator[Progress[Swept]]:
    """Yields Progress, its value the Swept so far; what is stored is not computed again, and only that is read where
    `compute` is False. `pool` names the tasks that aggregates are made of."""
    subject, all_cached = lab.subject(setting.spec, setting.bos), True
    wanted, failed = ranked_by_some(wanted, pool)
    tasks_of = scores_needed(setting, subject.shape, wanted, pool)
    costs = {what: len(tasks) * setting.cost(subject.shape, what) for what, tasks in tasks_of.items()}
    done, total, known = 0, sum(costs.values()) + len(wanted) * setting.n_judges, {}
    left: dict[Pass, float] = {"forward": 0.0, "gradient": 0.0, "patterns": 0.0}
    for what, tasks in tasks_of.items():
        known[what] = Survey()
        for step in survey(lab, setting, tasks, what, compute):
            known[what] = step.value or known[what]
            all_cached &= step.cached
            yield step.within(done, total)
        done += costs[what]
        failed |= known[what].failed
        left[pass_of(what)] += sum(known[what].left.values())
    if any("prefix_matching" in evidence_needed(subject.shape, point) for point in wanted):
        scores = induction(subject, "olsson", INDUCTION_SEED).stored(lab)
        if scores is None and compute:
            all_cached = False
            steps = induction(subject, "olsson", INDUCTION_SEED).run(lab)
            scores = yield from last_value(steps, done, total, 0, "induction scores")
        known["prefix_matching"] = None if scores is None else scores.mean["prefix_matching"]
    ready = _Ready(lab, subject, setting, pool, known, compute, left)
    rows: dict[Point, Row] = {}
    tasks = list(dict.fromkeys(point.task for point in wanted))
    for task in tasks:
        mine = [point for point in wanted if point.task == task]
        try:
            for step in _task(ready, task, mine, rows):
                all_cached = False
                yield step.within(done, total)
        except Cancelled:
            raise
        except HeadroomError as error:
            failed[task] = str(error)
        done += len(mine) * setting.n_judges
        ordered = tuple(rows[point] for point in wanted if point in rows)
        found = Swept(ordered, dict(failed), {} if compute else dict(left))
        yield Progress(done, total, found, in_words(task), all_cached)
    if not tasks:
        yield Progress(total, total, Swept((), dict(failed)), cached=all_cached)


def ranked_by_some(wanted: Sequence[Point], pool: Sequence[str]) -> tuple[list[Point], dict[TaskSpec, str]]:
    """The points whose ranking is made of some task; for the tasks of the others the reason."""
    alone = [point for point in wanted if point.by in OF_OTHERS and not sources_of(point, pool)]
    failed = {point.task: f"{in_words(point.task)}: there is no task to rank by; add others" for point in alone}
    return [point for point in wanted if point not in alone], failed


@dataclass(frozen=True)
class _Ready:
    """What the points of a sweep have in common, once what ranks them is known: the Survey of each score, and where it
    is needed `prefix_matching`. What is missing is added to `left`, as in `Swept`."""

    lab: Lab
    subject: Subject
    setting: Setting
    pool: Sequence[str]
    known: Mapping[str, Any]
    compute: bool
    left: dict[Pass, float]

    def orders(self, point: Point) -> Orders | None:
        """The orders of a point's ranking; None where something it needs is not known."""
        evidence = {name: self._evidence(point, name) for name in evidence_needed(self.subject.shape, point)}
        if any(each is None for each in evidence.values()):
            return None
        return orders_from(self.subject.shape, Ranking(point.by, point.seed), Evidence(**evidence))

    def _evidence(self, point: Point, name: str) -> Any:
        if name == "prefix_matching":
            return self.known[name]
        sources, survey = sources_of(point, self.pool), self.known[_score_of(self.setting, point, name)]
        found = {task: survey.scores[task] for task in sources if task in survey.scores}
        if not found or any(task not in found and task not in survey.failed for task in sources):
            return None
        return together(self.setting, found) if len(found) > 1 else next(iter(found.values()))


def evidence_needed(shape: ModelShape, point: Point) -> list[str]:
    """What the point's ranking needs to know; at no or full pruning nothing."""
    n = {"heads": shape.n_heads_total, "ffns": shape.n_layers}
    some = {axis: 0 < n_pruned(point.permille(axis), n[axis]) < n[axis] for axis in n}
    return [name for name in NEEDS[point.by] if some["ffns" if name == "ffns" else "heads"]]


def _score_of(setting: Setting, point: Point, name: str) -> str:
    """The score that the point's ranking takes of `heads` or `ffns`."""
    ranking = Ranking(point.by, heads_by=setting.heads_by, ffns_by=setting.ffns_by)
    return ranking.what("heads" if name == "heads" else "ffns")


def scores_needed(
    setting: Setting, shape: ModelShape, wanted: Sequence[Point], pool: Sequence[str]
) -> dict[str, list[TaskSpec]]:
    """For each score that the points' rankings take the tasks of which it is needed, those of heads first."""
    needed: dict[str, dict[TaskSpec, None]] = {}
    for name in ("heads", "ffns"):
        for point in wanted:
            if name in evidence_needed(shape, point):
                tasks = needed.setdefault(_score_of(setting, point, name), {})
                tasks |= dict.fromkeys(sources_of(point, pool))
    return {what: list(tasks) for what, tasks in needed.items()}


def sources_of(point: Point, pool: Sequence[str]) -> list[TaskSpec]:
    """The tasks whose importance ranks a point's components."""
    if point.by not in OF_OTHERS:
        return [point.task]
    names = [point.of] if point.by == "task" else pool
    return [replace(point.task, name=name) for name in names if point.by != "others" or name != point.task.name]


def _task(ready: _Ready, task: TaskSpec, mine: Sequence[Point], rows: dict[Point, Row]) -> Iterator[Progress[Any]]:
    """Measures the points of one task into `rows`."""
    lab, subject, n = ready.lab, ready.subject, ready.setting.n_judges
    questions, total = ready.setting.judged(task, lab.store), len(mine) * n
    answers: dict[Mask, Answers] = {}
    characters, read = all_characters(questions), {}
    full = Mask.full(subject.shape)
    levels = sorted({point.heads_permille for point in mine if point.by == "rescored"})
    anew = yield from _scored_anew(ready, task, levels, total)
    for number, point in enumerate(mine):
        orders = ready.orders(point)
        if orders is not None and point.by == "rescored":
            heads = anew.get(point.heads_permille)
            orders = None if heads is None else replace(orders, heads=heads)
        if orders is None:
            ready.left["forward"] += characters * (1 - (point.heads_permille + 2 * point.ffns_permille) / 3000)
            continue
        mask = orders.mask(point.heads_permille, point.ffns_permille)
        for each in (full, mask):
            if each not in answers:
                wanted = evaluation(subject, questions, each, by_pace=False)
                found = wanted.stored(lab)
                if found is None and ready.compute:
                    steps = wanted.run(lab)
                    found = yield from last_value(steps, number * n, total, label=in_levels(point))
                if found is not None:
                    answers[each] = found
                else:
                    read[each] = wanted.left(lab).characters["forward"]
        if full in answers and mask in answers:
            rows[point] = _row(point, mask, answers[full], answers[mask], questions.requests.chance)
    ready.left["forward"] += sum(read.values())


def _scored_anew(
    ready: _Ready, task: TaskSpec, levels: Sequence[int], total: int
) -> Generator[Progress[Any], None, dict[int, np.ndarray]]:
    """Order of heads at each of the rising levels, as far as it is known: before each, what is left is scored anew."""
    shape, setting = ready.subject.shape, ready.setting
    kept, gone, orders = np.ones(shape.n_heads_total, bool), [], {}
    for level in levels:
        more = n_pruned(level, kept.size) - len(gone)
        if 0 < more < kept.sum():  # where none or all go, it does not matter which first
            mask = Mask.from_arrays(kept.reshape(shape.n_layers, shape.n_heads), np.ones(shape.n_layers, bool))
            about = (ready.lab, ready.subject, setting.ranked(task, ready.lab.store), setting.heads_by, mask)
            scores = importance(*about[1:]).stored(about[0])
            if scores is None and ready.compute:
                label = f"{in_words(task)}, scored anew for {level / 10:g} %"
                scores = yield from last_value(importance(*about[1:]).run(about[0]), 0, total, 0, label)
            if scores is None:
                read = all_characters(about[2], gradients=True, every_choice=setting.heads_by == "gate")
                ready.left[pass_of(setting.heads_by)] += read * sum(each >= level for each in levels)
                break
            gone += [head for head in order(scores.scores, scores.tie_break) if kept[head]][:more]
            kept[gone] = False
        orders[level] = np.array([*gone, *np.flatnonzero(kept)])
    return orders


def in_levels(point: Point) -> str:
    """Such as "piqa, 0 shots, 30 % heads, 0 % FFNs"."""
    by = {"own": "", "task": f" by {point.of}"}.get(point.by, f" by {point.by}")
    return f"{in_words(point.task)}, {point.heads_permille / 10:g} % heads, {point.ffns_permille / 10:g} % FFNs{by}"


def _row(point: Point, mask: Mask, full: Answers, pruned: Answers, chance: float) -> Row:
    result, change = accuracy(pruned), paired(full.correct, pruned.correct)
    return Row(point, result.n, result.acc, result.ci_low, result.ci_high, chance, mask.n_heads_pruned,
               mask.n_ffns_pruned, change.gained, change.lost, change.p_mcnemar)  # fmt: skip

"""Accuracy over many masks: tasks x shot counts x pruning levels x rankings, in one run that resumes where it stopped.

Results are stored by their content, so two sweeps that share a mask share the work.
"""

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from engine.accuracy.confidence import sure_and_error
from engine.accuracy.evaluation import Answers, accuracy, evaluation
from engine.composed import ComposedRun, Gathered, composed, every
from engine.errors import Canceled, HeadroomError, refuse_unknown
from engine.heads.induction import induction
from engine.importance.orders import OF_MANY_TASKS, Orders, Ranking, orders_from
from engine.importance.rankings import n_pruned, order
from engine.importance.rules import RULES, Evidence
from engine.importance.scores import importance
from engine.measurement import Measurement, Workload
from engine.models.masks import Mask
from engine.models.session import Session, Target
from engine.progress import Progress
from engine.questions.rendering import TaskSpec
from engine.shapes import ModelShape
from engine.statistics import paired
from engine.studies.surveys import Survey, SurveySettings, describe_task, survey, together
from engine.timing.workload import all_characters


@dataclass(frozen=True)
class Point:
    """One accuracy to measure.

    task: the task
    heads_permille, ffns_permille: levels of heads and FFNs
    by: the ranking, one of engine.importance.orders.OF_MANY_TASKS, always at the task's shot count
    of: the other task, for `task`
    seed: of `random` and `within-layers`
    """

    task: TaskSpec
    heads_permille: int
    ffns_permille: int
    by: str = "own"
    of: str = ""
    seed: int = 0

    def __post_init__(self) -> None:
        refuse_unknown("ranking", self.by, OF_MANY_TASKS)

    def permille(self, axis: str) -> int:
        """Returns the level of `heads` or `ffns`."""
        return self.heads_permille if axis == "heads" else self.ffns_permille


@dataclass(frozen=True)
class SweepRow:
    """The result at a point.

    point: the point
    n: questions
    acc: accuracy, 0-1
    low, high: Wilson's 95% interval
    chance: accuracy of guessing
    n_heads_pruned, n_ffns_pruned: pruned components
    gained, lost: questions gained and lost against the full model
    p_mcnemar: exact McNemar p of gained against lost
    confidence: the mean probability of the answers, nan without choices
    ece: expected calibration error, 0-1, nan without choices
    """

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
    confidence: float = math.nan
    ece: float = math.nan

    def cells(self) -> dict[str, Any]:
        """Returns a table row, without the confidence."""
        point, rest = self.point, asdict(self)
        del rest["point"], rest["confidence"], rest["ece"]
        return {"task": point.task.name, "shots": point.task.shots, "heads": point.heads_permille / 1000,
                "ffns": point.ffns_permille / 1000, "by": point.by, "of": point.of, "seed": point.seed,
                **rest}  # fmt: skip


@dataclass(frozen=True)
class Swept:
    """Rows so far, in the order of the points, and the reason for each task that could not be measured."""

    rows: tuple[SweepRow, ...] = ()
    failed: Mapping[TaskSpec, str] = field(default_factory=dict)


_Curve = tuple[TaskSpec, str]  # a task, and the ranking


def points(
    tasks: Sequence[TaskSpec], heads: Sequence[int], ffns: Sequence[int], by: str = "own", of: str = "", seed: int = 0
) -> list[Point]:
    """Returns every task at every pair of levels, in permille."""
    return [Point(task, h, f, by, of, seed) for task in tasks for h in heads for f in ffns]


def sweep(target: Target, setting: SurveySettings, wanted: Sequence[Point], pool: Sequence[str]) -> Measurement[Swept]:
    """Returns the Swept of these points; `pool` names the tasks in aggregates. Curves, each of one task by one ranking,
    are measured one after the other, in the order of the points."""
    some, unranked = ranked_by_some(wanted, pool)
    needed = scores_needed(setting, target.shape, some, pool)
    matches = any("prefix_matching" in evidence_needed(target.shape, point) for point in some)
    curves = dict[_Curve, list[Point]]()
    for point in some:
        curves.setdefault((point.task, point.by), []).append(point)
    costs = {what: len(tasks) * setting.cost(target.shape, what) for what, tasks in needed.items()}

    def size(curve: _Curve) -> int:
        return len(curves[curve]) * setting.n_validation

    def body(run: ComposedRun) -> Generator[Progress[Any], None, Swept]:
        run.total = (sum(costs.values()) + sum(map(size, curves))) or 1
        early = yield from _first_curve(run, target, setting, pool, needed, curves)
        known = {what: Survey() for what in needed}
        for what, tasks in needed.items():
            known[what] = (yield from run.known(survey(target, setting, tasks, what), costs[what])) or Survey()
        induced = None
        if matches:
            induced = yield from run.part(induction(target), 0, "induction scores")
        ready = _Ready(target, setting, pool, known, None if induced is None else induced.mean["prefix_matching"])
        failed = dict(unranked)
        for each in known.values():
            failed |= each.failed
        parts = {curve: partial(_rows, ready, curve[0], points) for curve, points in curves.items()}

        def swept(rows: Gathered[_Curve, dict[Point, SweepRow]]) -> Swept:
            of = early | {
                point: row for each in (*rows.values.values(), *rows.partial.values()) for point, row in each.items()
            }
            reasons = failed | {task: reason for (task, _), reason in rows.failed.items()}
            return Swept(tuple(of[point] for point in some if point in of), reasons)

        steps = run.steps(every(target, ("rows",), parts, size, lambda curve: "").map(swept), sum(map(size, curves)))
        return (yield from steps).value or Swept((), failed)

    return composed(target, ("sweep", setting, *wanted, *pool), body)


def _first_curve(
    run: ComposedRun,
    target: Target,
    setting: SurveySettings,
    pool: Sequence[str],
    needed: Mapping[str, Sequence[TaskSpec]],
    curves: Mapping[_Curve, Sequence[Point]],
) -> Generator[Progress[Any], None, dict[Point, SweepRow]]:
    """Measures the scores and then the curve of the first task, if that has a ranking of its own, before the scores of
    other tasks, so that it can be drawn soon; returns its rows. Everything is stored, and read again in its turn."""
    (task, by), mine = next(iter(curves.items()), ((None, ""), ()))
    if task is None or by != "own" or len(curves) < 2 or not run.measures:
        return {}
    surveys = dict[str, Survey]()
    for what, tasks in needed.items():
        surveys[what] = Survey()
        if task in tasks:
            cost = setting.cost(target.shape, what)
            run.total += cost
            surveys[what] = (yield from run.known(survey(target, setting, [task], what), cost)) or Survey()
    try:
        rows = _rows(_Ready(target, setting, pool, surveys, None), task, mine, run.session)
        size = len(mine) * setting.n_validation
        run.total += size
        steps = run.steps(rows.map(lambda by_point: Swept(tuple(by_point.values()))), size)
        swept = (yield from steps).value or Swept()
    except Canceled:
        raise
    except HeadroomError:  # the task fails in its turn
        swept = Swept()
    return {row.point: row for row in swept.rows}


def ranked_by_some(wanted: Sequence[Point], pool: Sequence[str]) -> tuple[list[Point], dict[TaskSpec, str]]:
    """Returns the points whose ranking has a task to rank by, and the reason for the tasks of the others."""
    alone = [point for point in wanted if not sources_of(point, pool)]
    failed = {point.task: f"{describe_task(point.task)}: no other task to rank by; add other tasks" for point in alone}
    return [point for point in wanted if point not in alone], failed


@dataclass(frozen=True)
class _Ready:
    """The data that all points of a sweep share: `known`, the Survey so far of each score that ranks them, and
    `prefix_matching` (L, H), if needed and known."""

    target: Target
    setting: SurveySettings
    pool: Sequence[str]
    known: Mapping[str, Survey]
    prefix_matching: np.ndarray | None

    def orders(self, point: Point) -> Orders | None:
        """Returns the orders of a point's ranking, or None if evidence is missing."""
        evidence = {name: self._evidence(point, name) for name in evidence_needed(self.target.shape, point)}
        if any(each is None for each in evidence.values()):
            return None
        return orders_from(self.target.shape, Ranking(point.by, point.seed), Evidence(**evidence))

    def _evidence(self, point: Point, name: str) -> Any:
        if name == "prefix_matching":
            return self.prefix_matching
        sources, survey = sources_of(point, self.pool), self.known[_score_of(self.setting, point, name)]
        found = {task: survey.scores[task] for task in sources if task in survey.scores}
        if not found or any(task not in found and task not in survey.failed for task in sources):
            return None
        return together(self.setting, found) if len(found) > 1 else next(iter(found.values()))


def evidence_needed(shape: ModelShape, point: Point) -> list[str]:
    """Returns the evidence that the point's ranking needs; none at no or full pruning."""
    n = {"heads": shape.n_heads_total, "ffns": shape.n_layers}
    some = {axis: 0 < n_pruned(point.permille(axis), n[axis]) < n[axis] for axis in n}
    return [name for name in RULES[point.by].needs if some["ffns" if name == "ffns" else "heads"]]


def _score_of(setting: SurveySettings, point: Point, name: str) -> str:
    """Returns the score that the point's ranking uses for `heads` or `ffns`."""
    ranking = Ranking(point.by, heads_by=setting.heads_by, ffns_by=setting.ffns_by)
    return ranking.what("heads" if name == "heads" else "ffns")


def scores_needed(
    setting: SurveySettings, shape: ModelShape, wanted: Sequence[Point], pool: Sequence[str]
) -> dict[str, list[TaskSpec]]:
    """Returns the tasks that need each score of the points' rankings, scores of heads first."""
    needed: dict[str, dict[TaskSpec, None]] = {}
    for name in ("heads", "ffns"):
        for point in wanted:
            if name in evidence_needed(shape, point):
                tasks = needed.setdefault(_score_of(setting, point, name), {})
                tasks |= dict.fromkeys(sources_of(point, pool))
    return {what: list(tasks) for what, tasks in needed.items()}


def sources_of(point: Point, pool: Sequence[str]) -> list[TaskSpec]:
    """Returns the tasks whose importance ranks a point's components."""
    sources = RULES[point.by].sources
    names = sources(point.task.name, point.of, pool) if sources else [point.task.name]
    return [replace(point.task, name=name) for name in names]


def _rows(ready: _Ready, task: TaskSpec, mine: Sequence[Point], session: Session) -> Measurement[dict[Point, SweepRow]]:
    """Returns the rows of one task's points."""
    target, n = ready.target, ready.setting.n_validation
    questions, shape = ready.setting.validation_questions(task, session.store), target.shape
    levels = sorted({point.heads_permille for point in mine if point.by == "rescored"})

    def expected(point: Point) -> Workload:
        share = 1 - (point.heads_permille + 2 * point.ffns_permille) / 3000
        return Workload({"forward": all_characters(questions) * share})

    def body(run: ComposedRun) -> Generator[Progress[Any], None, dict[Point, SweepRow]]:
        rows: dict[Point, SweepRow] = {}
        rescored = yield from _rescored(run, ready, task, levels)
        for number, point in enumerate(mine):
            orders = ready.orders(point)
            if orders is not None and point.by == "rescored":
                heads = rescored.get(point.heads_permille)
                orders = None if heads is None else replace(orders, heads=heads)
            if orders is None:
                run.expect(f"{point}", partial(expected, point))
                continue
            mask = orders.mask(point.heads_permille, point.ffns_permille)
            answers: list[Answers] = []
            for each in (Mask.full(shape), mask):
                run.done = number * n
                found = yield from run.part(evaluation(target, questions, each, by_pace=False), n, in_levels(point))
                answers += [] if found is None else [found]
            if len(answers) == 2:
                rows[point] = _row(point, mask, *answers, chance=questions.rendered.chance)
                yield run.so_far({**rows}, in_levels(point))
        return rows

    return composed(target, ("rows", task, questions, *mine), body, max(1, len(mine) * n))


def _rescored(
    run: ComposedRun, ready: _Ready, task: TaskSpec, levels: Sequence[int]
) -> Generator[Progress[Any], None, dict[int, np.ndarray]]:
    """Returns the known orders of heads at each of the ascending levels; the remaining heads are rescored before each
    level."""
    shape, setting = ready.target.shape, ready.setting
    kept, gone, orders = np.ones(shape.n_heads_total, bool), [], {}
    for number, level in enumerate(levels):
        more = n_pruned(level, kept.size) - len(gone)
        if 0 < more < kept.sum():  # if none or all are pruned, their order does not matter
            mask = Mask.from_arrays(kept.reshape(shape.n_layers, shape.n_heads), np.ones(shape.n_layers, bool))
            wanted = importance(ready.target, setting.train_questions(task, run.session.store), setting.heads_by, mask)
            scores = yield from run.part(wanted, 0, f"{describe_task(task)}, scored again for {level / 10:g}%")
            if scores is None:  # each later level takes equally long
                n_later = len(levels) - number - 1
                run.expect(f"{wanted.key} and later", partial(wanted.left(run.session).times, n_later))
                break
            gone += [head for head in order(scores.scores, scores.tie_break) if kept[head]][:more]
            kept[gone] = False
        orders[level] = np.array([*gone, *np.flatnonzero(kept)])
    return orders


def in_levels(point: Point) -> str:
    """Returns a text such as "piqa, 0 shots, 30% heads, 0% FFNs"."""
    by = {"own": "", "task": f" by {point.of}"}.get(point.by, f" by {point.by}")
    return f"{describe_task(point.task)}, {point.heads_permille / 10:g}% heads, {point.ffns_permille / 10:g}% FFNs{by}"


def _row(point: Point, mask: Mask, full: Answers, pruned: Answers, chance: float) -> SweepRow:
    result, change, (sure, ece) = accuracy(pruned), paired(full.correct, pruned.correct), sure_and_error(pruned)
    return SweepRow(point, result.n, result.acc, result.ci_low, result.ci_high, chance, mask.n_heads_pruned,
               mask.n_ffns_pruned, change.gained, change.lost, change.p_mcnemar, float(sure.mean()), ece)  # fmt: skip

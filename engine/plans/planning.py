"""Points of a sweep as cells: one for each mask that is known to differ, and one for each score that orders need.

If the orders of two points give the same mask, the second finds its result in the store.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from engine.errors import HeadroomError
from engine.importance.importance import OF_ALL_TASKS, PREFIX, importance
from engine.importance.rankings import n_pruned, record_of
from engine.measurement import Workload
from engine.models.session import Session, Target
from engine.plans.cells import Cell, Group, Plan, cell_id
from engine.questions.requests import Questions, TaskSpec
from engine.shapes import ModelShape
from engine.studies.surveys import StudySettings
from engine.studies.sweeps import Point, evidence_needed, ranked_by_some, scores_needed
from engine.timing.observed_timings import FACTOR, seconds_for
from engine.timing.workload import all_characters

Surveys = Mapping[str, Sequence[TaskSpec]]  # by score the tasks whose importance is wanted
NO_SURVEYS: Surveys = {}
SEEDED = ("random", "within-layers")


@dataclass(frozen=True)
class Planned:
    """A plan, and for tasks that cannot be measured the reason. `is_timed`: costs follow from how long passes took here
    before; else from the model's size alone."""

    plan: Plan
    failed: Mapping[TaskSpec, str] = field(default_factory=dict)
    is_timed: bool = False


def planned(
    session: Session,
    setting: StudySettings,
    wanted: Sequence[Point],
    pool: Sequence[str],
    surveys: Surveys = NO_SURVEYS,
) -> Planned:
    """The cells of a sweep over `wanted`, and of importance that is wanted besides. Renders questions, whose length is
    what a cell costs; loads no model."""
    target = session.target(setting.spec, setting.bos)
    wanted, failed = ranked_by_some(wanted, pool)
    rescored = {setting.heads_by: [point.task for point in wanted if point.by == "rescored"]}  # which begins with these
    matching = [point.task for point in wanted if "prefix_matching" in evidence_needed(target.shape, point)]
    by_score: dict[str, list[TaskSpec]] = {}
    for each in (surveys, scores_needed(setting, target.shape, wanted, pool), rescored, {PREFIX: matching[:1]}):
        for what, tasks in each.items():
            by_score[what] = list(dict.fromkeys([*by_score.get(what, ()), *tasks]))
    ranking = [task for tasks in by_score.values() for task in tasks]
    judged = rendered_questions(partial(setting.judged, store=session.store), [point.task for point in wanted], failed)
    ranked = rendered_questions(partial(setting.ranked, store=session.store), ranking, failed)
    making = _Making(session, target, setting, tuple(pool), judged, ranked)
    cells = {}
    for what, tasks in by_score.items():
        for task in tasks:
            if task in ranked:
                cell = making.scores(what, task)
                cells.setdefault(cell.id, cell)
    for task in judged:
        for cell in making.accuracies([point for point in wanted if point.task == task]):
            cells.setdefault(cell.id, cell)
    known = []
    for cell in cells.values():
        needs = tuple(need for need in cell.needs if need in cells and need != cell.id)
        known.append(replace(cell, needs=needs))
    is_timed = seconds_for(session.store, target, "forward", 1) is not None
    return Planned(Plan((Group(setting, tuple(pool), target.key(gradients=True)),), tuple(known)), failed, is_timed)


def rendered_questions(
    of: Callable[[TaskSpec], Questions], tasks: Sequence[TaskSpec], failed: dict[TaskSpec, str]
) -> dict[TaskSpec, Questions]:
    """The questions of each task; of what has none the reason goes into `failed`."""
    found = {}
    for task in dict.fromkeys(tasks):
        try:
            found[task] = of(task)
        except HeadroomError as error:
            failed[task] = str(error)
    return found


def plain(shape: ModelShape, point: Point) -> Point:
    """The point without what does not change its mask: whose ranking, where none or all go."""
    if not prunes_some(shape, point):
        return Point(point.task, point.heads_permille, point.ffns_permille)
    if point.by == "task" and point.of == point.task.name:
        return replace(point, by="own", of="", seed=0)
    return replace(point, of=point.of if point.by == "task" else "", seed=point.seed if point.by in SEEDED else 0)


def prunes_some(shape: ModelShape, point: Point) -> bool:
    """Whether on either axis some go and some stay."""
    most = shape.n_heads_total, shape.n_layers
    return any(0 < n < of for n, of in zip(n_gone(shape, point), most, strict=True))


def n_gone(shape: ModelShape, point: Point) -> tuple[int, int]:
    """(heads, FFNs) that are pruned at a point."""
    return n_pruned(point.heads_permille, shape.n_heads_total), n_pruned(point.ffns_permille, shape.n_layers)


@dataclass(frozen=True)
class _Making:
    """Makes cells of one group, and says what each costs."""

    session: Session
    target: Target
    setting: StudySettings
    pool: tuple[str, ...]
    judged: Mapping[TaskSpec, Questions]
    ranked: Mapping[TaskSpec, Questions]

    def scores(self, what: str, task: TaskSpec) -> Cell:
        """Importance by one score; scores that are read from the same records are one cell."""
        work = importance(self.target, self.ranked[task], what).whole()
        kind, characters = next(iter(work.characters.items()), ("forward", 0.0))
        cost_s = work.seconds_by_size(self.session.store, self.target)
        return Cell(self._scores_id(what, task), 0, task, what, (), (), kind, characters, cost_s)

    def accuracies(self, points: Sequence[Point]) -> list[Cell]:
        """The points of one task: the full model first, since each is compared with it."""
        if not points:
            return []
        task, shape = points[0].task, self.target.shape
        full = Point(task, 0, 0)
        alone = dict.fromkeys([full, *(plain(shape, point) for point in points if point.by != "rescored")])
        rescored = tuple(point for point in points if point.by == "rescored")
        cells = []
        for each in [*((point,) for point in alone), *([rescored] if rescored else [])]:
            needs = [] if each == (full,) else [self._accuracy_id((full,))]
            for what, tasks in scores_needed(self.setting, shape, each, self.pool).items():
                needs += [self._scores_id(what, task) for task in tasks]
            if any("prefix_matching" in evidence_needed(shape, point) for point in each):
                needs.append(self._scores_id(PREFIX, task))
            if each[0].by == "rescored":
                needs.append(self._scores_id(self.setting.heads_by, task))
            characters = sum(map(self._characters, each))
            cost_s = Workload({"forward": characters}).seconds_by_size(self.session.store, self.target)
            cells.append(Cell(self._accuracy_id(each), 0, task, "", each, tuple(dict.fromkeys(needs)), "forward",
                              characters, cost_s))  # fmt: skip
        return cells

    def _characters(self, point: Point) -> float:
        """Characters of full-model passes that take as long as the pruned model's passes at a point."""
        read = all_characters(self.judged[point.task])
        kept = read * point.kept_share
        if point.by == "rescored" and prunes_some(self.target.shape, point) and point.task in self.ranked:
            kept += FACTOR["gradient"] * all_characters(self.ranked[point.task], gradients=True, every_choice=False)
        return kept

    def _scores_id(self, what: str, task: TaskSpec) -> str:
        of = None if what in OF_ALL_TASKS else task.fields()
        return cell_id(self._model, self.setting.n_ranking, record_of(what), of)

    def _accuracy_id(self, points: Sequence[Point]) -> str:
        first, setting = points[0], self.setting
        by = [setting.heads_by, setting.ffns_by, setting.n_ranking, setting.aggregate, first.by, first.of, first.seed]
        gone = [n_gone(self.target.shape, point) for point in points]
        about = [setting.n_questions, by if prunes_some(self.target.shape, first) or len(points) > 1 else None, gone]
        pool = self.pool if first.by in ("aggregate", "others") else None
        return cell_id(self._model, first.task.fields(), about, pool)

    @property
    def _model(self) -> list[object]:
        # with new versions all cells are new, as all keys are; builds count too, as in plans of earlier versions
        return [self.target.key() | {"versions": self.target.versions()}, self.setting.data_dir]

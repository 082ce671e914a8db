"""Accuracy over many masks: tasks x shot counts x pruning levels x rankings, in one run that resumes where it stopped.

Everything measured is stored by its own content, so two sweeps that share a mask share the work.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from engine.accuracy.evaluation import Answers, accuracy, evaluate, paired, recall
from engine.errors import Cancelled, HeadroomError, UsageError
from engine.importance.importance import Scores, importance, recall_scores
from engine.importance.rankings import mask_at, n_pruned, order, random_order, random_order_within_layers
from engine.jobs import Progress
from engine.models.checkpoints import Identity
from engine.models.loading import Models, identify
from engine.models.masks import Mask
from engine.questions.requests import TaskSpec
from engine.studies.surveys import Setting, Survey, in_words, survey, together

RANKED_BY = ("own", "reversed", "random", "within-layers", "task", "aggregate", "others", "rescored")
SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Point:
    """One accuracy to measure: a task, two levels, and whose importance says what goes first.

    `by`: `own`, this task's; `reversed`; `random` and `within-layers` (each layer loses as many heads as by `own`, at
    random) with `seed`; `task`, that of the task `of`; `aggregate` over the sweep's tasks; `others`, the aggregate
    without this task. Always at the same shot count. `rescored`: own, but measured anew on what is left before each of
    the sweep's levels, which Bansal et al. name as future work.
    """

    task: TaskSpec
    heads_permille: int
    ffns_permille: int
    by: str = "own"
    of: str = ""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.by not in RANKED_BY:
            raise UsageError(f"ranking {self.by!r} is unknown; choose one of {', '.join(RANKED_BY)}")

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

    @property
    def is_loss(self) -> bool:
        """Significantly below the full model."""
        return self.lost > self.gained and self.p_mcnemar < SIGNIFICANT

    def cells(self) -> dict[str, Any]:
        """The row of a table."""
        point, rest = self.point, asdict(self)
        del rest["point"]
        return {"task": point.task.name, "shots": point.task.shots, "heads": point.heads_permille / 1000,
                "ffns": point.ffns_permille / 1000, "by": point.by, "of": point.of, "seed": point.seed,
                **rest}  # fmt: skip


@dataclass(frozen=True)
class Swept:
    """Rows so far, in the order of the points, and for tasks that could not be measured the reason."""

    rows: tuple[Row, ...] = ()
    failed: Mapping[TaskSpec, str] = field(default_factory=dict)


def points(
    tasks: Sequence[TaskSpec], heads: Sequence[int], ffns: Sequence[int], by: str = "own", of: str = "", seed: int = 0
) -> list[Point]:
    """Every task at every pair of levels, in permille."""
    return [Point(task, h, f, by, of, seed) for task in tasks for h in heads for f in ffns]


def sweep(
    models: Models, setting: Setting, wanted: Sequence[Point], pool: Sequence[str], store: Any, compute: bool = True
) -> Iterator[Progress]:
    """Yields Progress, its value the Swept so far; what is stored is not computed again, and only that is read where
    `compute` is False. `pool` names the tasks that aggregates are made of."""
    identity, all_cached = identify(setting.spec, store), True
    alone = [point for point in wanted if point.by in ("aggregate", "others") and not _ranked_by(point, pool, "heads")]
    failed = {point.task: f"{in_words(point.task)}: there is no task to rank by; add others" for point in alone}
    wanted = [point for point in wanted if point not in alone]
    needs = {kind: _sources(identity, wanted, pool, kind) for kind in ("heads", "ffns")}
    by = {"heads": setting.heads_by, "ffns": setting.ffns_by}
    costs = {kind: len(tasks) * setting.cost(identity, by[kind]) for kind, tasks in needs.items()}
    done, known = 0, {}
    total = sum(costs.values()) + len(wanted) * (setting.n_questions or 200)
    for kind, tasks in needs.items():
        known[kind] = Survey()
        for step in survey(models, setting, tasks, by[kind], store, compute):
            known[kind] = step.value or known[kind]
            all_cached &= step.cached
            yield replace(step, done=done + step.done, total=total, value=None)
        done += costs[kind]
        failed |= known[kind].failed
    rows: dict[Point, Row] = {}
    tasks = list(dict.fromkeys(point.task for point in wanted))
    for task in tasks:
        mine = [point for point in wanted if point.task == task]
        share = len(mine) * (setting.n_questions or 200)
        try:
            for step in _task(models, setting, identity, task, mine, pool, known, store, compute, rows, (done, total)):
                all_cached = False
                yield step
        except Cancelled:
            raise
        except HeadroomError as error:
            failed[task] = str(error)
        done += share
        ordered = tuple(rows[point] for point in wanted if point in rows)
        yield Progress(done, total, Swept(ordered, dict(failed)), in_words(task), all_cached)
    if not tasks:
        yield Progress(total, total, Swept((), dict(failed)), cached=all_cached)


def _sources(identity: Identity, wanted: Sequence[Point], pool: Sequence[str], kind: str) -> list[TaskSpec]:
    """The tasks whose importance the points need; at no or full pruning nobody's."""
    n = identity.shape.n_heads_total if kind == "heads" else identity.shape.n_layers
    needed: dict[TaskSpec, None] = {}
    for point in wanted:
        if 0 < n_pruned(point.permille(kind), n) < n:
            needed |= dict.fromkeys(_ranked_by(point, pool, kind))
    return list(needed)


def _ranked_by(point: Point, pool: Sequence[str], kind: str) -> list[TaskSpec]:
    if point.by == "random":
        return []
    if point.by == "rescored" and kind == "heads":
        return []
    if point.by in ("own", "reversed", "within-layers", "rescored"):
        return [point.task]
    names = [point.of] if point.by == "task" else pool
    return [replace(point.task, name=name) for name in names if point.by != "others" or name != point.task.name]


def _order(
    setting: Setting, identity: Identity, point: Point, pool: Sequence[str], kind: str, known: Survey
) -> np.ndarray | None:
    """Flat indices, first to go first; None where the importance it needs is not known."""
    shape = identity.shape
    n = shape.n_heads_total if kind == "heads" else shape.n_layers
    if not 0 < n_pruned(point.permille(kind), n) < n:
        return np.arange(n)
    if point.by == "random":
        return random_order(n, point.seed)
    sources = _ranked_by(point, pool, kind)
    found = {task: known.scores[task] for task in sources if task in known.scores}
    if not found or any(task not in found and task not in known.failed for task in sources):
        return None
    scores: Scores = together(setting, found) if len(found) > 1 else next(iter(found.values()))
    by_importance = order(scores.scores, scores.tie_break)
    if point.by == "within-layers" and kind == "heads":
        return random_order_within_layers(shape, by_importance, point.seed)
    return by_importance[::-1] if point.by == "reversed" else by_importance


def _task(
    models: Models, setting: Setting, identity: Identity, task: TaskSpec, mine: Sequence[Point], pool: Sequence[str],
    known: Mapping[str, Survey], store: Any, compute: bool, rows: dict[Point, Row], so_far: tuple[int, int],
) -> Iterator[Progress]:  # fmt: skip
    """Measures the points of one task into `rows`."""
    requests, selection = setting.judged(task, store)
    about = (setting.spec, requests, selection)
    answers: dict[Mask, Answers] = {}
    done, total = so_far
    full = Mask.full(identity.shape)
    levels = sorted({point.heads_permille for point in mine if point.by == "rescored"})
    anew = yield from _scored_anew(models, setting, identity, task, levels, store, compute, so_far)
    for number, point in enumerate(mine):
        orders = [_order(setting, identity, point, pool, kind, known[kind]) for kind in ("heads", "ffns")]
        if point.by == "rescored":
            orders[0] = anew.get(point.heads_permille)
        if orders[0] is None or orders[1] is None:
            continue
        mask = mask_at(identity.shape, orders[0], orders[1], point.heads_permille, point.ffns_permille)
        for each in (full, mask):
            if each not in answers:
                found = recall(identity, *about, each, setting.bos, store)
                if len(found) < selection.n and compute:
                    steps = evaluate(models, *about, each, setting.bos, store)
                    at = done + number * (setting.n_questions or 200)
                    found = yield from _last_value(steps, at, total, _what(point))
                if len(found) == selection.n:
                    answers[each] = found
        if full in answers and mask in answers:
            rows[point] = _row(point, mask, answers[full], answers[mask], requests.chance)


def _scored_anew(
    models: Models, setting: Setting, identity: Identity, task: TaskSpec, levels: Sequence[int], store: Any,
    compute: bool, so_far: tuple[int, int],
) -> Generator[Progress, None, dict[int, np.ndarray]]:  # fmt: skip
    """Order of heads at each of the rising levels, as far as it is known: before each, what is left is scored anew."""
    shape = identity.shape
    kept, gone, orders = np.ones(shape.n_heads_total, bool), [], {}
    for level in levels:
        more = n_pruned(level, kept.size) - len(gone)
        if 0 < more < kept.sum():  # where none or all go, it does not matter which first
            mask = Mask.from_arrays(kept.reshape(shape.n_layers, shape.n_heads), np.ones(shape.n_layers, bool))
            about = (*setting.ranked(task, store), setting.heads_by, setting.bos, store, mask)
            scores = recall_scores(identity, setting.spec, *about)
            if scores is None and compute:
                label = f"{in_words(task)}, scored anew for {level / 10:g} %"
                for step in importance(models, setting.spec, *about):
                    scores = step.value if step.value is not None else scores
                    yield Progress(*so_far, message=step.message or label)
            if scores is None:
                break
            gone += [head for head in order(scores.scores, scores.tie_break) if kept[head]][:more]
            kept[gone] = False
        orders[level] = np.array([*gone, *np.flatnonzero(kept)])
    return orders


def _what(point: Point) -> str:
    by = {"own": "", "task": f" by {point.of}"}.get(point.by, f" by {point.by}")
    return f"{in_words(point.task)}, {point.heads_permille / 10:g} % heads, {point.ffns_permille / 10:g} % FFNs{by}"


def _row(point: Point, mask: Mask, full: Answers, pruned: Answers, chance: float) -> Row:
    result, change = accuracy(pruned), paired(full, pruned)
    return Row(point, result.n, result.acc, result.ci_low, result.ci_high, chance, mask.n_heads_pruned,
               mask.n_ffns_pruned, change.gained, change.lost, change.p_mcnemar)  # fmt: skip


def _last_value(steps: Iterator[Progress], done: int, total: int, label: str = "") -> Generator[Progress, None, Any]:
    """The value of the last of `steps`, each yielded at its place in a longer run."""
    value = None
    for step in steps:
        value = step.value if step.value is not None else value
        yield Progress(done + step.done, total, message=step.message or label)
    return value

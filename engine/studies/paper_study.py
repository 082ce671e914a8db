"""The paper study of one model: importance of every task, curves, grid and transfer, as in the first paper (Bansal
et al. 2212.09095).
"""

import os
import platform
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from engine.checkpoints.names import short_name
from engine.composed import ComposedRun, composed
from engine.importance.rankings import Agreement, agreement, n_pruned
from engine.kernels.kernel_choice import processor
from engine.measurement import Measurement
from engine.models.session import Target
from engine.progress import Progress, driven
from engine.questions.rendering import TaskSpec
from engine.shapes import ModelShape
from engine.studies.surveys import Survey, SurveySettings, agreement_rows, survey
from engine.studies.sweeps import Point, Swept, points, sweep

TENTHS = range(0, 1001, 100)
GRID_FFNS = range(0, 501, 100)
RANDOM_LEVELS, RANDOM_SEEDS = range(200, 1000, 200), range(3)
TRANSFER_PERMILLE = 500
N_RESCORED = 3  # tasks whose curve is also measured with importance rescored at every step
OUT_OF_DISTRIBUTION = ("mathqa", "lambada_openai", "demo_price", "demo_cloze")  # never part of an aggregate


@dataclass(frozen=True)
class PaperStudy:
    """All results of a paper study.

    tasks: its tasks
    setting: its settings
    heads, ffns: importance by task
    curves: by name: heads, ffns, random, combined, transfer, others, rescored
    receipt: everything that determines the numbers, the same on every machine that continues it
    n_layers: layers of the model
    made: when, where and from which folders it was assembled
    """

    tasks: tuple[TaskSpec, ...]
    setting: SurveySettings
    heads: Survey = field(default_factory=Survey)
    ffns: Survey = field(default_factory=Survey)
    curves: Mapping[str, Swept] = field(default_factory=dict)
    receipt: Mapping[str, Any] = field(default_factory=dict)
    n_layers: int = 0
    made: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shots(self) -> list[int]:
        return sorted({task.shots for task in self.tasks})

    @property
    def failed(self) -> dict[TaskSpec, str]:
        """Tasks that could not be measured, and why."""
        found = dict(self.heads.failed) | dict(self.ffns.failed)
        for swept in self.curves.values():
            found |= swept.failed
        return found

    @cached_property
    def correlations(self) -> list[dict[str, Any]]:
        """One row for every two rankings of heads (engine.studies.surveys.agreement_rows)."""
        return agreement_rows(self.heads, self.setting.aggregate)

    def cross_task(self, shots: int) -> Agreement | None:
        """Returns the SRCC of every two tasks' head importance, without p; None with fewer than two."""
        scores = self.heads.at(shots)
        return agreement(scores, permutations=0) if len(scores) > 1 else None

    def cross_shot(self) -> dict[str, Agreement]:
        """Returns the SRCC of every two shot counts' head importance, without p, by task."""
        found = {}
        for name in dict.fromkeys(task.name for task in self.tasks):
            mine = {str(task.shots): each.scores for task, each in self.heads.scores.items() if task.name == name}
            if len(mine) > 1:
                found[name] = agreement(mine, permutations=0)
        return found


def pool_of(names: Sequence[str]) -> list[str]:
    """Returns the tasks in aggregates: those not in OUT_OF_DISTRIBUTION, or all if there are no others."""
    return [name for name in names if name not in OUT_OF_DISTRIBUTION] or list(names)


def random_points(tasks: Sequence[TaskSpec], heads: Sequence[int], ffns: Sequence[int]) -> list[Point]:
    """Returns the points of a band of random rankings."""
    return [point for seed in RANDOM_SEEDS for point in points(tasks, heads, ffns, "random", seed=seed)]


def transfer_points(tasks: Sequence[TaskSpec], permille: int) -> list[Point]:
    """Returns the points of each task pruned by each task's ranking, and by the aggregate."""
    names = dict.fromkeys(task.name for task in tasks)
    by_each = [point for name in names for point in points(tasks, [permille], [0], "task", name)]
    return [*by_each, *points(tasks, [permille], [0], "aggregate")]


def paper_points(tasks: Sequence[TaskSpec]) -> dict[str, list[Point]]:
    """Returns the points at which the paper study measures accuracy, by curve."""
    names = dict.fromkeys(task.name for task in tasks)
    outside = [name for name in names if name in OUT_OF_DISTRIBUTION]
    few = max(task.shots for task in tasks)
    most_shots = [task for task in tasks if task.shots == few]
    return {
        "heads": points(tasks, TENTHS, [0]),
        "ffns": points(tasks, [0], TENTHS),
        "random": random_points(tasks, RANDOM_LEVELS, [0]),
        "combined": points(tasks, TENTHS, GRID_FFNS),
        "transfer": transfer_points(most_shots, TRANSFER_PERMILLE),
        "rescored": points(most_shots[:N_RESCORED], TENTHS, [0], "rescored"),
        "others": points([task for task in tasks if task.name in outside], TENTHS, [0], "aggregate"),
    }


def paper_study(target: Target, setting: SurveySettings, tasks: Sequence[TaskSpec]) -> Measurement[PaperStudy]:
    """Returns the paper study so far."""
    pool, shape = pool_of(list(dict.fromkeys(task.name for task in tasks))), target.shape
    parts: dict[str, Measurement[Any]] = {}
    sizes: dict[str, int] = {}
    for name, what in (("head importance", "heads"), ("FFN importance", "ffns")):
        parts[name], sizes[name] = survey(target, setting, tasks, what), len(tasks) * setting.cost(shape, what)
    for name, plan in paper_points(tasks).items():
        if plan:
            parts[name], sizes[name] = sweep(target, setting, plan, pool), _distinct(shape, plan) * setting.n_validation

    def body(run: ComposedRun) -> Generator[Progress[Any], None, PaperStudy]:
        study = PaperStudy(tuple(tasks), setting, receipt=_receipt(target, setting, pool), n_layers=shape.n_layers,
                      made=_made(setting))  # fmt: skip
        for name, part in parts.items():
            steps = run.known(part, sizes[name])
            value = yield from driven(steps, lambda step, name=name: replace(step, message=f"{name}: {step.message}"))
            study = _with(study, name, value)
            yield run.so_far(study, name)
        return study

    return composed(target, ("study", setting, *tasks), body, sum(sizes.values()))


def with_short_names(study: PaperStudy) -> PaperStudy:
    """Returns the paper study with user files of questions named without their folder, which differs between machines,
    if their names stay distinct."""
    names = {task.name: short_name(task.name) for task in study.tasks}
    if len(set(names.values())) < len(names):
        return study

    def by_task(found: Mapping[TaskSpec, Any]) -> dict[TaskSpec, Any]:
        return {replace(task, name=names.get(task.name, task.name)): each for task, each in found.items()}

    def reasons(failed: Mapping[TaskSpec, str]) -> dict[TaskSpec, str]:
        for name, short in names.items():
            failed = {task: reason.replace(name, short) for task, reason in failed.items()}
        return by_task(failed)

    def swept(found: Swept) -> Swept:
        rows = []
        for row in found.rows:
            task = replace(row.point.task, name=names.get(row.point.task.name, row.point.task.name))
            rows.append(replace(row, point=replace(row.point, task=task, of=names.get(row.point.of, row.point.of))))
        return replace(found, rows=tuple(rows), failed=reasons(found.failed))

    heads, ffns = (replace(each, scores=by_task(each.scores), failed=reasons(each.failed))
                   for each in (study.heads, study.ffns))  # fmt: skip
    pool = [names.get(name, name) for name in study.receipt.get("pool", ())]
    curves = {name: swept(each) for name, each in study.curves.items()}
    tasks = tuple(by_task(dict.fromkeys(study.tasks)))
    return replace(study, tasks=tasks, heads=heads, ffns=ffns, curves=curves, receipt={**study.receipt, "pool": pool})


def _receipt(target: Target, setting: SurveySettings, pool: Sequence[str]) -> dict[str, Any]:
    """Returns everything that determines the numbers: the fields of every key, the kernels, and the settings without
    paths."""
    same = {name: value for name, value in asdict(setting).items() if name not in ("spec", "data_dir")}
    about = {"name": short_name(target.identity.name), "products": asdict(target.products)}
    return target.key() | about | {"setting": same, "pool": list(pool)}


def _made(setting: SurveySettings) -> dict[str, Any]:
    """Returns when, where and from which folders the paper study was made: everything that depends on the machine."""
    made_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    where = {"processor": processor(), "cores": os.cpu_count(), "python": platform.python_version()}
    return {"made_at": made_at, "model": setting.spec.model, "data_dir": setting.data_dir, **where}


def _with(study: PaperStudy, name: str, value: Any) -> PaperStudy:
    if name == "head importance":
        return replace(study, heads=value)
    if name == "FFN importance":
        return replace(study, ffns=value)
    return replace(study, curves={**study.curves, name: value or Swept()})


def _distinct(shape: ModelShape, plan: Sequence[Point]) -> int:
    """Returns the largest number of different masks in a plan; levels with equally many pruned components are one."""
    return len({(point.task, point.by, point.of, point.seed, n_pruned(point.heads_permille, shape.n_heads_total),
                 n_pruned(point.ffns_permille, shape.n_layers)) for point in plan})  # fmt: skip

"""The first paper's whole study of one model: importance of every task, curves, grid and transfer (Bansal et al.
2212.09095).
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from engine.importance.rankings import Agreement, agreement, n_pruned
from engine.models.subject import Lab
from engine.progress import Progress
from engine.questions.requests import TaskSpec
from engine.shapes import ModelShape
from engine.studies.break_points import break_points
from engine.studies.surveys import Setting, Survey, agreement_rows, survey, written_row
from engine.studies.sweeps import Point, Swept, points, sweep

TENTHS = range(0, 1001, 100)
GRID_FFNS = range(0, 501, 100)
RANDOM_LEVELS, RANDOM_SEEDS = range(200, 1000, 200), range(3)
TRANSFER_PERMILLE = 500
N_RESCORED = 3  # tasks whose curve is also measured with importance anew at every step
OUT_OF_DISTRIBUTION = ("mathqa", "lambada_openai", "demo_price", "demo_cloze")  # never part of an aggregate


@dataclass(frozen=True)
class Study:
    """Everything measured. `curves` by name: heads, ffns, random, combined, transfer, others, rescored."""

    tasks: tuple[TaskSpec, ...]
    setting: Setting
    heads: Survey = field(default_factory=Survey)
    ffns: Survey = field(default_factory=Survey)
    curves: Mapping[str, Swept] = field(default_factory=dict)
    receipt: Mapping[str, Any] = field(default_factory=dict)
    n_layers: int = 0

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
        """Rows of every two rankings of heads (engine.studies.surveys.agreement_rows)."""
        return agreement_rows(self.heads, self.setting.aggregate)

    def cross_task(self, shots: int) -> Agreement | None:
        """SRCC of every two tasks' head importance, without p; None with fewer than two."""
        scores = self.heads.at(shots)
        return agreement(scores, permutations=0) if len(scores) > 1 else None

    def cross_shot(self) -> dict[str, Agreement]:
        """SRCC of every two shot counts' head importance, without p, by task."""
        found = {}
        for name in dict.fromkeys(task.name for task in self.tasks):
            mine = {str(task.shots): each.scores for task, each in self.heads.scores.items() if task.name == name}
            if len(mine) > 1:
                found[name] = agreement(mine, permutations=0)
        return found


def pool_of(names: Sequence[str]) -> list[str]:
    """The tasks that aggregates are made of: those that are not kept out of distribution, or all where no other is."""
    return [name for name in names if name not in OUT_OF_DISTRIBUTION] or list(names)


def random_points(tasks: Sequence[TaskSpec], heads: Sequence[int], ffns: Sequence[int]) -> list[Point]:
    """The points behind a band of random rankings."""
    return [point for seed in RANDOM_SEEDS for point in points(tasks, heads, ffns, "random", seed=seed)]


def transfer_points(tasks: Sequence[TaskSpec], permille: int) -> list[Point]:
    """Each task pruned by each one's ranking, and by the aggregate."""
    names = dict.fromkeys(task.name for task in tasks)
    by_each = [point for name in names for point in points(tasks, [permille], [0], "task", name)]
    return [*by_each, *points(tasks, [permille], [0], "aggregate")]


def paper_points(tasks: Sequence[TaskSpec]) -> dict[str, list[Point]]:
    """What the study measures of accuracy, by curve."""
    names = dict.fromkeys(task.name for task in tasks)
    outside = [name for name in names if name in OUT_OF_DISTRIBUTION]
    few = max(task.shots for task in tasks)
    in_front = [task for task in tasks if task.shots == few]
    return {
        "heads": points(tasks, TENTHS, [0]),
        "ffns": points(tasks, [0], TENTHS),
        "random": random_points(tasks, RANDOM_LEVELS, [0]),
        "combined": points(tasks, TENTHS, GRID_FFNS),
        "transfer": transfer_points(in_front, TRANSFER_PERMILLE),
        "rescored": points(in_front[:N_RESCORED], TENTHS, [0], "rescored"),
        "others": points([task for task in tasks if task.name in outside], TENTHS, [0], "aggregate"),
    }


def paper_study(
    lab: Lab, setting: Setting, tasks: Sequence[TaskSpec], compute: bool = True
) -> Iterator[Progress[Study]]:
    """Yields Progress, its value the Study so far; what is stored is not computed again."""
    subject = lab.subject(setting.spec, setting.bos)
    pool = pool_of(list(dict.fromkeys(task.name for task in tasks)))
    about = {"name": subject.identity.name, "setting": asdict(setting), "pool": pool}
    about["made_at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    shape = subject.shape
    study = Study(tuple(tasks), setting, receipt=subject.key() | about, n_layers=shape.n_layers)
    parts: dict[str, Iterator[Progress[Any]]] = {
        "head importance": survey(lab, setting, tasks, "heads", compute),
        "FFN importance": survey(lab, setting, tasks, "ffns", compute),
    }
    sizes = [len(tasks) * setting.cost(shape, what) for what in ("heads", "ffns")]
    for name, plan in paper_points(tasks).items():
        if plan:
            parts[name] = sweep(lab, setting, plan, pool, compute)
            sizes.append(_distinct(shape, plan) * setting.n_judges)
    done, total, all_cached = 0, sum(sizes), True
    for (name, steps), size in zip(parts.items(), sizes, strict=True):
        value = None
        for step in steps:
            value = step.value if step.value is not None else value
            all_cached &= step.cached
            yield replace(step.within(done, total, size), message=f"{name}: {step.message}")
        done += size
        study = _with(study, name, value)
        yield Progress(done, total, study, name, all_cached)


def _with(study: Study, name: str, value: Any) -> Study:
    if name == "head importance":
        return replace(study, heads=value)
    if name == "FFN importance":
        return replace(study, ffns=value)
    return replace(study, curves={**study.curves, name: value or Swept()})


def _distinct(shape: ModelShape, plan: Sequence[Point]) -> int:
    """How many different masks a plan has, at most: levels between which no component goes are one."""
    return len({(point.task, point.by, point.of, point.seed, n_pruned(point.heads_permille, shape.n_heads_total),
                 n_pruned(point.ffns_permille, shape.n_layers)) for point in plan})  # fmt: skip


def tables(study: Study) -> dict[str, Any]:
    """DataFrames by file name."""
    import pandas as pd

    found: dict[str, Any] = {}
    for name, measured in (("head-importance", study.heads), ("ffn-importance", study.ffns)):
        rows = []
        for task, scores in measured.scores.items():
            at = dict(
                zip(("layer", "head"), np.indices(scores.scores.shape).reshape(scores.scores.ndim, -1), strict=False)
            )
            rows.append(pd.DataFrame({"task": task.name, "shots": task.shots, **at, "score": scores.scores.ravel()}))
        if rows:
            found[name] = pd.concat(rows, ignore_index=True)
    found["correlations"] = pd.DataFrame([written_row(row) for row in study.correlations])
    for name, swept in study.curves.items():
        found[name] = pd.DataFrame([row.cells() for row in swept.rows])
    for axis in ("heads", "ffns"):
        found[f"break-points-{axis}"] = pd.DataFrame(
            [each.cells() for each in break_points(study.curves.get(axis, Swept()).rows, axis)]
        )
    return found

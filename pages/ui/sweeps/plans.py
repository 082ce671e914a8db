"""What each section of the Sweeps screen measures: points, whose rankings make them, and requests to the same end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.questions.requests import TaskSpec
from engine.requests import Sweep
from engine.studies.study import (
    OUT_OF_DISTRIBUTION,
    RANDOM_LEVELS,
    RANDOM_SEEDS,
    TENTHS,
    pool_of,
    random_points,
    transfer_points,
)
from engine.studies.sweeps import Point, points
from pages.ui.shared.origin import of_grid, percent

SECTIONS = {
    "heads": "Heads",
    "ffns": "FFNs",
    "both": "Both",
    "transfer": "Transfer",
    "outside": "Unseen tasks",
    "rescored": "Scored anew",
}


@dataclass(frozen=True)
class SweepPlan:
    """The points of a section, and the tasks that its aggregates are made of."""

    points: tuple[Point, ...]
    pool: tuple[str, ...]


def plan_of(section: str, tasks: Sequence[TaskSpec], front: TaskSpec, permille: int) -> SweepPlan:
    """The plan of a section for the chosen tasks; `front` is the task in front, `permille` the level of transfer."""
    pool = tuple(pool_of(list(dict.fromkeys(task.name for task in tasks))))
    here = [task for task in tasks if task.shots == front.shots]
    if section in ("heads", "ffns"):
        at = {"heads": (TENTHS, [0]), "ffns": ([0], TENTHS)}[section]
        random = {"heads": (RANDOM_LEVELS, [0]), "ffns": ([0], RANDOM_LEVELS)}[section]
        return SweepPlan((*points(tasks, *at), *random_points(tasks, *random)), pool)
    if section == "both":
        return SweepPlan(tuple(points(tasks, TENTHS, TENTHS)), pool)
    if section == "transfer":
        return SweepPlan((*points(here, [permille], [0]), *transfer_points(here, permille)), pool)
    if section == "outside":
        outside = [task for task in tasks if task.name in OUT_OF_DISTRIBUTION]
        return SweepPlan((*points(outside, TENTHS, [0]), *points(outside, TENTHS, [0], "aggregate")), pool)
    random = random_points([front], RANDOM_LEVELS, [0])
    return SweepPlan((*points([front], TENTHS, [0]), *random, *points([front], TENTHS, [0], "rescored")), pool)


def requests_of(
    section: str, tasks: Sequence[TaskSpec], front: TaskSpec, permille: int, asked: Mapping[str, Any]
) -> list[Sweep]:
    """What measures the same as the section's plan; `asked` are the fields that all of them have."""
    here = [task for task in tasks if task.shots == front.shots]
    outside = [task for task in tasks if task.name in OUT_OF_DISTRIBUTION]
    heads, ffns = {"heads": _levels(TENTHS)}, {"heads": "0", "ffns": _levels(TENTHS)}
    level, pool = {"heads": percent(permille)}, of_grid(tasks)["tasks"]

    def sweep(tasks: Sequence[TaskSpec], file: str, **more: Any) -> Sweep:
        return Sweep(**{**asked, **of_grid(tasks), **more}, out=f"sweep-{file}.csv")

    def random(tasks: Sequence[TaskSpec], axis: str) -> list[Sweep]:
        levels = {"heads": "0", axis: _levels(RANDOM_LEVELS)}
        return [sweep(tasks, f"random-{seed}", **levels, by="random", seed=seed) for seed in RANDOM_SEEDS]

    names = dict.fromkeys(task.name for task in here)
    if section == "heads":
        return [sweep(tasks, "own", **heads), *random(tasks, "heads")]
    if section == "ffns":
        return [sweep(tasks, "own", **ffns), *random(tasks, "ffns")]
    if section == "both":
        return [sweep(tasks, "own", **ffns | heads)]
    if section == "transfer":
        others = [sweep(here, f"of-{name}", **level, by="task", of=name) for name in names]
        return [sweep(here, "own", **level), *others, sweep(here, "aggregate", **level, by="aggregate")]
    if section == "outside":
        return [sweep(outside, "own", **heads), sweep(outside, "aggregate", **heads, by="aggregate", pool=pool)]
    rescored = sweep([front], "rescored", **heads, by="rescored")
    return [sweep([front], "own", **heads), *random([front], "heads"), rescored]


def _levels(levels: Sequence[int]) -> str:
    return ",".join(map(percent, levels))

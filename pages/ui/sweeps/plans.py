"""What each section of the Sweeps screen measures: points, whose rankings make them, and commands to the same end."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.questions.requests import TaskSpec
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


def arguments(section: str, tasks: Sequence[TaskSpec], front: TaskSpec, permille: int) -> list[list[str]]:
    """What measures the same as the section's plan with `headroom sweep`: the arguments of each line."""
    here = [task for task in tasks if task.shots == front.shots]
    outside = [task for task in tasks if task.name in OUT_OF_DISTRIBUTION]
    heads, ffns = ["--heads", _percent(TENTHS)], ["--heads", "0", "--ffns", _percent(TENTHS)]
    few_heads, few_ffns = ["--heads", _percent(RANDOM_LEVELS)], ["--heads", "0", "--ffns", _percent(RANDOM_LEVELS)]
    level = ["--heads", _percent([permille])]
    names = dict.fromkeys(task.name for task in here)
    pool = ["--pool", ",".join(dict.fromkeys(task.name for task in tasks))]
    lines = {
        "heads": [_line(tasks, heads, "own"), *_random(tasks, few_heads)],
        "ffns": [_line(tasks, ffns, "own"), *_random(tasks, few_ffns)],
        "both": [_line(tasks, ["--heads", _percent(TENTHS), "--ffns", _percent(TENTHS)], "own")],
        "transfer": [
            _line(here, level, "own"),
            *(_line(here, [*level, "--by", "task", "--of", name], f"of-{name}") for name in names),
            _line(here, [*level, "--by", "aggregate"], "aggregate"),
        ],
        "outside": [_line(outside, heads, "own"), _line(outside, [*heads, "--by", "aggregate", *pool], "aggregate")],
        "rescored": [
            _line([front], heads, "own"),
            *_random([front], few_heads),
            _line([front], [*heads, "--by", "rescored"], "rescored"),
        ],
    }
    return lines[section]


def _line(tasks: Sequence[TaskSpec], words: Sequence[str], file: str) -> list[str]:
    names = dict.fromkeys(task.name for task in tasks)
    counts = sorted({task.shots for task in tasks})
    return ["--tasks", ",".join(names), "--shots", ",".join(map(str, counts)), *words, "--out", f"sweep-{file}.csv"]


def _random(tasks: Sequence[TaskSpec], words: Sequence[str]) -> list[list[str]]:
    seeds = map(str, RANDOM_SEEDS)
    return [_line(tasks, [*words, "--by", "random", "--seed", seed], f"random-{seed}") for seed in seeds]


def _percent(levels: Sequence[int]) -> str:
    return ",".join(f"{level / 10:g}" for level in levels)

"""What each section of the Sweeps screen measures: points, and whose rankings make them."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.questions.requests import TaskSpec
from engine.studies.study import OUT_OF_DISTRIBUTION, RANDOM_LEVELS, TENTHS, pool_of, random_points, transfer_points
from engine.studies.sweeps import Point, points

SECTIONS = {
    "heads": "Heads", "ffns": "FFNs", "both": "Both", "transfer": "Transfer", "outside": "Unseen tasks",
    "rescored": "Scored anew",
}  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """The points of a section, and the tasks that its aggregates are made of."""

    points: tuple[Point, ...]
    pool: tuple[str, ...]


def arguments(section: str, front: str, permille: int) -> list[str]:
    """What `python -m engine sweep` needs to measure the same; whole studies where it takes several rankings."""
    tenths = ",".join(str(level // 10) for level in TENTHS)
    own = {
        "heads": ["--heads", tenths],
        "ffns": ["--heads", "0", "--ffns", tenths],
        "both": ["--heads", tenths, "--ffns", tenths],
        "transfer": ["--heads", str(permille // 10), "--by", "task", "--of", front],
        "rescored": ["--heads", tenths, "--by", "rescored"],
    }
    return [*own[section], "--out", "sweep.csv"] if section in own else ["--preset", "paper", "--out", "study"]


def plan_of(section: str, tasks: Sequence[TaskSpec], front: TaskSpec, permille: int) -> Plan:
    """The plan of a section for the chosen tasks; `front` is the task in front, `permille` the level of transfer."""
    pool = tuple(pool_of(list(dict.fromkeys(task.name for task in tasks))))
    here = [task for task in tasks if task.shots == front.shots]
    if section in ("heads", "ffns"):
        at = {"heads": (TENTHS, [0]), "ffns": ([0], TENTHS)}[section]
        random = {"heads": (RANDOM_LEVELS, [0]), "ffns": ([0], RANDOM_LEVELS)}[section]
        return Plan((*points(tasks, *at), *random_points(tasks, *random)), pool)
    if section == "both":
        return Plan(tuple(points(tasks, TENTHS, TENTHS)), pool)
    if section == "transfer":
        return Plan((*points(here, [permille], [0]), *transfer_points(here, permille)), pool)
    if section == "outside":
        outside = [task for task in tasks if task.name in OUT_OF_DISTRIBUTION]
        return Plan((*points(outside, TENTHS, [0]), *points(outside, TENTHS, [0], "aggregate")), pool)
    random = random_points([front], RANDOM_LEVELS, [0])
    return Plan((*points([front], TENTHS, [0]), *random, *points([front], TENTHS, [0], "rescored")), pool)

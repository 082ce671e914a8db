"""The measurements of each section of the Sweeps screen, as requests, and the points of these."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from engine.questions.requests import TaskSpec
from engine.requests import Sweep
from engine.studies.study import OUT_OF_DISTRIBUTION, RANDOM_LEVELS, RANDOM_SEEDS, TENTHS
from engine.studies.sweeps import Point
from pages.ui.downloads.origin import of_grid, percent
from pages.ui.sweeps.tables import LEAST_LEVELS

SECTIONS = {
    "heads": "Heads",
    "ffns": "FFNs",
    "both": "Heads and FFNs",
    "transfer": "Transfer",
    "outside": "Unseen tasks",
    "rescored": "Rescored after each step",
}


def requests_of(
    section: str, tasks: Sequence[TaskSpec], front: TaskSpec, permille: int, asked: Mapping[str, Any]
) -> list[Sweep]:
    """Returns the requests of a section for the chosen tasks; `front` is the highlighted task, `permille` the level of
    transfer, and `asked` the fields that all requests have."""
    here = [task for task in tasks if task.shots == front.shots]
    outside = [task for task in tasks if task.name in OUT_OF_DISTRIBUTION]
    heads, ffns = {"head_levels": _levels(TENTHS)}, {"head_levels": "0", "ffn_levels": _levels(TENTHS)}
    level, pool = {"head_levels": percent(permille)}, of_grid(tasks)["tasks"]

    def sweep(tasks: Sequence[TaskSpec], file: str, **more: Any) -> Sweep:
        return Sweep(**{**asked, **of_grid(tasks), **more}, out=f"sweep-{file}.csv")

    def random(tasks: Sequence[TaskSpec], axis: str) -> list[Sweep]:
        levels = {"head_levels": "0", f"{axis[:-1]}_levels": _levels(RANDOM_LEVELS)}
        return [
            sweep(tasks, f"random-{seed}", **levels, order="random", seed=seed, head_score="heads")
            for seed in RANDOM_SEEDS
        ]

    names = dict.fromkeys(task.name for task in here)
    if section == "heads":
        return [sweep(tasks, "own", **heads), *random(tasks, "heads")]
    if section == "ffns":
        return [sweep(tasks, "own", **ffns), *random(tasks, "ffns")]
    if section == "both":
        return [sweep(tasks, "own", **ffns | heads)]
    if section == "transfer":
        others = [sweep(here, f"of-{name}", **level, order="task", source_task=name) for name in names]
        return [sweep(here, "own", **level), *others, sweep(here, "aggregate", **level, order="aggregate")]
    if section == "outside" and not outside:
        return []
    if section == "outside":
        pooled = sweep(outside, "aggregate", **heads, order="aggregate", aggregate_tasks=pool)
        return [sweep(outside, "own", **heads), pooled]
    rescored = sweep([front], "rescored", **heads, order="rescored")
    return [sweep([front], "own", **heads), *random([front], "heads"), rescored]


def points_of(requests: Sequence[Sweep]) -> tuple[Point, ...]:
    """Returns all points of the requests, each once."""
    return tuple(dict.fromkeys(point for request in requests for point in request.points()))


def has_curve(known: Collection[Point], points: Sequence[Point]) -> bool:
    """Returns whether enough levels of a task by its own ranking are known to draw its curve as a line."""
    of_task = Counter(point.task for point in points if point.by == "own")
    found = Counter(point.task for point in {*points} & {*known} if point.by == "own")
    return any(found[task] >= min(LEAST_LEVELS, n) for task, n in of_task.items())


def _levels(levels: Sequence[int]) -> str:
    return ",".join(map(percent, levels))

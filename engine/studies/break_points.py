"""How much of one axis a task can lose: the first detectable loss and the cliff, read from the levels of a curve."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from engine.questions.requests import TaskSpec
from engine.statistics import ALPHA, Paired, holm, wilson
from engine.studies.sweeps import SweepRow

AT_CHANCE, NOT_MEASURED = "at chance", "not measured"
NOTHING = (math.nan, math.nan, math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class BreakPoint:
    """How much of one axis a task can lose; levels are shares, 0-1.

    `first_detectable_loss`: the smallest level whose accuracy is significantly below the full model's on the same
        questions (exact McNemar, 5 % for all levels together, by Holm); nan if there is none.
    `no_loss_up_to`: the measured level before it, or the largest level if there is none.
    `cliff_from`, `cliff_to`, `cliff_points`: the two neighboring levels between which accuracy falls most, and by how
        many points (below 0); nan if it never falls. This is measured, not tested.
    `looks`: how many levels were tested.
    `n`: questions.
    `reading`: why all of these are nan, or "". "at chance": the interval of the full model contains the accuracy of
        guessing, so there is nothing to lose. "not measured": fewer than two levels are measured.
    """

    task: TaskSpec
    no_loss_up_to: float
    first_detectable_loss: float
    cliff_from: float
    cliff_to: float
    cliff_points: float
    full_acc: float
    chance: float
    n: int = 0
    looks: int = 0
    reading: str = ""

    def cells(self) -> dict[str, Any]:
        """Returns a table row."""
        return asdict(self) | {"task": self.task.name, "shots": self.task.shots}


def break_point(task: TaskSpec, changes: Mapping[int, Paired], n_full: int, chance: float) -> BreakPoint:
    """Returns the BreakPoint of one task: `changes` against the full model by level (permille), all on the same
    questions, of which the full model answers `n_full` right."""
    n, looks = next(iter(changes.values())).n, [level for level in sorted(changes) if level]
    reading = AT_CHANCE if wilson(n_full, n)[0] <= chance or not n_full else NOT_MEASURED if len(changes) < 2 else ""
    if reading:
        return BreakPoint(task, *NOTHING, n_full / n, chance, n, len(looks), reading)
    adjusted = holm([changes[level].p_mcnemar for level in looks])
    lost = [
        level for level, p in zip(looks, adjusted, strict=True)
        if p < ALPHA and changes[level].lost > changes[level].gained
    ]  # fmt: skip
    first = lost[0] / 1000 if lost else math.nan
    before = max((level / 1000 for level in looks if not level / 1000 >= first), default=0.0)
    return BreakPoint(task, before, first, *_cliff(changes, n_full, n), n_full / n, chance, n, len(looks))


def break_points(rows: Sequence[SweepRow], axis: str) -> list[BreakPoint]:
    """Returns one BreakPoint per task of `rows`, which are of one ranking with the other axis at 0; `axis` is heads or
    ffns."""
    found = []
    for task in dict.fromkeys(row.point.task for row in rows):
        mine = [row for row in rows if row.point.task == task]
        changes = {row.point.permille(axis): Paired(row.n, row.gained, row.lost, row.p_mcnemar) for row in mine}
        n_full = round(mine[0].acc * mine[0].n) - mine[0].gained + mine[0].lost
        found.append(break_point(task, changes, n_full, mine[0].chance))
    return found


def _cliff(changes: Mapping[int, Paired], n_full: int, n: int) -> tuple[float, float, float]:
    """Returns (from, to, points) of the largest fall between neighboring levels, the first of equal ones."""
    right = {0: n_full} | {level: n_full + each.gained - each.lost for level, each in changes.items()}
    steps = [(right[to] - right[at], at, to) for at, to in pairwise(sorted(right))]
    fall, at, to = min(steps, default=(0, 0, 0))
    return (at / 1000, to / 1000, 100 * fall / n) if fall < 0 else (math.nan, math.nan, math.nan)

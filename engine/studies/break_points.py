"""How much of one axis a task can lose, read from a swept curve in two ways."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from engine.questions.requests import TaskSpec
from engine.statistics import wilson
from engine.studies.sweeps import Row

AT_CHANCE, NOT_MEASURED = "at chance", "not measured"


@dataclass(frozen=True)
class BreakPoint:
    """How much of one axis a task can lose (0-1): `first_loss` is the smallest level whose accuracy is significantly
    below the full model's (exact McNemar, 5 %; nan: none), `level` the measured one before it, or the largest where
    there is none. `inflection` is where the curve bends down most, the paper's reading: the most negative second
    difference among the levels behind which accuracy falls (nan: none, or fewer than 3 levels). All three are nan where
    nothing can be read, and `reading` says why: "at chance", the full model's own interval holds the accuracy of
    guessing, so that there is nothing to lose; "not measured", fewer than two levels are. `n`: questions."""

    task: TaskSpec
    level: float
    first_loss: float
    inflection: float
    full_acc: float
    chance: float
    n: int = 0
    reading: str = ""

    def cells(self) -> dict[str, Any]:
        """The row of a table."""
        return asdict(self) | {"task": self.task.name, "shots": self.task.shots}


def break_points(rows: Sequence[Row], axis: str) -> list[BreakPoint]:
    """One for each task of `rows`, which are of one ranking with the other axis at 0; `axis` is heads or ffns."""
    found = []
    for task in dict.fromkeys(row.point.task for row in rows):
        mine = sorted((row for row in rows if row.point.task == task), key=lambda row: row.point.permille(axis))
        n, chance, n_right = mine[0].n, mine[0].chance, round(mine[0].acc * mine[0].n)
        n_full = n_right - mine[0].gained + mine[0].lost
        reading = AT_CHANCE if wilson(n_full, n)[0] <= chance or not n_full else NOT_MEASURED if len(mine) < 2 else ""
        read = (math.nan, math.nan, math.nan) if reading else _read(mine, axis)
        found.append(BreakPoint(task, *read, n_full / n, chance, n, reading))
    return found


def _read(mine: Sequence[Row], axis: str) -> tuple[float, float, float]:
    """(level, first_loss, inflection) of one task's rows, the lowest level first."""
    levels = [row.point.permille(axis) / 1000 for row in mine]
    first_loss = min((level for level, row in zip(levels, mine, strict=True) if row.is_loss), default=math.nan)
    before = [level for level in levels if not level >= first_loss]
    steps = np.diff([round(row.acc * row.n) for row in mine])  # of whole numbers, so that ties are ties
    bend = np.where(steps[1:] < 0, np.diff(steps), 0)
    inflection = levels[1 + int(bend.argmin())] if len(bend) and bend.min() < 0 else math.nan
    return max(before, default=0.0), first_loss, inflection

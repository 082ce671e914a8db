"""How much of one axis a task can lose, read from a swept curve in two ways."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from engine.questions.requests import TaskSpec
from engine.studies.sweeps import Row


@dataclass(frozen=True)
class BreakPoint:
    """How much of one axis a task can lose (0-1): `level` is the largest at which accuracy is not significantly below
    the full model's (exact McNemar, 5 %), `first_loss` the smallest at which it is (nan: none). `inflection` is where
    the curve bends down most, the paper's reading: the most negative second difference (nan: fewer than 3 levels)."""

    task: TaskSpec
    level: float
    first_loss: float
    inflection: float
    full_acc: float
    chance: float

    def cells(self) -> dict[str, Any]:
        """The row of a table."""
        return asdict(self) | {"task": self.task.name, "shots": self.task.shots}


def break_points(rows: Sequence[Row], axis: str) -> list[BreakPoint]:
    """One for each task of `rows`, which are of one ranking with the other axis at 0; `axis` is heads or ffns."""
    found = []
    for task in dict.fromkeys(row.point.task for row in rows):
        mine = sorted((row for row in rows if row.point.task == task), key=lambda row: row.point.permille(axis))
        levels, right = (
            [row.point.permille(axis) / 1000 for row in mine],
            np.array([round(row.acc * row.n) for row in mine]),
        )
        losses = [level for level, row in zip(levels, mine, strict=True) if row.is_loss]
        kept = [level for level, row in zip(levels, mine, strict=True) if not row.is_loss]
        bend = np.diff(right, 2)  # of whole numbers, so that ties are ties
        full_acc = mine[0].acc - (mine[0].gained - mine[0].lost) / mine[0].n
        inflection = levels[1 + int(bend.argmin())] if len(bend) and bend.min() < 0 else math.nan
        found.append(BreakPoint(task, max(kept, default=0.0), min(losses, default=math.nan), inflection,
                                full_acc, mine[0].chance))  # fmt: skip
    return found

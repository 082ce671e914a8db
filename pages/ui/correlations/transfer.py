"""Accuracy of each task by the orders of others."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd

from engine.models.session import Target
from engine.questions.requests import TaskSpec
from engine.studies.study import pool_of
from engine.studies.sweeps import SweepRow, Swept, points, sweep
from pages.ui.controls.first_views import transfer_percent
from pages.ui.controls.many_tasks import setting_of
from pages.ui.controls.study import Setup
from pages.ui.figures.transfer import transfer_rows, worst_transfer
from pages.ui.page.tables import shared_prefix
from pages.ui.page.work import Work

TITLE = "Pruning by another task's order"


@dataclass(frozen=True)
class Transfer:
    """The accuracy of tasks by their own orders and by those of each other."""

    work: Work[Swept]
    tasks: Sequence[TaskSpec]
    permille: int  # the level of heads

    @property
    def n_tasks(self) -> int:
        return len(self.tasks)

    @property
    def named(self) -> dict[str, TaskSpec]:
        """The tasks by their names in `rows`."""
        n = shared_prefix([task.name for task in self.tasks])
        return {task.name[n:]: task for task in self.tasks}

    @cached_property
    def rows(self) -> pd.DataFrame | None:
        """`rows_of` the results, or None until all of them are there: the same wherever a run of the page asks."""
        found = max((each.rows for each in self.work.stored()), key=len, default=())
        return rows_of(found) if len(found) == self.n_tasks * (self.n_tasks + 1) else None

    @property
    def costliest(self) -> list[str]:
        """The task that loses most by another's order, and that other; [] if none does, or that is unknown."""
        worst = None if self.rows is None else worst_transfer(self.rows)
        return [] if worst is None else [self.named[worst.task].name, self.named[worst.source].name]


def transfer(slot: str, setup: Setup, target: Target, tasks: Sequence[TaskSpec], score: str) -> Transfer:
    """Returns the transfer between these tasks at the level of `transfer_percent`, by a gradient `score`."""
    permille, names = 10 * transfer_percent(target.spec.is_demo), [task.name for task in tasks]
    wanted = points(tasks, [permille], [0], "own")
    wanted += [each for name in names for each in points(tasks, [permille], [0], "task", name)]
    setting = replace(setting_of(setup), heads_by=score)
    return Transfer(Work(slot, TITLE, sweep(target, setting, wanted, pool_of(names)), 3), tasks, permille)


def rows_of(found: Sequence[SweepRow]) -> pd.DataFrame:
    """Returns `transfer_rows` of these, without the beginning that all names share."""
    own, others = ([row for row in found if row.point.by == by] for by in ("own", "task"))
    frame = transfer_rows(others, own)
    n = shared_prefix(frame["task"].unique().tolist())
    return frame.assign(task=frame["task"].str[n:], source=frame["source"].str[n:])

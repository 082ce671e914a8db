"""Accuracy of each task by the orders of others, as the Sweeps screen measures it."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from engine.measurement import Measurement
from engine.models.session import Target
from engine.questions.requests import TaskSpec
from engine.studies.study import pool_of
from engine.studies.sweeps import Swept, points, sweep
from pages.ui.controls.first_views import JUDGES, transfer_percent
from pages.ui.controls.many_tasks import setting_of
from pages.ui.controls.sidebar import Setup
from pages.ui.figures.transfer import transfer_rows
from pages.ui.page.tables import shared_prefix


def transfer(setup: Setup, target: Target, tasks: Sequence[TaskSpec], score: str) -> Measurement[Swept]:
    """Returns the accuracy of each task by its own order and by that of every other, by a gradient `score`, at the
    level that Sweeps opens with."""
    permille = 10 * transfer_percent(target.spec.is_demo)
    names = [task.name for task in tasks]
    wanted = points(tasks, [permille], [0], "own")
    wanted += [each for name in names for each in points(tasks, [permille], [0], "task", name)]
    return sweep(target, replace(setting_of(setup, JUDGES), heads_by=score), wanted, pool_of(names))


def rows_of(found: Swept) -> pd.DataFrame:
    """Returns `transfer_rows` of these, without the beginning that all names share."""
    own, others = ([row for row in found.rows if row.point.by == by] for by in ("own", "task"))
    frame = transfer_rows(others, own)
    n = shared_prefix(frame["task"].unique().tolist())
    return frame.assign(task=frame["task"].str[n:], source=frame["source"].str[n:])

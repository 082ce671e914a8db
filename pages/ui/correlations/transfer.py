"""What pruning each task by the order of another costs, as the Sweeps screen measures it."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from engine.errors import HeadroomError
from engine.models.session import Target
from engine.questions.requests import TaskSpec
from engine.studies.statements import SMALL_LOSS
from engine.studies.study import pool_of
from engine.studies.sweeps import SweepRow, points, sweep
from pages.ui.controls.first_views import JUDGES, transfer_percent
from pages.ui.controls.many_tasks import setting_of
from pages.ui.controls.sidebar import Setup
from pages.ui.page.reads import stored_once
from pages.ui.page.tables import number, plain, whole_percent


def stored_in_words(setup: Setup, target: Target, tasks: Sequence[TaskSpec], shots: int, score: str) -> str:
    """Returns what tasks lose by the ranking of another, by a gradient `score`, at the level that Sweeps opens with;
    "" if not all of that is stored."""
    here, percent = [task for task in tasks if task.shots == shots], transfer_percent(target.spec.is_demo)
    names = [task.name for task in here]
    wanted = points(here, [10 * percent], [0], "own")
    wanted += [each for name in names for each in points(here, [10 * percent], [0], "task", name)]
    setting = replace(setting_of(setup, JUDGES), heads_by=score)
    with suppress(HeadroomError):  # which the screen that measures it reports
        found = stored_once(sweep(target, setting, wanted, pool_of(names)))
        return "" if found is None or found.failed else in_words(found.rows, percent)
    return ""


def in_words(rows: Sequence[SweepRow], percent: int) -> str:
    """Returns the largest loss by the ranking of another task against the task's own, in points of accuracy."""
    own = {row.point.task: row.acc for row in rows if row.point.by == "own"}
    others = [row for row in rows if row.point.by == "task" and row.point.of != row.point.task.name]
    if not others:
        return ""
    lost, worst = max(((100 * (own[row.point.task] - row.acc), row) for row in others), key=lambda each: each[0])
    at = f"At {whole_percent(percent / 100)} of heads pruned"
    if lost < SMALL_LOSS:
        return f"{at}, no task loses {SMALL_LOSS} points or more by the ranking of another."
    task, of = worst.point.task.title, worst.point.of
    return f"{at}, {plain(task)} loses **{number(lost, 0)} points** by the ranking of {plain(of)} (the worst)."

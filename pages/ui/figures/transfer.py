"""What pruning a task by the order of another costs: rows and a sentence."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from engine.studies.statements import SMALL_LOSS
from engine.studies.sweeps import SweepRow
from pages.ui.page.tables import number, whole_percent


def transfer_rows(rows: Sequence[SweepRow], own: Sequence[SweepRow]) -> pd.DataFrame:
    """Returns one row per judged task and task whose order pruned it: task, source, acc, lost (points against its own
    order's accuracy at the same level), and whether the two 95% intervals are apart: clear."""
    by_own = {(row.point.task, row.point.heads_permille): row for row in own}
    found = []
    for row in rows:
        source = row.point.of or {"aggregate": "all tasks", "others": "all others"}.get(row.point.by, row.point.by)
        task, mine = row.point.task, by_own.get((row.point.task, row.point.heads_permille))
        lost = math.nan if mine is None else 100 * (mine.acc - row.acc)
        is_clear = mine is not None and (row.high < mine.low or mine.high < row.low)
        found.append((task.name, task.shots, source, row.acc, lost, source == task.name, is_clear))
    return pd.DataFrame(found, columns=["task", "shots", "source", "acc", "lost", "own", "clear"])


@dataclass(frozen=True)
class WorstTransfer:
    """The largest loss of a task by the order of another."""

    task: str
    lost: float  # points
    source: str  # the task by whose order it is lost
    is_clear: bool  # the 95% interval of its accuracy is apart from that by its own order


def worst_transfer(frame: pd.DataFrame) -> WorstTransfer | None:
    """Returns the largest loss of these rows; None if none is as large as `SMALL_LOSS`."""
    others = frame[~frame["own"] & (frame["source"] != "all tasks")].dropna(subset=["lost"])
    if others.empty or others["lost"].max() < SMALL_LOSS:
        return None
    worst = others.nlargest(1, "lost").iloc[0]
    return WorstTransfer(worst["task"], worst["lost"], worst["source"], bool(worst["clear"]))


def transfer_in_words(frame: pd.DataFrame, level: float) -> str:
    """Returns whether tasks need the same heads: the largest loss by the order of another task."""
    at, worst = f"at {whole_percent(level)} of heads pruned", worst_transfer(frame)
    if worst is None:
        return f"**These tasks could share one ranking**: {at}, none loses {SMALL_LOSS} points by that of another."
    said = f"{at}, {worst.task} loses **{number(worst.lost, 0)} points** by the ranking of {worst.source}."
    return f"**Not all tasks need the same heads**: {said}" if worst.is_clear else f"{said[0].upper()}{said[1:]}"

"""Accuracy of each task by the orders of others, as the Sweeps screen measures it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd

from engine.importance.importance import Scores
from engine.importance.rankings import n_pruned, order
from engine.models.session import Target
from engine.questions.requests import TaskSpec
from engine.studies.study import pool_of
from engine.studies.sweeps import SweepRow, Swept, points, sweep
from pages.ui.controls.first_views import JUDGES, transfer_percent
from pages.ui.controls.many_tasks import setting_of
from pages.ui.controls.sidebar import Setup
from pages.ui.figures.transfer import transfer_rows, worst_in_words, worst_transfer
from pages.ui.page.tables import shared_prefix
from pages.ui.page.work import Work

TITLE = "Pruning by another task's order"
MOST_DECIDING = 2  # heads: more are not named


@dataclass(frozen=True)
class CostliestOrder:
    """The order of another task that costs a task most; empty if none costs anything, or that is unknown."""

    names: Sequence[str] = ()  # the task, and the one whose order prunes it
    heads: Sequence[str] = ()  # pruned by this order, and those as costly, alone; none if more than `MOST_DECIDING`
    words: str = ""  # names them, and says if it is the task's most important one


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

    def costliest(self, scores: Mapping[str, Scores]) -> CostliestOrder:
        """Returns the costliest order of the results; `scores`: by task, of heads."""
        if self.rows is None or (worst := worst_transfer(self.rows)) is None:
            return CostliestOrder()
        named = self.named
        judged, sources = named[worst.task].name, [named[source].name for source in worst.sources]
        heads = only_pruned_by(sources, scores, self.permille)
        heads = heads if len(heads) <= MOST_DECIDING else []
        of_task = scores[judged].scores
        words = " and ".join(f"**{head}**" for head in heads)
        if heads == [_name(int(of_task.argmax()), of_task.shape)]:
            words += ", its most important head"
        return CostliestOrder((judged, sources[0]), heads, words)


def transfer(slot: str, setup: Setup, target: Target, tasks: Sequence[TaskSpec], score: str) -> Transfer:
    """Returns the transfer between these tasks at the level that Sweeps opens with, by a gradient `score`."""
    permille, names = 10 * transfer_percent(target.spec.is_demo), [task.name for task in tasks]
    wanted = points(tasks, [permille], [0], "own")
    wanted += [each for name in names for each in points(tasks, [permille], [0], "task", name)]
    setting = replace(setting_of(setup, JUDGES), heads_by=score)
    return Transfer(Work(slot, TITLE, sweep(target, setting, wanted, pool_of(names)), 3), tasks, permille)


def costliest_in_words(rows: pd.DataFrame, level: float, of: CostliestOrder) -> str:
    """Returns the finding of all costs: whether tasks need the same heads, and `worst_in_words`."""
    worst, words = worst_transfer(rows), worst_in_words(rows, level, of.words)
    if worst is not None and not worst.is_clear:
        return words
    lead = "These tasks could share one ranking" if worst is None else "Not all tasks need the same heads"
    return f"**{lead}**: {words[0].lower()}{words[1:]}"


def only_pruned_by(sources: Sequence[str], scores: Mapping[str, Scores], permille: int) -> list[str]:
    """Returns the heads that the orders of all these tasks prune at a level, and no other order does."""
    shape = next(iter(scores.values())).scores.shape
    n = n_pruned(permille, math.prod(shape))
    pruned = {name: {*order(each.scores, each.tie_break)[:n].tolist()} for name, each in scores.items()}
    found = set.intersection(*(pruned[name] for name in sources))
    found = found.difference(*(heads for name, heads in pruned.items() if name not in sources))
    return [_name(at, shape) for at in sorted(found)]


def _name(head: int, shape: tuple[int, ...]) -> str:
    return f"L{head // shape[1]}H{head % shape[1]}"


def rows_of(found: Sequence[SweepRow]) -> pd.DataFrame:
    """Returns `transfer_rows` of these, without the beginning that all names share."""
    own, others = ([row for row in found if row.point.by == by] for by in ("own", "task"))
    frame = transfer_rows(others, own)
    n = shared_prefix(frame["task"].unique().tolist())
    return frame.assign(task=frame["task"].str[n:], source=frame["source"].str[n:])

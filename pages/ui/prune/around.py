"""What stands around the curve, as far as it is stored: the curves of other tasks, and the range of random orders.

Nothing is measured or rendered for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pandas as pd

from engine.accuracy.evaluation import accuracy
from engine.errors import HeadroomError
from engine.importance.orders import Axis, Ranking
from engine.models.session import Session
from engine.progress import LeftToMeasuring
from engine.questions.rendering import render_questions
from engine.studies.compare import RANDOM, SEEDS
from pages.ui.controls.many_tasks import local_tasks
from pages.ui.page.runtime import session, store
from pages.ui.page.work import Action, Work
from pages.ui.prune.charts import NOTHING_AROUND, Pair
from pages.ui.prune.experiment import Experiment, curve

SLOT = "around"
LEAST_LEVELS, LEAST_SEEDS = 3, 3  # of a curve, and of a range at a level


@dataclass(frozen=True)
class Around:
    """The curves of other tasks (task, level, acc) and the range of random orders (level, low, high), along one axis of
    an experiment (`of`, a `curve_key`)."""

    of: str = ""
    frames: Pair = field(default=NOTHING_AROUND)


def read_around(x: Experiment, axis: Axis, tasks: Sequence[str], session: Session) -> Around:
    """Returns what is stored around the curve over `axis`, of these tasks."""
    rows = []
    for name in tasks:
        try:
            found = _points(_of_task(x, name, session), axis, session)
        except (HeadroomError, LeftToMeasuring):  # not asked here, or not rendered
            continue
        if len(found) >= LEAST_LEVELS:
            rows += [{"task": name, "level": level / 1000, "acc": acc} for level, acc in found.items()]
    by_level: dict[int, list[float]] = {}
    for seed in range(SEEDS):
        ranking = Ranking(RANDOM, seed, layers_by=x.pruning.ranking.layers_by)
        for level, acc in _points(replace(x, pruning=replace(x.pruning, ranking=ranking)), axis, session).items():
            by_level.setdefault(level, []).append(acc)
    band = [{"level": level / 1000, "low": min(each), "high": max(each)}
            for level, each in by_level.items() if len(each) >= LEAST_SEEDS]  # fmt: skip
    others, around = (pd.DataFrame(found, columns=none.columns)
                      for found, none in zip((rows, band), NOTHING_AROUND, strict=True))  # fmt: skip
    return Around(x.curve_key(axis), (others, around))


def around_work(x: Experiment, axis: Axis) -> Work[Around]:
    """Returns the work that reads what is stored around the curve; again when something was stored."""
    others = [name for name in local_tasks(x.data_dir) if name != x.task.name]
    read = partial(read_around, x, axis, others, session())
    return Work(SLOT, "Curves", Action.of(f"{x.curve_key(axis)} {store().n_puts}", read, reads=True), 2)


def _of_task(x: Experiment, name: str, session: Session) -> Experiment:
    """Returns the same experiment on another task."""
    task = replace(x.task, name=name)
    both = [render_questions(each, x.data_dir, session.store) for each in (task, replace(task, split="train"))]
    return replace(x, validation=both[0], train=both[1], pruning=replace(x.pruning, task=task))


def _points(x: Experiment, axis: Axis, session: Session) -> dict[int, float]:
    """Returns the stored accuracies of a curve, by level."""
    found = curve(x, axis, x.known(session)).so_far(session) or {}
    return {level: accuracy(answers).acc for level, (_, answers) in found.items() if x.has_all(answers)}

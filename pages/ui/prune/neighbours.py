"""The Prune screen's idle work: the levels around the one that is set, measured while nothing else is under way."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from engine.importance.rankings_of import Axis, Evidence
from engine.models.subject import Lab
from engine.progress import Progress
from pages.ui.prune.experiment import LEVELS_PERMILLE, Experiment, measure_levels
from pages.ui.prune.forecasts import seconds_at, within
from pages.ui.prune.jobs import ORDERS
from pages.ui.shared.runtime import budget_s, in_memory, jobs, lab
from pages.ui.shared.work import Work, under_way

SLOT = "neighbours"
PRIORITY = 5  # behind everything
WAIT_S = 1.5  # after the last movement: whoever is about to move on is not disturbed
OTHERS = ("accuracy", "gradients", "curve", "importance", *ORDERS.values(), "estimates", "cost", "questions",
          "train questions", "perplexity", "second model", "curve of the second model")  # fmt: skip


@dataclass
class Idle:
    """What one run of the page, at `since_s` on `time.monotonic`, leaves to be measured along one axis: `levels`, in
    this order."""

    x: Experiment
    axis: Axis
    known: Evidence
    levels: tuple[int, ...]
    since_s: float
    drawn: bool = False

    @property
    def key(self) -> str:
        return f"{self.axis} {self.x.key}"

    @property
    def work(self) -> Work[int]:
        return Work(SLOT, self.key, "Neighbouring levels", partial(measure, self, lab()), PRIORITY, while_seen=True)

    @property
    def wanted(self) -> bool:
        """Whether there is something left that can be measured now."""
        job = self.work.now()
        stopped = job is not None and job.state in ("failed", "cancelled")
        complete = job is not None and job.state == "done" and job.done == job.total
        return bool(self.levels) and not stopped and not complete

    def look_in(self) -> None:
        """What the page calls each time it draws: from the second time on, which is a timer's and not the user's, it
        starts the work when nothing else is under way, in any tab."""
        busy = under_way((*OTHERS, SLOT))
        if self.drawn and self.wanted and not busy and time.monotonic() > self.since_s + WAIT_S:
            self.work.start()
        self.drawn = True

    def in_words(self) -> str:
        """How the work stands, "" while there is none."""
        job = self.work.now()
        if job is None or job.finished or not job.total:
            return ""
        return f"While idle: {job.value or 0} of {job.total // self.x.questions.n} neighbouring levels measured."


def levels_to_measure(x: Experiment, axis: Axis, known: Evidence, measured: set[int]) -> tuple[int, ...]:
    """The levels of the 10 % grid that are missing, nearest first, as many as are within the budget of what nobody
    asked for; none where that takes a ranking that is not known, or a model that is not in memory: idle work is to
    measure, not to prepare."""
    if not in_memory(x.subject.spec) or x.at(axis, 1000).mask(known) is None:
        return ()
    levels = sorted(set(LEVELS_PERMILLE) - measured, key=lambda level: abs(level - x.pruning.level(axis)))
    return within(budget_s(), levels, seconds_at(x, axis, known, levels, lab()))


def measure(idle: Idle, lab: Lab) -> Iterator[Progress[int]]:
    """Job: the missing levels; its value is how many are measured."""
    yield from measure_levels(idle.x, idle.axis, idle.x.orders(idle.known), idle.levels, lab)


def stop() -> None:
    """Abandons the idle work: the user has something else in mind."""
    if under_way([SLOT]):
        jobs().drop(SLOT)

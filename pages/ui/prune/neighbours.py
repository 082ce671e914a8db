"""The Prune screen's idle work: the levels around the present one, measured while nothing else is under way."""

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate

from engine.importance.rankings_of import Axis, Evidence
from pages.ui.page.runtime import budget_s, in_memory, jobs, store
from pages.ui.page.work import Work, under_way
from pages.ui.prune.experiment import LEVELS_PERMILLE, Curve, Experiment, curve
from pages.ui.prune.jobs import MEASURING

SLOT = "neighbours"
PRIORITY = 5  # after everything else
WAIT_S = 1.5  # after the last movement, so as not to disturb the next one
OTHERS = (*MEASURING, "estimates", "cost", "questions", "train questions", "perplexity", "second model",
          "curve of the second model")  # fmt: skip


@dataclass
class Idle:
    """The idle work that one run of the page leaves to be measured."""

    x: Experiment  # the experiment
    axis: Axis  # whose level varies
    known: Evidence  # its scores so far
    levels: tuple[int, ...]  # to be measured, in this order
    since_s: float  # when the page ran (time.monotonic)
    drawn: bool = False  # a page with it has been drawn

    @property
    def work(self) -> Work[Curve]:
        levels = replace(curve(self.x, self.axis, self.known, self.levels), about=(self.axis, self.x.key))
        return Work(SLOT, "Neighbouring levels", levels, PRIORITY, while_seen=True)

    @property
    def wanted(self) -> bool:
        """Returns whether something is left that can be measured now."""
        job = self.work.now()
        return bool(self.levels) and (job is None or not job.finished)

    def completes(self, axis: Axis, measured: Iterable[float]) -> bool:
        """Returns whether it measures all levels of the axis that are not `measured` (0-1)."""
        return axis == self.axis and self.wanted and missing(measured) <= {*self.levels}

    def look_in(self) -> None:
        """Called by the page each time it draws: from the second time on, which is a timer's and not the user's, it
        starts the work when nothing else is under way in this tab; it gives way to the work of other tabs."""
        busy = under_way((*OTHERS, SLOT))
        is_time = self.drawn and time.monotonic() > self.since_s + WAIT_S
        if is_time and self.wanted and not busy and in_memory(self.x.target.spec):
            self.work.start()
        self.drawn = True

    def in_words(self) -> str:
        """Returns the work's progress as text, "" while there is none."""
        job = self.work.now()
        if job is None or job.finished or not job.total:
            return ""
        return f"While idle: {len(job.value or ())} of {job.total // self.x.questions.n} neighboring levels measured."


def levels_to_measure(x: Experiment, axis: Axis, known: Evidence, measured: Iterable[float]) -> tuple[int, ...]:
    """Returns the levels of the 10% grid that are not `measured` (0-1), nearest first, up to the budget of background
    work; none if that needs an order that is not known, or a model that is not in memory: idle work only measures, it
    does not prepare."""
    if not in_memory(x.target.spec) or x.at(axis, 1000).mask(known) is None:
        return ()
    levels = sorted(missing(measured), key=lambda level: abs(level - x.pruning.level(axis)))
    each = [x.workload(x.at(axis, level).mask(known)).seconds(store(), x.target) for level in levels]
    ends = accumulate(math.inf if takes_s is None else takes_s for takes_s in each)
    return tuple(level for level, end_s in zip(levels, ends, strict=True) if end_s <= budget_s())


def missing(measured: Iterable[float]) -> set[int]:
    """Returns the levels of the 10% grid that are not `measured` (0-1)."""
    return {*LEVELS_PERMILLE} - {round(1000 * level) for level in measured}


def stop() -> None:
    """Abandons the idle work: the user has moved on."""
    if under_way([SLOT]):
        jobs().drop(SLOT)

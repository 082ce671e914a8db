"""The Prune screen's idle work: the levels around the one that is set, measured while nothing else is under way.

A page in a browser asks for it again and again: when it stops asking, because the tab was closed or shows another
screen, the work ends.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from engine.importance.rankings_of import Evidence, orders_from
from engine.jobs import Progress
from engine.models.loading import Models
from pages.ui.prune.experiment import LEVELS_PERMILLE, Axis, Experiment, measure_levels
from pages.ui.shared.runtime import jobs, models, store

SLOT = "neighbours"
PRIORITY = 5  # behind everything
PATIENCE_S = 5.0  # without a sign of the page the work ends; a page looks in every second
WAIT_S = 1.5  # after the last movement: whoever is about to move on is not disturbed
OTHERS = ("accuracy", "gradients", "curve", "importance", "estimates", "cost", "questions", "train questions")

_seen_s: dict[str, float] = {}  # by key of the work: when a page last looked in


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
    def wanted(self) -> bool:
        """Whether there is something left that can be measured now."""
        job = jobs().snapshot(SLOT)
        ended = job is not None and job.key == self.key and (
            job.state in ("failed", "cancelled") or (job.state == "done" and job.done == job.total)
        )  # fmt: skip
        return bool(self.levels) and not ended

    def look_in(self) -> None:
        """What the page calls each time it draws: from the second time on, which is a timer's and not the user's, it
        starts the work when nothing else is under way, in any tab."""
        now_s = _seen_s[self.key] = time.monotonic()
        jobs_now = [jobs().snapshot(slot) for slot in (*OTHERS, SLOT)]
        busy = any(job is not None and not job.finished for job in jobs_now)
        if self.drawn and self.wanted and not busy and now_s > self.since_s + WAIT_S:
            jobs().submit(SLOT, self.key, partial(measure_while_seen, self, models(), store()), PRIORITY, again=True)
        self.drawn = True

    def in_words(self) -> str:
        """How the work stands, "" while there is none."""
        job = jobs().snapshot(SLOT)
        if job is None or job.key != self.key or job.finished or not job.total:
            return ""
        return f"While idle: {job.value or 0} of {job.total // self.x.selection.n} neighbouring levels measured."


def levels_to_measure(x: Experiment, axis: Axis, known: Evidence, measured: set[int]) -> tuple[int, ...]:
    """The levels of the 10 % grid that are missing, nearest first; none where that takes a ranking that is not known,
    or a model that is not in memory: idle work is to measure, not to prepare."""
    loaded = models().loaded
    if loaded is None or loaded.spec != x.spec or x.at(axis, 1000).mask(known) is None:
        return ()
    return tuple(sorted(set(LEVELS_PERMILLE) - measured, key=lambda level: abs(level - x.level(axis))))


def measure_while_seen(idle: Idle, models: Models, store: Any) -> Iterator[Progress]:
    """Job: the missing levels, for as long as the page looks in; its value is how many are measured."""
    orders = orders_from(idle.x.identity.shape, idle.x.ranked, idle.known)
    for step in measure_levels(idle.x, idle.axis, orders, idle.levels, models, store):
        yield step
        if time.monotonic() > _seen_s.get(idle.key, 0.0) + PATIENCE_S:
            break
    _seen_s.pop(idle.key, None)


def stop() -> None:
    """Abandons the idle work: the user has something else in mind."""
    job = jobs().snapshot(SLOT)
    if job is not None and not job.finished:
        jobs().drop(SLOT)

"""The Prune screen's idle work: the levels around the one that is set, measured while nothing else is under way.

A page in a browser asks for it again and again: when it stops asking, because the tab was closed or shows another
screen, the work ends.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import streamlit as st

from engine.importance.rankings_of import Axis, Evidence
from engine.models.subject import Lab
from engine.progress import Progress
from pages.ui.prune.experiment import LEVELS_PERMILLE, Experiment, measure_levels
from pages.ui.shared.runtime import in_memory, jobs, lab
from pages.ui.shared.work import Work, under_way

SLOT = "neighbours"
PRIORITY = 5  # behind everything
PATIENCE_S = 5.0  # without a sign of the page the work ends; a page looks in every second
WAIT_S = 1.5  # after the last movement: whoever is about to move on is not disturbed
OTHERS = ("accuracy", "gradients", "curve", "importance", "estimates", "cost", "questions", "train questions")


@st.cache_resource(show_spinner=False)
def seen_s() -> dict[str, float]:
    """By key of the work: when a page last looked in, of all tabs; what no page looks in at any more is forgotten."""
    return {}


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
    seen_s: dict[str, float] = field(default_factory=seen_s)

    @property
    def key(self) -> str:
        return f"{self.axis} {self.x.key}"

    @property
    def work(self) -> Work[int]:
        return Work(SLOT, self.key, "Neighbouring levels", partial(measure_while_seen, self, lab()), PRIORITY)

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
        now_s = time.monotonic()
        for key, at_s in list(self.seen_s.items()):
            if now_s > at_s + PATIENCE_S:
                self.seen_s.pop(key, None)
        self.seen_s[self.key] = now_s
        busy = under_way((*OTHERS, SLOT))
        if self.drawn and self.wanted and not busy and now_s > self.since_s + WAIT_S:
            self.work.restart()
        self.drawn = True

    def in_words(self) -> str:
        """How the work stands, "" while there is none."""
        job = self.work.now()
        if job is None or job.finished or not job.total:
            return ""
        return f"While idle: {job.value or 0} of {job.total // self.x.questions.n} neighbouring levels measured."


def levels_to_measure(x: Experiment, axis: Axis, known: Evidence, measured: set[int]) -> tuple[int, ...]:
    """The levels of the 10 % grid that are missing, nearest first; none where that takes a ranking that is not known,
    or a model that is not in memory: idle work is to measure, not to prepare."""
    if not in_memory(x.subject.spec) or x.at(axis, 1000).mask(known) is None:
        return ()
    return tuple(sorted(set(LEVELS_PERMILLE) - measured, key=lambda level: abs(level - x.pruning.level(axis))))


def measure_while_seen(idle: Idle, lab: Lab) -> Iterator[Progress[int]]:
    """Job: the missing levels, for as long as the page looks in; its value is how many are measured."""
    for step in measure_levels(idle.x, idle.axis, idle.x.orders(idle.known), idle.levels, lab):
        yield step
        if time.monotonic() > idle.seen_s.get(idle.key, 0.0) + PATIENCE_S:
            break


def stop() -> None:
    """Abandons the idle work: the user has something else in mind."""
    if under_way([SLOT]):
        jobs().drop(SLOT)

"""The Prune screen's jobs and what it knows while a slider moves: nothing is measured then, and nothing is read."""

import sys
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from engine.importance.rankings_of import Evidence
from engine.jobs import Snapshot
from engine.models.masks import Mask
from pages.ui.prune import estimates, experiment, neighbours
from pages.ui.prune.estimates import Estimates
from pages.ui.prune.experiment import Axis, Experiment, Measured
from pages.ui.prune.neighbours import Idle
from pages.ui.prune.tables import curve_points
from pages.ui.shared.controls import hand_level
from pages.ui.shared.runtime import jobs, models, store

AT_ONCE_S = 0.2  # what is stored shows within the same run
FIRST_S = 0.3  # the first figure comes before the charts are drawn, unless it takes longer
FIGURE_S = 0.35  # how often it is redrawn while it is measured: each time the worker waits
MEASURING = ("accuracy", "gradients", "curve", "importance")
AXES: tuple[Axis, ...] = ("heads", "ffns")


@dataclass
class Shown:
    """What the last run of the whole page found, and what it drew."""

    x: Experiment
    title: str
    known: Evidence
    mask: Mask | None
    stored: Measured
    estimates: Estimates
    waits: list[str]
    postponed: bool  # nothing is measured before the browser has drawn this once
    drawn: bool = False
    idle: Idle | None = None
    points: dict[str, tuple[int, pd.DataFrame]] = field(default_factory=dict)  # by axis, with what was stored then

    def at_hand(self) -> Experiment:
        """The experiment at the levels where the hand has the sliders."""
        x = self.x
        for axis in AXES:
            x = x.at(axis, hand_level("prune", axis).permille)
        return x

    def texts(self, axis: Axis) -> dict[int, str]:
        """What the slider of the axis says under each of its steps."""
        return estimates.texts(self.x, axis, self.known, self.estimates.line(self.x, axis))

    def curve(self, axis: Axis) -> pd.DataFrame:
        """The measured levels of the axis; nothing is read while a slider moves."""
        puts = store().n_puts
        if axis not in self.points or (self.points[axis][0] != puts and not moving()):
            self.points[axis] = puts, curve_points(self.x, axis, self.known, store())
        return self.points[axis][1]

    def job(self) -> tuple[Snapshot | None, Measured]:
        """This experiment's job, if it has one, and the answers so far."""
        job = jobs().snapshot("accuracy")
        job = job if job is not None and job.key == self.x.key else None
        return job, job.value if job is not None and job.value is not None else self.stored


def moving() -> list[Axis]:
    """The axes whose slider is in the hand."""
    return [axis for axis in AXES if hand_level("prune", axis).moving]


def let_go_of(x: Experiment) -> None:
    """Abandons the measuring of this experiment and of what is beside it: the hand has moved on."""
    neighbours.stop()
    job = jobs().snapshot("accuracy")
    if job is not None and job.key == x.key and not job.finished:
        jobs().drop("accuracy")


def nothing_drawn_yet() -> bool:
    """Whether this is a tab's first page on a server that has measured nothing: the imports which that takes would keep
    the page from being drawn."""
    return "torch" not in sys.modules and not st.session_state.get("prune drawn")


def measure(x: Experiment, mask: Mask | None, again: bool = False) -> Snapshot:
    """The job that measures the experiment."""
    neighbours.stop()
    return jobs().submit("accuracy", x.key, partial(experiment.measure, x, mask, models(), store()), again=again)


def await_first_figure() -> None:
    """Waits a moment for the first answers of the pruned model: charts would keep worker and browser from them."""
    jobs().join("accuracy", FIRST_S, lambda job: job.value is not None and job.value.pruned is not None)


def await_last_answers(x: Experiment) -> None:
    """Waits for the end where it comes before the figure would be redrawn the next time."""
    job = jobs().snapshot("accuracy")
    if job is None or job.key != x.key or job.finished or not job.done or job.value is None or not job.value.pruned:
        return
    if job.seconds * (job.total - job.done) / job.done < FIGURE_S:
        jobs().join("accuracy", FIGURE_S)


def gradients_key(x: Experiment) -> str:
    """Changes with the model, its precision, the task and the questions."""
    return f"{x.base_key} {x.limit}"


def measure_gradients(x: Experiment, again: bool = False) -> Snapshot:
    """The job for what estimates are made from, behind everything else."""
    run: Any = partial(estimates.measure_gradients, x, models(), store())
    return jobs().submit("gradients", gradients_key(x), run, priority=3, again=again)


def idle_work(shown: Shown, since_s: float) -> Idle:
    """The levels of the axis that was moved last which are still to be measured once nothing else is."""
    x = shown.x
    levels = x.heads_permille, x.ffns_permille
    before, axis = st.session_state.get("prune moved") or (levels, "heads")
    if levels != before:
        axis = "heads" if levels[0] != before[0] else "ffns"
    st.session_state["prune moved"] = levels, axis
    missing = ()
    estimated = x.judged.greedy or shown.estimates.line(x, axis).estimated or gradients_given_up(x)
    if x.settled(shown.stored) and estimated:  # estimates come first
        there = {round(1000 * level) for level in shown.curve(axis)["level"]}
        missing = neighbours.levels_to_measure(x, axis, shown.known, there)
    return Idle(x, axis, shown.known, missing, since_s)


def gradients_given_up(x: Experiment) -> bool:
    """Whether the estimates' gradients were stopped or failed."""
    job = jobs().snapshot("gradients")
    return job is not None and job.key == gradients_key(x) and job.state in ("cancelled", "failed")


def look_ahead(x: Experiment, known: Evidence) -> tuple[Estimates, list[str]]:
    """The estimates there are, and the slot whose end brings others; what they are made from is measured once nothing
    else is."""
    if x.judged.greedy:
        return Estimates(), []
    if not moving() and not any(
        (job := jobs().snapshot(slot)) is not None and not job.finished for slot in MEASURING
    ):  # fmt: skip
        run = partial(estimates.read_estimates, x, known, store())
        jobs().submit("estimates", f"{x.key} {store().n_puts}", run, priority=1)
        job = jobs().join("estimates", AT_ONCE_S)
        if job is not None and job.state == "done" and not job.value.has_gradients:
            measure_gradients(x)
    return latest_estimates()


def latest_estimates() -> tuple[Estimates, list[str]]:
    """The estimates that were read last, and their slot where others are being read: from one look, so that none come
    in between unseen. Lines of other experiments are none of theirs."""
    job = jobs().snapshot("estimates")
    found = job.value if job is not None and job.value is not None else Estimates()
    return found, ["estimates"] if job is not None and not job.finished else []

"""The Prune screen's jobs and what it knows while a slider moves: nothing is measured then, and nothing is read."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pandas as pd

from engine.jobs import Snapshot
from engine.masks import Mask
from engine.pruning import Evidence
from pages.ui import estimates, experiment
from pages.ui.controls import hand_level
from pages.ui.estimates import Estimates
from pages.ui.experiment import Axis, Experiment, Measured
from pages.ui.frame import jobs, models, store

AT_ONCE_S = 0.2  # what is stored shows within the same run
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
    points: dict[str, pd.DataFrame] = field(default_factory=dict)  # by axis

    def at_hand(self) -> Experiment:
        """The experiment at the levels where the hand has the sliders."""
        x = self.x
        for axis in AXES:
            x = x.at(axis, hand_level("prune", axis).permille)
        return x

    def texts(self, axis: Axis) -> dict[int, str]:
        """What the slider of the axis says under each of its steps."""
        return estimates.texts(self.x, axis, self.known, self.estimates.line(self.x, axis))

    def job(self) -> tuple[Snapshot | None, Measured]:
        """This experiment's job, if it has one, and the answers so far."""
        job = jobs().snapshot("accuracy")
        job = job if job is not None and job.key == self.x.key else None
        return job, job.value if job is not None and job.value is not None else self.stored


def waited_for() -> list[str]:
    """The slot of the estimates while they are read: those that were there at once are drawn already."""
    job = jobs().snapshot("estimates")
    return ["estimates"] if job is not None and not job.finished else []


def moving() -> list[Axis]:
    """The axes whose slider is in the hand."""
    return [axis for axis in AXES if hand_level("prune", axis).moving]


def let_go_of(x: Experiment) -> None:
    """Abandons the measuring of this experiment: the hand has moved on."""
    job = jobs().snapshot("accuracy")
    if job is not None and job.key == x.key and not job.finished:
        jobs().drop("accuracy")


def measure(x: Experiment, again: bool = False) -> Snapshot:
    """The job that measures the experiment."""
    return jobs().submit("accuracy", x.key, partial(experiment.measure, x, models(), store()), again=again)


def gradients_key(x: Experiment) -> str:
    """Changes with the model, its precision, the task and the questions."""
    return f"{x.base_key} {x.limit}"


def measure_gradients(x: Experiment, again: bool = False) -> Snapshot:
    """The job for what estimates are made from, behind everything else."""
    run: Any = partial(estimates.measure_gradients, x, models(), store())
    return jobs().submit("gradients", gradients_key(x), run, priority=3, again=again)


def look_ahead(x: Experiment, known: Evidence) -> Estimates:
    """The estimates there are; what they are made from is measured once nothing else is."""
    if x.judged.greedy:
        return Estimates()
    if not moving() and not any(
        (job := jobs().snapshot(slot)) is not None and not job.finished for slot in MEASURING
    ):  # fmt: skip
        run = partial(estimates.read_estimates, x, known, store())
        jobs().submit("estimates", f"{x.key} {store().n_puts}", run, priority=1)
        job = jobs().join("estimates", AT_ONCE_S)
        if job is not None and job.state == "done" and not job.value.has_gradients:
            measure_gradients(x)
    job = jobs().snapshot("estimates")
    return job.value if job is not None and job.value is not None else Estimates()

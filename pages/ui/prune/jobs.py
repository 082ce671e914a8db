"""The Prune screen's work for the worker: what measures an experiment, and what is measured beside it."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from engine.importance.criteria import CRITERIA
from engine.importance.estimates import gradients
from engine.importance.rankings_of import Axis, Evidence
from engine.models.masks import Mask
from engine.progress import Progress
from engine.questions.requests import Requests, TaskSpec
from pages.ui.prune import experiment, forecasts
from pages.ui.prune.estimates import Estimates, read_estimates
from pages.ui.prune.experiment import AnswersSoFar, Experiment
from pages.ui.shared.defaults import NOUNS
from pages.ui.shared.runtime import lab, store
from pages.ui.shared.work import Work

ORDERS: dict[Axis, str] = {"heads": "order of heads", "ffns": "order of FFNs"}  # slots


def accuracy_work(x: Experiment, mask: Mask | None) -> Work[AnswersSoFar]:
    """What measures the experiment."""
    return Work("accuracy", x.key, "Accuracy", partial(experiment.measure, x, mask, lab()), while_seen=True)


def gradients_work(x: Experiment) -> Work[Any]:
    """What measures what estimates are made from, behind everything else; they are read from the store afterwards."""
    here = lab()

    def run() -> Iterator[Progress[Any]]:
        yield from (step.within() for step in gradients(x.subject, x.questions).run(here))

    key, title = f"{x.base_key} {x.limit}", f"Estimates of {x.task.name}"
    return Work("gradients", key, title, run, 3, while_seen=True, takes=partial(forecasts.gradients_s, x, here))


def ranking_work(x: Experiment, axis: Axis, known: Evidence) -> Work[Any]:
    """What measures the order of one axis, so that it is known before its slider moves."""
    run, title = partial(experiment.measure_ranking, x, axis, lab()), f"Ranking {NOUNS[axis]}"
    takes = partial(forecasts.importance_s, x, known, lab(), [axis])
    return Work(ORDERS[axis], f"{x.base_key} {x.pruning.ranking.name}", title, run, 2, True, takes)


def importance_work(x: Experiment, known: Evidence) -> Work[Any]:
    """What scores all heads and FFNs for the task."""
    run, title = partial(experiment.measure_importance, x, lab()), CRITERIA[x.criterion].label
    takes = partial(forecasts.importance_s, x, known, lab())
    return Work("importance", f"{x.base_key} {x.criterion}", title, run, 1, takes=takes)


def curve_work(x: Experiment, axis: Axis, known: Evidence, levels: Sequence[int]) -> Work[int]:
    """What measures every tenth of one level; `levels` are those that are missing."""
    run = partial(experiment.measure_curve, x, axis, lab())
    takes = partial(forecasts.curve_s, x, axis, known, levels, lab())
    return Work("curve", x.curve_key(axis), "Curve", run, 1, takes=takes)


def estimates_work(x: Experiment, known: Evidence) -> Work[Estimates]:
    """What reads the estimates there are; again when something was stored."""
    run = partial(read_estimates, x, known, lab())
    return Work("estimates", f"{x.key} {store().n_puts}", "Estimates", run, priority=1)


def questions_work(slot: str, task: TaskSpec, data_dir: str | None, priority: int) -> Work[Requests]:
    """What renders the questions of a task; finished at once where they are stored."""
    run = partial(experiment.prepare, task, data_dir, store())
    return Work(slot, f"{task} {data_dir}", "Preparing the questions", run, priority)

"""The Prune screen's work for the worker: an experiment, its orders, its estimates and its curve."""

from collections.abc import Callable
from functools import partial
from typing import Any

from engine.composed import deferred
from engine.importance.criteria import CRITERIA
from engine.importance.estimates import gradients
from engine.importance.rankings_of import PARTS, Axis
from engine.importance.rules import Evidence
from engine.measurement import Measurement
from engine.models.masks import Mask
from engine.models.session import Target
from engine.questions.requests import Requests, TaskSpec, get_requests
from pages.ui.page.defaults import NOUNS
from pages.ui.page.job_words import LONG_S
from pages.ui.page.runtime import first_figure_s, session, store
from pages.ui.page.work import Action, Work
from pages.ui.prune.estimates import Estimates, read_estimates
from pages.ui.prune.experiment import AnswersSoFar, Curve, Experiment, accuracies, curve

ORDERS: dict[Axis, str] = {"heads": "order of heads", "ffns": "order of FFNs"}  # slots
SLOW_ORDER = "slow order"  # the slot of an order that is measured at a click
# slots before all that is idle
MEASURING = ("accuracy", "gradients", "curve", "importance", SLOW_ORDER, *ORDERS.values())


def accuracy_work(x: Experiment, mask: Mask | None) -> Work[AnswersSoFar]:
    """Returns the work that measures the experiment."""
    return Work("accuracy", "Accuracy", accuracies(x, mask), while_seen=True, about=x.task.title)


def gradients_work(x: Experiment) -> Work[Any]:
    """Returns the work that measures the estimates' gradients, after everything else; only the store keeps them."""
    found = deferred(x.target, ("gradients", x.questions), lambda session: gradients(x.target, x.questions))
    return Work("gradients", f"Estimates of {x.task.title}", found.map(lambda found: None), 3, while_seen=True)


def ranking_work(x: Experiment, axis: Axis) -> Work[Evidence]:
    """Returns the work that measures the order of one axis, so that it is known before its slider moves."""
    title = f"Ranking {NOUNS[axis]}"
    return Work(ORDERS[axis], title, order_evidence(x, axis), 2, True, forecast(x), about=x.task.title)


def order_evidence(x: Experiment, axis: Axis) -> Measurement[Evidence]:
    """Returns the measurement of the scores that order one axis."""
    return x.evidence(Evidence().missing(x.pruning.ranking.name, axis == "heads", axis == "ffns"))


def importance_work(x: Experiment) -> Work[Evidence]:
    """Returns the work that scores all heads and FFNs for the task."""
    title = CRITERIA[x.criterion].label
    return Work("importance", title, x.evidence(PARTS), 1, takes=forecast(x), about=x.task.title)


def curve_work(x: Experiment, axis: Axis, known: Evidence, slot: str = "curve", title: str = "Curve") -> Work[Curve]:
    """Returns the work that measures every tenth of one level."""
    return Work(slot, title, curve(x, axis, known), 1, takes=forecast(x), about=x.task.title)


def estimates_work(x: Experiment, known: Evidence) -> Work[Estimates]:
    """Returns the work that reads the stored estimates; again when something was stored."""
    read = partial(read_estimates, x, known, session())
    return Work("estimates", "Estimates", Action.of(f"{x.key} {store().n_puts}", read, reads=True), 1)


def questions_work(slot: str, task: TaskSpec, data_dir: str | None, priority: int) -> Work[Requests]:
    """Returns the work that renders the questions of a task; finished at once if they are stored."""
    render = partial(get_requests, task, data_dir, store())
    return Work(slot, "Preparing the questions", Action.of(f"{task} {data_dir}", render, reads=True), priority)


def forecast_seconds(wanted: Measurement[Any]) -> float:
    """Returns the forecast seconds of the missing records: by timed passes of the model, else by its size."""
    return wanted.left(session()).seconds_by_size(store(), wanted.target)


def is_short(target: Target, takes_s: float | None) -> bool:
    """Returns whether work that a setting needs starts without a click: its forecast is within what a screen measures
    by itself, or unknown for the embedded model."""
    if takes_s is None:
        return target.spec.is_demo
    return takes_s <= max(LONG_S, first_figure_s())


def forecast(x: Experiment) -> Callable[[], None] | None:
    """Returns the `takes` of work on train questions, unknown until they are rendered: a page must not wait for it."""
    return None if x.train is not None else lambda: None

"""The Prune screen while a slider moves: nothing is measured then, and nothing is read."""

import sys
from dataclasses import replace

import streamlit as st

from engine.importance.rankings_of import Axis
from engine.importance.rules import Evidence
from engine.models.masks import Mask
from pages.ui.controls.drag_slider import hand
from pages.ui.controls.study import Study, drawn_axis
from pages.ui.page.defaults import AXES
from pages.ui.page.runtime import first_figure_s, jobs, store
from pages.ui.page.work import POLL_S, Work, under_way
from pages.ui.prune.estimates import Estimates
from pages.ui.prune.experiment import Experiment
from pages.ui.prune.jobs import (
    MEASURING,
    ORDERS,
    accuracy_work,
    estimates_work,
    forecast_seconds,
    gradients_work,
    order_evidence,
    ranking_work,
)

CURVE_OF = "prune curve of"  # in the session: the study of the last run, but for the level that the slider sets
FIRST_S, PATIENT_S = 0.3, 1.8  # the first figure precedes the charts, unless it takes longer
FIGURE_S = 0.35  # its redrawing interval during a short measurement: each time the worker waits
LONG_S = 3.0  # from which it is redrawn every POLL_S: a run costs browser and server 0.2 s of a processor's time


def moving() -> list[Axis]:
    """Returns the axis whose slider is being dragged, or none."""
    axis = drawn_axis()
    return [axis] if hand(axis).moving else []


def keeps_curve(of: Study) -> bool:
    """Returns whether this run's curve is that of the run before, as far as the study tells."""
    now, state = replace(of, **{of.axis: 0}), st.session_state
    before, state[CURVE_OF] = state.get(CURVE_OF), now
    return before in (None, now)


def let_go_of(x: Experiment) -> None:
    """Abandons the measurement of this experiment and of the second model: the slider has moved on."""
    if accuracy_work(x, None).under_way:
        jobs().drop("accuracy")


def nothing_drawn_yet() -> bool:
    """Returns whether this is a tab's first page on a server that has measured nothing: the imports for it would keep
    the page from being drawn."""
    return "torch" not in sys.modules and not st.session_state.get("prune drawn")


def measure(x: Experiment, mask: Mask | None) -> None:
    """Starts the experiment's measurement, and waits a moment for the first answers of the pruned model: charts would
    keep worker and browser from them."""
    if mask is None:  # the accuracy measures the order that it needs
        for slot in ORDERS.values():
            jobs().drop(slot)
    accuracy_work(x, mask).start()
    patience_s = FIRST_S if mask is None or redrawn_every_s(x, mask) == FIGURE_S else PATIENT_S
    jobs().join("accuracy", patience_s, lambda job: job.value is not None and job.value.pruned is not None)


def redrawn_every_s(x: Experiment, mask: Mask | None) -> float:
    """Returns the seconds between redraws of the figure while it is measured."""
    takes_s = None if mask is None else x.workload(mask).seconds(store(), x.target)
    return POLL_S if takes_s is None or takes_s > LONG_S else FIGURE_S


def await_last_answers(x: Experiment) -> None:
    """Waits for the end if it is due before the figure's next redraw."""
    job = accuracy_work(x, None).now()
    if job is None or job.finished or not job.done or job.value is None or not job.value.pruned:
        return
    if job.seconds * (job.total - job.done) / job.done < FIGURE_S:
        jobs().join("accuracy", FIGURE_S)


def look_ahead(x: Experiment, known: Evidence) -> tuple[Estimates, list[str]]:
    """Returns the estimates so far, and the slots whose end brings others. Starts the measurements that they need once
    nothing else is under way: the orders first, without which a slider's first move would show nothing."""
    is_idle = not moving() and not under_way(MEASURING) and not _begins_an_order(x, known)
    if x.judged.greedy:
        return Estimates(), []
    if is_idle:
        found = estimates_work(x, known).value()
        if found is not None and not found.has_gradients:
            gradients_work(x).start_ahead()
    return latest_estimates()


def _begins_an_order(x: Experiment, known: Evidence) -> bool:
    missing: dict[Axis, Work[Evidence]] = {axis: ranking_work(x, axis) for axis in AXES if x.order(axis, known) is None}
    for axis, work in missing.items():
        if _opens_with(x, axis) and work.now() is None:
            work.start()
            return True
    return any(work.start_ahead() and work.under_way for work in missing.values())


def _opens_with(x: Experiment, axis: Axis) -> bool:
    """Returns whether the screen measures an order by itself: that of the shown axis, until something is pruned."""
    if x.target.spec.is_demo or x.train is None or x.pruning.by_level or axis != drawn_axis():
        return False
    return forecast_seconds(order_evidence(x, axis)) <= first_figure_s()


def latest_estimates() -> tuple[Estimates, list[str]]:
    """Returns the estimates read last, and their slot if others are being read: from one snapshot, so that none arrive
    in between unseen. Lines of other experiments are excluded."""
    job = jobs().snapshot("estimates")
    found = job.value if job is not None and job.value is not None else Estimates()
    return found, ["estimates"] if job is not None and not job.finished else []

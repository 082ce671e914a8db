"""What the Prune screen measures by itself, one step after the other: the next missing one is started, once a run."""

import sys

import streamlit as st

from engine.importance.orders import Axis
from engine.importance.rules import Evidence
from pages.ui.page.defaults import AXES
from pages.ui.page.runtime import first_figure_s, jobs, store
from pages.ui.page.work import POLL_S, Work, under_way
from pages.ui.prune import orders
from pages.ui.prune.around import around_work
from pages.ui.prune.estimates import estimates_work, gradients_work
from pages.ui.prune.experiment import ACCURACY, CURVE, SECOND, Experiment, accuracy_work
from pages.ui.prune.orders import ORDERS, SLOW_ORDER, forecast_seconds, order_evidence, ranking_work
from pages.ui.prune.state import PruneState

MEASURING = (ACCURACY, "gradients", CURVE, "importance", SLOW_ORDER, *ORDERS.values())  # slots of all else
DRAWN = "prune drawn"  # in the session: this tab has drawn the screen once
FIRST_S, PATIENT_S = 0.3, 1.8  # the first figure precedes the charts, unless it takes longer
FIGURE_S = 0.35  # its redrawing interval during a short measurement: each time the measuring thread waits
LONG_S = 3.0  # from which it is redrawn every POLL_S: a run costs browser and server 0.2 s of a processor's time


def is_postponed() -> bool:
    """Returns whether nothing is measured in this run: it is a tab's first one on a server that has measured nothing,
    and the imports for it would keep the page from being drawn."""
    return "torch" not in sys.modules and not st.session_state.get(DRAWN)


def start_next(state: PruneState) -> None:
    """Starts the first step that is missing and due."""
    if not is_postponed():
        any(step(state) for step in STEPS)


def abandon(state: PruneState) -> None:
    """Abandons what is measured of the level before: the slider moves on."""
    if accuracy_work(state.x, state.mask).under_way:
        jobs().drop(ACCURACY)
    if state.second_model is not None:
        jobs().drop(SECOND)


def redrawn_every_s(state: PruneState) -> float:
    """Returns the seconds between redraws of the figure while it is measured."""
    takes_s = None if state.mask is None else state.x.workload(state.mask).seconds(store(), state.x.target)
    return POLL_S if takes_s is None or takes_s > LONG_S else FIGURE_S


def await_last_answers(state: PruneState) -> None:
    """Waits for the end if it is due before the figure's next redraw."""
    job = accuracy_work(state.x, state.mask).now()
    if job is None or job.finished or not job.done or job.value is None or not job.value.pruned:
        return
    if job.seconds * (job.total - job.done) / job.done < FIGURE_S:
        jobs().join(ACCURACY, FIGURE_S)


def _answers(state: PruneState) -> bool:
    """Measures the answers, with the order if they need it, and waits a moment for the first ones of the pruned model:
    charts would keep thread and browser from them."""
    x = state.x
    if state.is_complete or orders.asks(x, state.known):
        jobs().drop(ACCURACY)
        return False
    if orders.awaits_rows(x, state.known):
        return True
    if state.mask is None:  # the accuracy measures the order that it needs
        for slot in ORDERS.values():
            jobs().drop(slot)
    accuracy_work(x, state.mask).start()
    patience_s = FIRST_S if state.mask is None or redrawn_every_s(state) == FIGURE_S else PATIENT_S
    jobs().join(ACCURACY, patience_s, lambda job: job.value is not None and job.value.pruned is not None)
    return True


def _second(state: PruneState) -> bool:
    """Measures the second model on the same questions."""
    second = state.second_model
    if second is None or not state.is_complete or second.x.is_complete(second.answers) or second.asks:
        return False
    accuracy_work(second.x, second.mask, second.second).start()
    return True


def _order(state: PruneState) -> bool:
    """Measures the orders of heads and FFNs, without which a slider's first move would show nothing: that of the drawn
    axis if it takes no longer than a first figure may, others within the budget of background work."""
    x = state.x
    missing: dict[Axis, Work[Evidence]] = {
        axis: ranking_work(x, axis) for axis in AXES if x.order(axis, state.known) is None
    }
    for axis, work in missing.items():
        if work.now() is None and axis == state.axis and _opens_with(x, axis):
            work.start()
            return True
    return any(work.start_ahead() and work.under_way for work in missing.values())


def _opens_with(x: Experiment, axis: Axis) -> bool:
    """Returns whether the screen measures an order by itself: that of the shown axis, until something is pruned."""
    if x.target.spec.is_demo or x.train is None or x.pruning.by_level:
        return False
    return forecast_seconds(order_evidence(x, axis)) <= first_figure_s()


def _estimates(state: PruneState) -> bool:
    """Reads what stands around the curve and the estimates, then measures the gradients that these need."""
    around_work(state.x, state.axis).start()
    if state.x.validation.greedy:
        return False
    found = estimates_work(state.x, state.axis, state.known).value()
    return found is not None and not found.has_gradients and gradients_work(state.x).start_ahead()


def _is_busy(state: PruneState) -> bool:
    """Whether something is measured that the steps after it wait for."""
    return under_way(MEASURING)


STEPS = (_answers, _second, _is_busy, _order, _estimates)

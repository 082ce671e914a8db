"""The pruning order of the Prune screen: which one it opens with, and the button that measures one that takes long."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import streamlit as st

from engine.importance.orders import RANKED, Axis, orders_of
from engine.importance.rules import QUICK, Evidence
from engine.measurement import Measurement
from engine.models.session import Target
from engine.progress import in_time
from pages.ui.controls.study import is_to_set, set_study
from pages.ui.page.defaults import NOUNS, ORDER
from pages.ui.page.job_words import LONG_S
from pages.ui.page.runtime import budget_s, first_figure_s, session, store
from pages.ui.page.tables import plain
from pages.ui.page.work import ASKED, Work
from pages.ui.prune.experiment import Experiment, forecast

ORDERS: dict[Axis, str] = {"heads": "order of heads", "ffns": "order of FFNs"}  # slots
SLOW_ORDER = "slow order"  # the slot of an order that is measured at a click
OPENED = "prune opened with"  # in the session: model and task of the last run, and the order that the screen set last
MEASURE_HELP = "Sets the pruning order, and measures it in the background."


def open_with_an_order(x: Experiment, axis: Axis, chosen: str) -> None:
    """Sets the order that a model and task open with, and runs the page again if it is not the `chosen` one. A link's
    order stays as it is."""
    state = st.session_state
    opened, was_set = state.get(OPENED, (None, ""))
    if chosen and opened in (None, x.base_key):
        state[OPENED] = x.base_key, was_set
        return
    if x.train is None:  # the cost of an order depends on its questions
        return
    found = _first_order(with_drawn(x, axis), "" if chosen == was_set else chosen)
    state[OPENED] = x.base_key, found
    if found != chosen:
        set_study(order=found)
        st.rerun()


def _first_order(x: Experiment, chosen: str) -> str:
    """Returns the order to open with: the user's if it is stored or short, else ORDER if it is stored or within the
    budget of background work, else QUICK."""
    if chosen and not takes_long(under(x, chosen)):
        return chosen
    if x.target.spec.is_demo or order_seconds(under(x, ORDER)) <= budget_s():
        return ORDER
    return QUICK


def under(x: Experiment, name: str) -> Experiment:
    """Returns the same experiment under another order."""
    return replace(x, pruning=replace(x.pruning, ranking=replace(x.pruning.ranking, name=name)))


def with_drawn(x: Experiment, axis: Axis) -> Experiment:
    """Returns the experiment with all heads or FFNs pruned, if that is what the drawn slider prunes and it is at 0: the
    order is needed once it moves."""
    return x if axis == "layers" or x.pruning.level(axis) else x.at(axis, 1000)


def awaits_rows(x: Experiment, known: Evidence) -> bool:
    """Returns whether the order of `x` is missing, and its cost is unknown before the train questions are rendered."""
    return x.train is None and not x.target.spec.is_demo and bool(x.pruning.missing(known))


def order_seconds(x: Experiment) -> float:
    """Returns the forecast seconds of what the levels of `x` need of its order; 0 if that is stored."""
    return forecast_seconds(orders_of(x.target, x.pruning, x.data_dir, x.train))


def takes_long(x: Experiment) -> bool:
    """Returns whether the order of `x` is measured only at a click. QUICK is not if it takes no longer than the
    answers."""
    orders = orders_of(x.target, x.pruning, x.data_dir, x.train)
    takes_s = orders.seconds(session()) if x.target.spec.is_demo else order_seconds(x)
    if is_short(x.target, takes_s):
        return False
    is_quick = x.pruning.ranking.name == QUICK
    return not (is_quick and order_seconds(x) <= x.workload(None).seconds_by_size(store(), x.target))


def asks(x: Experiment, known: Evidence) -> bool:
    """Returns whether the order of `x` is missing and waits for a click, or was started by one."""
    if not x.pruning.missing(known) or x.train is None:
        return False
    return order_work(x).now() is not None or takes_long(x)


def order_work(x: Experiment) -> Work[Evidence]:
    """Returns the work that measures what the levels of `x` need of its order."""
    missing = x.pruning.missing(Evidence())
    title = f"Ranking {' and '.join(dict.fromkeys(RANKED[name] for name in missing))}"
    return Work(SLOW_ORDER, title, x.evidence(missing, x.pruning.n_layers_dropped), ASKED, takes=forecast(x))


def ranking_work(x: Experiment, axis: Axis) -> Work[Evidence]:
    """Returns the work that measures the order of one axis, so that it is known before its slider moves."""
    title = f"Ranking {NOUNS[axis]}"
    return Work(ORDERS[axis], title, order_evidence(x, axis), 2, True, forecast(x), about=x.task.title)


def order_evidence(x: Experiment, axis: Axis) -> Measurement[Evidence]:
    """Returns the measurement of the scores that order one axis."""
    return x.evidence(Evidence().missing(x.pruning.ranking.name, axis == "heads", axis == "ffns"))


def forecast_seconds(wanted: Measurement[Any]) -> float:
    """Returns the forecast seconds of the missing records: by timed passes of the model, else by its size."""
    return wanted.left(session()).seconds_by_size(store(), wanted.target)


def is_short(target: Target, takes_s: float | None) -> bool:
    """Returns whether work that a setting needs starts without a click: its forecast is within what a screen measures
    by itself, or unknown for the embedded model."""
    if takes_s is None:
        return target.spec.is_demo
    return takes_s <= max(LONG_S, first_figure_s())


def draw_long_order(x: Experiment, known: Evidence, axis: Axis) -> None:
    """Draws the button that measures the order of `x` if it takes long, or ORDER in place of QUICK; or its
    progress. `known`: the stored scores of `x`."""
    if is_to_set():
        st.rerun()  # the page sets a control of the bar, which this part does not run
    if x.train is None:
        return
    own = with_drawn(x, axis)
    missing = own.pruning.missing(known)
    if missing and order_work(own).line():
        return
    if missing and takes_long(own):
        _draw_button(own, missing)
    elif own.pruning.ranking.name == QUICK:
        full = under(own, ORDER)
        missing = full.pruning.missing(full.known(session()))
        if missing and not order_work(full).line():
            _draw_button(full, missing)


def _draw_button(of: Experiment, missing: Sequence[str]) -> None:
    ranking = of.pruning.ranking
    name = ranking.layers_by if missing == ["layers"] else ranking.name
    kwargs: dict[str, Any] = {"type": "primary", "icon": ":material/timer:", "help": MEASURE_HELP}
    label = f"Measure {plain(name)} order, about {in_time(order_seconds(of))} here"
    st.button(label, key=f"offer {SLOW_ORDER}", on_click=partial(_measure, of), **kwargs)


def _measure(of: Experiment) -> None:
    set_study(order=of.pruning.ranking.name)
    order_work(of).restart()

"""Long work asks on Prune: it opens with an order within the budget, and a button measures one above it."""

import pytest

from engine.importance.rules import QUICK
from engine.measurement import Workload
from pages.ui.page import runtime as frame
from pages.ui.page.defaults import ORDER
from pages.ui.prune import orders, schedule
from pages.ui.prune.orders import ORDERS, SLOW_ORDER
from tests.pages.conftest import button, command_of, figure, same_on_the_command_line, settled, slide, under_figure

LONG_S = 2760.0


def take_long(monkeypatch, *names):
    """Has these orders take 46 minutes, unless they are stored."""
    real = orders.order_seconds
    monkeypatch.setattr(
        orders, "order_seconds", lambda x: real(x) and (LONG_S if x.pruning.ranking.name in names else 5.0)
    )


@pytest.fixture
def started(open_app, monkeypatch):
    """An app in which the gradient order is forecast to take 46 minutes, and the slots of all work that it starts."""
    monkeypatch.setenv("HEADROOM_IDLE_SECONDS", "0")
    take_long(monkeypatch, ORDER)
    at, slots = open_app(), []
    put = frame.jobs().put

    def noted(slot, *job, **more):
        slots.append(slot)
        return put(slot, *job, **more)

    monkeypatch.setattr(frame.jobs(), "put", noted)
    return at, slots


@pytest.mark.parametrize("takes_s, is_started", [(5.0, True), (7.0, False)])
def test_the_order_of_the_first_drag_is_measured_by_itself_if_that_takes_a_minute(
    open_app, monkeypatch, takes_s, is_started
):
    monkeypatch.setenv("HEADROOM_IDLE_SECONDS", "1")  # and six times as much for what a screen opens with
    monkeypatch.setattr(orders, "forecast", lambda x: lambda: takes_s)
    monkeypatch.setattr(schedule, "forecast_seconds", lambda of: takes_s)
    at = open_app()
    slots = [ORDERS[axis] for axis in ("heads", "ffns")]
    assert [frame.jobs().status(slot) is not None for slot in slots] == [is_started, False], "of the shown axis"
    assert under_figure(at).startswith("**") and "0 of 8 heads" in under_figure(at)


def box(at):
    return at.selectbox(key="order").value


def choose(at, name):
    at.selectbox(key="order").set_value(name)
    return settled(at)


def labels(at):
    return [each.label for each in at.button]


def test_it_opens_with_a_quick_order_until_another_one_is_asked_for(started, capsys):
    at, slots = started
    assert box(at) == QUICK and at.query_params["order"] == QUICK
    settled(slide(at, "heads", 50))
    assert "4 of 8 heads, 0 of 2 FFNs pruned" in under_figure(at)
    assert SLOW_ORDER not in slots and "accuracy" in slots
    result = same_on_the_command_line(at, capsys)
    assert result["cached"] and f"--order {QUICK}" in command_of(at)
    assert figure(at)[0] == f"{100 * result['acc']:.1f}%"

    button(at, f"Measure {ORDER} order, about 46 min here").click()
    settled(at)
    assert slots.count(SLOW_ORDER) == 1 and frame.jobs().status(SLOW_ORDER).state == "done"
    assert box(at) == ORDER
    assert figure(at)[0] == f"{100 * same_on_the_command_line(at, capsys)['acc']:.1f}%"
    assert not [label for label in labels(at) if "order" in label]


def test_a_quick_order_is_not_asked_for_if_it_takes_no_longer_than_the_answers(open_app, monkeypatch):
    take_long(monkeypatch, ORDER, QUICK)
    at = open_app(heads="50")
    assert (box(at), figure(at)[0]) == (QUICK, "…") and f"Measure {QUICK} order, about 46 min here" in labels(at)
    monkeypatch.setattr(Workload, "seconds_by_size", lambda *of: 2 * LONG_S)
    assert figure(settled(at))[0] != "…" and f"Measure {ORDER} order, about 46 min here" in labels(at)


def test_an_order_that_is_chosen_is_measured_at_a_click_alone(started):
    at, slots = started
    settled(slide(at, "heads", 50))
    del slots[:]
    choose(at, ORDER)
    assert figure(at)[0] == "…" and box(at) == ORDER and not {"accuracy", SLOW_ORDER, *ORDERS.values()} & {*slots}
    button(at, f"Measure {ORDER} order, about 46 min here").click()
    settled(at)
    assert "4 of 8 heads, 0 of 2 FFNs pruned" in under_figure(at) and figure(at)[0] != "…"


def test_an_order_of_layers_that_takes_long_is_measured_at_a_click(started, monkeypatch):
    at, slots = started
    take_long(monkeypatch, "random")
    at.selectbox(key="order").set_value("random")
    at.segmented_control(key="axis").set_value("layers")
    settled(at)
    settled(slide(at, "layers", 50))
    assert figure(at)[0] == "…" and SLOW_ORDER not in slots
    button(at, "Measure influence order, about 46 min here").click()
    settled(at)
    assert "(1 layer dropped)" in under_figure(at) and "--layer-order" not in command_of(at)


def test_an_order_that_a_link_names_stays(open_app, monkeypatch):
    take_long(monkeypatch, ORDER)
    at = open_app(order=ORDER, heads="50")
    assert box(at) == ORDER and figure(at)[0] == "…" and f"Measure {ORDER} order, about 46 min here" in labels(at)


def test_another_task_opens_with_an_order_of_its_own(open_app, monkeypatch):
    at = open_app(order=ORDER, heads="50")
    take_long(monkeypatch, ORDER)
    at.segmented_control(key="shots").set_value(1)
    settled(at)
    assert box(at) == QUICK
    at.segmented_control(key="shots").set_value(0)
    settled(at)
    assert box(at) == ORDER, "stored"

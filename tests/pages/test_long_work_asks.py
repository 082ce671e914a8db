"""Long work asks on Prune: a drag never starts an order whose forecast is above the budget, but shows another one."""

import pytest

from pages.ui.page import runtime as frame
from pages.ui.page.defaults import ORDER, RANKING_QUESTIONS
from pages.ui.prune import dragging, provisional
from pages.ui.prune import jobs as prune_jobs
from tests.pages.conftest import button, figure, same_on_the_command_line, settled, slide, under_figure

LONG_S = 2760.0


@pytest.fixture
def started(open_app, monkeypatch):
    """An app whose order of choice is forecast to take 46 minutes, and the slots of all work that it starts."""
    monkeypatch.setenv("HEADROOM_IDLE_SECONDS", "0")
    real = provisional.order_seconds
    by_order = {(ORDER, RANKING_QUESTIONS): LONG_S}

    def seconds(x):
        return by_order.get((x.pruning.ranking.name, x.pruning.ranking.n_questions), 0.0) or min(real(x), 5.0)

    monkeypatch.setattr(provisional, "order_seconds", seconds)
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
    monkeypatch.setattr(prune_jobs, "forecast", lambda x: lambda: takes_s)
    monkeypatch.setattr(dragging, "forecast_seconds", lambda of: takes_s)
    at = open_app()
    slots = [prune_jobs.ORDERS[axis] for axis in ("heads", "ffns")]
    assert [frame.jobs().snapshot(slot) is not None for slot in slots] == [is_started, False], "of the shown axis"
    assert under_figure(at).startswith("**") and "0 of 8 heads" in under_figure(at)


def test_an_order_that_another_one_replaces_is_abandoned(started, monkeypatch):
    at, _ = started
    dropped, drop = [], frame.jobs().drop
    monkeypatch.setattr(frame.jobs(), "drop", lambda slot: (dropped.append(slot), drop(slot)))
    settled(slide(at, "prune_heads", 50))
    assert {*prune_jobs.ORDERS.values()} <= {*dropped}


def labels(at):
    return [each.label for each in at.button]


def test_a_drag_measures_under_a_provisional_order_until_the_order_of_choice_is_asked_for(started, capsys):
    at, slots = started
    settled(slide(at, "prune_heads", 50))
    assert "4 of 8 heads, 0 of 2 FFNs pruned, provisional order" in under_figure(at)
    [in_use] = [box for box in at.selectbox if box.label == "Provisional order"]
    assert in_use.value == "gradient on 8 rows"
    assert provisional.CHOICE not in slots and "accuracy" in slots
    provisional_figure, result = figure(at), same_on_the_command_line(at, capsys)
    assert result["cached"] and f"--order {ORDER} --order-questions 8" in at.code[0].value
    assert provisional_figure[0] == f"{100 * result['acc']:.1f}%"
    assert "provisional order" in under_figure(at)

    button(at, f"Measure {ORDER} order, about 46 min here").click()
    settled(at)
    assert slots.count(provisional.CHOICE) == 1 and frame.jobs().snapshot(provisional.CHOICE).state == "done"
    assert "provisional" not in under_figure(at) and "--order-questions 64" in at.code[0].value
    assert not [label for label in labels(at) if f"{ORDER} order" in label]


def test_an_order_that_was_measured_elsewhere_waits_for_a_click(started, monkeypatch):
    at, _ = started
    monkeypatch.setattr(provisional, "_measure", lambda of: provisional.order_work(of.wanted).restart())
    settled(slide(at, "prune_heads", 50))
    before = figure(at)
    button(at, f"Measure {ORDER} order, about 46 min here").click()
    settled(at)
    assert "provisional" in under_figure(at) and figure(at) == before
    button(at, f"Use {ORDER} order").click()
    settled(at)
    assert "provisional" not in under_figure(at)


def test_weights_order_where_all_else_takes_long_and_what_is_faster_is_offered(started, monkeypatch):
    at, slots = started
    monkeypatch.setattr(provisional, "order_seconds", lambda x: LONG_S * (x.pruning.ranking.name == ORDER))
    settled(slide(at, "prune_heads", 50))
    assert any(box.value == "weight magnitude" for box in at.selectbox)
    button(at, "Order by gradient on 8 rows, about 46 min here").click()
    settled(at)
    assert any(box.value == "gradient on 8 rows" for box in at.selectbox) and provisional.CHOICE not in slots
    assert "Order by weight magnitude, at once" in labels(at), "and back"


def test_layers_go_by_depth_for_the_time_being(started, monkeypatch):
    at, slots = started
    monkeypatch.setattr(provisional, "order_seconds", lambda x: LONG_S if x.pruning.ranking.name == "random" else 0.0)
    at.selectbox(key="prune_order").set_value("random")
    at.segmented_control(key="prune_axis").set_value("layers")
    settled(at)
    settled(slide(at, "prune_layers", 50))
    assert "(1 layer dropped), provisional order" in under_figure(at)
    assert provisional.CHOICE not in slots and "--layer-order last-first" in at.code[0].value


def test_an_order_that_is_stored_is_used_at_once(open_app, monkeypatch):
    settled(slide(open_app(), "prune_heads", 50))  # measured, as it is short
    monkeypatch.setattr(provisional, "order_seconds", lambda x: LONG_S)
    at = open_app(prune_heads="50")
    assert "provisional" not in under_figure(at) and "4 of 8 heads" in under_figure(at)

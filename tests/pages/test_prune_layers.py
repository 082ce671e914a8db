"""The third slider of Prune drops whole layers: besides heads and FFNs, in the address, and at 0 it does nothing."""

import pytest

from engine.importance.layers import LAYERS_BY, block_influence
from engine.models.loading import LoadSpec
from engine.questions.rendering import TaskSpec, render_questions, select
from pages.ui.page import runtime as frame
from pages.ui.page.defaults import RANKING_QUESTIONS
from tests.conftest import some_of
from tests.pages.conftest import (
    choose_story,
    command_of,
    components,
    figure,
    frames_of,
    job_states,
    level,
    press,
    program_of,
    said,
    same_on_the_command_line,
    sent,
    settled,
    slide,
    under_figure,
)


def trained(at):
    """(session, target, train questions) that the page ranks by."""
    target = frame.session().target(LoadSpec(at.selectbox(key="model").value, "fp32"))
    rendered = render_questions(TaskSpec(at.selectbox(key="task").value, split="train"), None, frame.store())
    return frame.session(), target, select(rendered, RANKING_QUESTIONS, "stratified")


def test_at_0_nothing_about_layers_is_measured_or_asked(measures_ahead, open_app):
    at = open_app(order="random", axis="Layers", layers_by="oracle")
    assert level(at, "layers") == 0 and block_influence(*trained(at)[1:]).stored(trained(at)[0]) is None
    assert "--prune-layers" not in command_of(at) and "layer_order" not in program_of(at)
    assert sent(at, "layers")["texts"]["50"] == "1 of 2 layers"


def test_a_layer_is_dropped_by_block_influence(open_app, capsys):
    at = open_app(order="random", axis="Layers")
    settled(slide(at, "layers", 50))
    influence = block_influence(*trained(at)[1:]).stored(trained(at)[0])
    first = int(influence.argmin())
    assert "4 of 8 heads, 1 of 2 FFNs pruned (1 layer dropped)" in under_figure(at)
    heads = next(each for each in components(at) if "outlined" in each)
    whole_row = [layer == first for layer in range(2) for _ in range(5)]  # its FFN last
    assert heads["gone"] == [first] and heads["pruned"] == whole_row
    assert "--prune-layers 50" in command_of(at)
    result = same_on_the_command_line(at, capsys)
    assert result["cached"] and result["layers_dropped"] == [first]
    assert figure(at)[0] == f"{100 * result['acc']:.1f}%"
    # what pruning by level prunes can be restored by a click, as heads are
    settled(slide(at, "heads", 50))
    assert "layer dropped" in under_figure(at) and not at.error
    press(at, "Restore")
    assert level(at, "layers") == level(at, "heads") == 0 and "0 of 8 heads" in under_figure(at)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "by", some_of(["last-first", *(by for by in LAYERS_BY if by not in ("influence", "last-first"))])
)
def test_layers_go_in_the_order_that_is_chosen(by, open_app, capsys):
    at = open_app(order="random", layers="50", layers_by=by)
    assert at.selectbox(key="layers_by").value == by and "1 layer dropped" in under_figure(at)
    result = same_on_the_command_line(at, capsys)
    assert result["cached"] and len(result["layers_dropped"]) == 1
    assert by != "last-first" or result["layers_dropped"] == [1]
    assert f"layer_order='{by}'" in program_of(at)


def test_the_curve_runs_over_layers_and_a_hand_that_moves_measures_nothing(measures_ahead, open_app):
    at = open_app(order="random", layers="50")
    at.segmented_control(key="axis").set_value("layers")
    settled(at)
    choose_story(at, "far")
    points = frames_of(at)[0]["points"].to_dict("records")
    assert [row["level"] for row in points] == [level / 10 for level in range(11)]
    assert {row["pruned"] for row in points} == {"0 heads, 0 FFNs", "4 heads, 1 FFN", "8 heads, 2 FFNs"}
    choose_story(at, None)  # it stands above the figure
    settled(slide(at, "layers", 50))
    before, puts = job_states(), frame.store().n_puts
    slide(at, "layers", 100, moving=True).run()
    assert not at.exception and job_states() == before and frame.store().n_puts == puts
    assert figure(at)[1] == "measured before" and "(2 layers dropped)" in said(at)
    assert "· measured" in sent(at, "layers")["texts"]["100"]

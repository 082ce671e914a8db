"""The row of controls on Prune: one slider at a time, chips for the other levels, and labels of older addresses."""

import json

import pytest

from pages.ui.prune.stories import STORIES
from tests.pages.conftest import button, charts_of, components, figure, level, said, same_on_the_command_line, settled

SLIDERS = {"Attention heads pruned", "FFNs pruned", "Layers dropped"}


def drawn_sliders(at):
    return [each["label"] for each in components(at) if each.get("label") in SLIDERS]


def test_one_slider_is_drawn_and_a_chip_leads_to_each_other_level(open_app):
    at = open_app(prune_order="random", prune_heads="50", prune_ffns="50", prune_idle="false")
    assert drawn_sliders(at) == ["Attention heads pruned"]
    assert [each.label for each in at.button if (each.key or "").startswith("prune chip")] == ["FFNs 50%"]
    button(at, "FFNs 50%").click()
    settled(at)
    assert drawn_sliders(at) == ["FFNs pruned"] and at.segmented_control(key="prune_axis").value == "ffns"
    assert (level(at, "prune_heads"), level(at, "prune_ffns")) == (50, 50), "nothing is set by looking at it"
    assert button(at, "Attention heads 50%")
    assert '"title": "FFNs pruned in addition to 50% of heads"' in json.dumps(charts_of(at)[0]), "the curve follows"


@pytest.mark.parametrize(("label", "axis"), [("FFNs pruned", "ffns"), ("Layers dropped", "layers"), ("FFNs", "ffns")])
def test_an_axis_of_an_older_address_is_understood(open_app, label, axis):
    at = open_app(prune_order="random", prune_axis=label, prune_idle="false")
    assert at.segmented_control(key="prune_axis").value == axis and not at.warning


def test_a_story_of_an_older_address_is_understood(open_app):
    at = open_app(prune_order="random", prune_story="No examples needed", prune_idle="false")
    pills = next(each for each in at.main.button_group if each.key == "prune_story")
    assert pills.value == "control" and STORIES["control"] == "No examples" and not at.warning


def test_labels_of_examples_are_those_of_the_command(open_app, capsys):
    asked = {"prune_task": "demo_guest", "prune_shots": "5", "prune_labels": "Shuffled", "prune_limit": "16"}
    at = open_app(**asked, prune_order="random", prune_idle="false")
    result = same_on_the_command_line(at, capsys)
    assert result["labels"] == "shuffled" and result["cached"] and result["labels_kept"] > 0
    assert figure(at)[0] == f"{100 * result['acc']:.1f}%" and ", shuffled labels:" in at.metric[0].label
    assert f"{result['labels_kept']:.0%} of the examples keep their true answer" in said(at)

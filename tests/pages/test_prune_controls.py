"""The row of controls on Prune: one slider at a time, and chips for the other levels."""

import json
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engine.importance.rankings import CRITERIA
from engine.importance.rankings_of import Axis
from engine.questions.requests import TaskSpec
from pages.ui.page import runtime
from pages.ui.prune import dragging, parts
from pages.ui.prune.controls import PruneControls
from tests.conftest import some_of
from tests.pages.conftest import (
    button,
    charts_of,
    components,
    experiment_of,
    figure,
    level,
    said,
    same_on_the_command_line,
    settled,
)

SLIDERS = {"Attention heads pruned", "FFNs pruned", "Layers dropped"}


def drawn_sliders(at):
    return [each["label"] for each in components(at) if each.get("label") in SLIDERS]


def test_one_slider_is_drawn_and_a_chip_leads_to_each_other_level(open_app):
    at = open_app(prune_order="random", prune_heads="50", prune_ffns="50")
    assert drawn_sliders(at) == ["Attention heads pruned"]
    assert [each.label for each in at.button if (each.key or "").startswith("prune chip")] == ["FFNs 50%"]
    button(at, "FFNs 50%").click()
    settled(at)
    assert drawn_sliders(at) == ["FFNs pruned"] and at.segmented_control(key="prune_axis").value == "ffns"
    assert (level(at, "prune_heads"), level(at, "prune_ffns")) == (50, 50), "nothing is set by looking at it"
    assert button(at, "Attention heads 50%")
    assert '"title": "FFNs pruned in addition to 50% of heads"' in json.dumps(charts_of(at)[0]), "the curve follows"


def test_what_is_pruned_by_name_is_counted_next_to_the_slider_and_restored_by_one_click(open_app):
    at = open_app(prune_order="random", prune_mask="L0H1-2", prune_heads="25")
    assert button(at, "Also 2 heads: L0H1-2").key == "prune chip mask"
    button(at, "Restore").click()
    settled(at)
    assert at.session_state["prune_mask"] == "" and level(at, "prune_heads") == 25
    assert not [each for each in at.button if each.key == "prune chip mask"]


def test_a_curve_is_of_the_setting_before_unless_only_its_own_level_changes(monkeypatch):
    monkeypatch.setattr(dragging.st, "session_state", {})
    of = PruneControls(TaskSpec("piqa", 0), 100, "heads", "random", "influence", "", False)
    setup: Any = SimpleNamespace(spec="demo")
    levels: dict[Axis, int] = {"heads": 10, "ffns": 0, "layers": 0}
    keeps = partial(dragging.keeps_curve, setup)
    assert keeps(of, levels) and keeps(of, {**levels, "heads": 50})
    named = replace(of, typed="L0H1")
    assert not keeps(named, levels) and keeps(named, levels) and not keeps(named, {**levels, "ffns": 50})


def test_the_page_is_drawn_again_once_when_the_job_has_ranked(monkeypatch):
    monkeypatch.setattr(parts.st, "session_state", {})
    drawn = [parts.is_first_draw_since_ranked(key) for key in ("a", "a", "b")]
    assert drawn == [True, False, True]


def test_labels_of_examples_are_those_of_the_command(open_app, capsys):
    asked = {"prune_task": "demo_guest", "prune_shots": "5", "prune_labels": "Shuffled", "prune_limit": "16"}
    at = open_app(**asked, prune_order="random")
    result = same_on_the_command_line(at, capsys)
    assert result["labels"] == "shuffled" and result["cached"] and result["labels_kept"] > 0
    assert figure(at)[0] == f"{100 * result['acc']:.1f}%" and ", shuffled labels:" in at.metric[0].label
    assert f"{result['labels_kept']:.0%} of the examples keep their true answer" in said(at)


@pytest.mark.thorough
@pytest.mark.parametrize("name", some_of(["wanda", "weight", "first-token"]))
def test_the_map_shows_the_scores_that_the_ranking_goes_by(open_app, name, tiny_opt):
    from engine.importance.importance import importance
    from engine.progress import final
    from engine.questions.requests import TaskSpec, get_requests, select

    at = open_app(prune_heads="40", prune_order=name)
    task = TaskSpec(at.selectbox(key="prune_task").value, split="train")
    train = select(get_requests(task, None, runtime.store()), 64, "stratified")
    target = experiment_of(at).target
    scores = final(importance(target, train, CRITERIA[name].heads).run(runtime.session())).scores.ravel()
    [shown] = [each for each in components(at) if each.get("columns", 0) > 1]
    assert shown["title"] == CRITERIA[name].label
    np.testing.assert_allclose([float(each.replace(",", "")) for each in shown["score"]], scores, rtol=6e-3)
    gone = np.argsort(scores, kind="stable")[:3]
    assert [at for at, pruned in enumerate(shown["pruned"]) if pruned] == sorted(gone.tolist())
    assert any(f"--order {name}" in code.value for code in at.code)

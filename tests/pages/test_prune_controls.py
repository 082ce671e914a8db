"""The row of controls on Prune: one slider at a time, and one badge for all levels."""

import json
from dataclasses import replace

import numpy as np
import pytest

from engine.importance.criteria import CRITERIA
from engine.models.loading import LoadSpec
from engine.questions.rendering import TaskSpec
from pages.ui.controls.study import Study
from pages.ui.page import runtime
from pages.ui.prune import layout, parts
from tests.conftest import some_of
from tests.pages.conftest import (
    button,
    charts_of,
    command_of,
    components,
    experiment_of,
    figure,
    level,
    said,
    same_on_the_command_line,
    sent,
    settled,
)

SLIDERS = {"Attention heads pruned", "FFNs pruned", "Layers dropped"}


def drawn_sliders(at):
    return [each["label"] for each in components(at) if each.get("label") in SLIDERS]


def test_one_slider_is_drawn_and_the_badge_says_what_all_of_them_prune(open_app):
    at = open_app(order="random", heads="50", ffns="50")
    assert drawn_sliders(at) == ["Attention heads pruned"]
    settled(at.segmented_control(key="axis").set_value("ffns").run())
    assert drawn_sliders(at) == ["FFNs pruned"]
    assert (level(at, "heads"), level(at, "ffns")) == (50, 50), "nothing is set by looking at it"
    assert any("Pruned: 4 of 8 heads, 1 of 2 FFNs" in each.value for each in at.markdown)
    assert '"title": "FFNs pruned in addition to 50% of heads"' in json.dumps(charts_of(at)[0]), "the curve follows"


def test_what_is_pruned_by_name_is_counted_next_to_the_slider_and_restored_by_one_click(open_app):
    at = open_app(order="random", mask="L0H1-2", heads="25")
    assert sent(at, "heads")["more"] == "2 heads by name"
    button(at, "Restore").click()
    settled(at)
    assert (at.session_state["mask"], level(at, "heads")) == ("", 0)
    assert not [each for each in at.button if each.label == "Restore"]


def test_a_curve_is_of_the_setting_before_unless_only_its_own_level_changes(monkeypatch):
    monkeypatch.setattr(layout.st, "session_state", {})
    of_model = LoadSpec(), None, None, None
    of = Study(*of_model, TaskSpec("piqa", 0), 100, "heads", 10, 0, 0, "random", "influence", "", False)
    keeps = layout._keeps_curve
    assert keeps(of) and keeps(replace(of, heads=50))
    named = replace(of, typed="L0H1")
    assert not keeps(named) and keeps(named) and not keeps(replace(named, ffns=50))


def test_the_page_is_drawn_again_once_when_the_job_has_ranked(monkeypatch):
    monkeypatch.setattr(parts.st, "session_state", {})
    drawn = [parts.is_first_draw_since_ranked(key) for key in ("a", "a", "b")]
    assert drawn == [True, False, True]


def test_labels_of_examples_are_those_of_the_command(open_app, capsys):
    asked = {"task": "demo_guest", "shots": "5", "labels": "Shuffled", "limit": "16"}
    at = open_app(**asked, order="random")
    result = same_on_the_command_line(at, capsys)
    assert result["labels"] == "shuffled" and result["cached"] and result["labels_kept"] > 0
    assert figure(at)[0] == f"{100 * result['acc']:.1f}%" and ", shuffled labels:" in at.metric[0].label
    assert f"{result['labels_kept']:.0%} of the examples keep their true answer" in said(at)


@pytest.mark.thorough
@pytest.mark.parametrize("name", some_of(["wanda", "weight", "first-token"]))
def test_the_map_shows_the_scores_that_the_ranking_goes_by(open_app, name, tiny_opt):
    from engine.importance.scores import importance
    from engine.progress import final
    from engine.questions.rendering import TaskSpec, render_questions, select

    at = open_app(heads="40", order=name)
    task = TaskSpec(at.selectbox(key="task").value, split="train")
    train = select(render_questions(task, None, runtime.store()), 64, "stratified")
    target = experiment_of(at).target
    scores = final(importance(target, train, CRITERIA[name].heads).run(runtime.session())).scores.ravel()
    [shown] = [each for each in components(at) if "outlined" in each]
    assert shown["title"] == CRITERIA[name].label
    heads = [place for place, named in enumerate(shown["name"]) if named.startswith("L")]
    said = [float(shown["said"][place].split()[-1].replace(",", "")) for place in heads]
    np.testing.assert_allclose(said, scores, rtol=6e-2)
    gone = np.argsort(scores, kind="stable")[:3]
    assert [at for at, place in enumerate(heads) if shown["pruned"][place]] == sorted(gone.tolist())
    assert f"--order {name}" in command_of(at)

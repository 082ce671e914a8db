"""A story sets what is pruned, says what came out, and closes once something else is pruned."""

import numpy as np
import pytest

from engine.models.loading import LoadSpec
from engine.models.masks import parse_mask
from engine.questions.rendering import TaskSpec
from engine.requests import Sweep
from engine.requests.base import RequestRun
from engine.requests.running import silent
from engine.shapes import ModelShape
from engine.statistics import paired
from engine.studies.removal import AccuracyWithout, Removal, found_heads, without
from engine.studies.statements import break_point
from engine.views.accuracy import removal_view
from engine.views.sweep import break_view
from pages.ui.page.defaults import ORDER
from pages.ui.page.runtime import session
from tests.embedded import SHAPE
from tests.pages.conftest import charts_of, choose_story, frames_of, level, said, settled

NAME = "Remove induction heads"
EMBEDDED = {"model": "demo", "precision": "int8", "task": "demo_outfit", "shots": "5"}


def induction_heads():
    """The mask without the embedded model's induction heads, once they are known."""
    found = found_heads(session().target(LoadSpec("demo", "int8"))).stored(session())
    assert found.heads, "the embedded model has some"
    return without(SHAPE, found.heads)


def test_stories_set_what_is_pruned_and_tell_what_came_out(with_shipped, open_app):
    at = open_app(**EMBEDDED, heads="20", limit="48", order="random")
    choose_story(at, "heads")
    found = induction_heads()
    assert at.text_input(key="mask").value == found.text() and level(at, "heads") == 0
    assert f"induction heads ({found.text()}), demo_outfit, 5 shots **lost" in said(at)
    assert "The story holds here." in said(at)
    [rows] = [frames["rows"] for frames in frames_of(at) if "rows" in frames]
    assert len(rows) == 2, "them, and as many random ones"
    titles = {layer["encoding"].get("x", {}).get("title") for chart in charts_of(at) for layer in chart["layer"]}
    assert f"Attention heads pruned in addition to “{found.text()}”" in titles
    choose_story(at, "others")
    others = parse_mask(at.text_input(key="mask").value, SHAPE)
    assert others.n_heads_pruned == found.n_heads_pruned
    assert (np.array(others.heads) | np.array(found.heads)).all(), "none of them is one of the induction heads"
    choose_story(at, "far")
    assert at.text_input(key="mask").value == "" and "can go before a loss is detectable" in said(at)


def test_a_link_to_a_story_alone_sets_what_it_prunes(with_shipped, open_app):
    link = {"model": "demo", "precision": "int8", "prune_story": NAME, "limit": "16"}
    at = open_app(run=False, **link)
    del at.query_params["task"], at.query_params["shots"]
    settled(at)
    assert at.text_input(key="mask").value == induction_heads().text()
    at = open_app(**link, mask="L0H1")
    assert at.text_input(key="mask").value == "L0H1", "a link that says more is what it says"


def line(n, lost):
    right = np.ones(n, bool)
    pruned = np.arange(n) >= lost
    return AccuracyWithout(1.0, float(pruned.mean()), paired(right, pruned))


def test_words_say_whether_it_holds():
    shape = ModelShape(4, 8, 8, 32, 4, 64, 512, 256)
    draws = tuple(line(48, lost) for lost in (0, 0, 0, 0, 24))
    view = removal_view(Removal((8, 9, 11, 12), line(100, 52), draws), shape, "demo_outfit, 5 shots")
    assert view.finding.endswith("100% → 48% right. **The story holds here.**") and "lost 52.0 points" in view.finding
    rows = view.parts[0].rows
    assert [round(row["lost"]) for row in rows] == [52, 10] and (rows[1]["low"], rows[1]["high"]) == (0, 50)
    assert "does not hold here" in removal_view(Removal((8,), line(100, 1), draws), shape, "").finding
    assert "no induction heads" in removal_view(Removal(()), shape, "").finding


def how_far(lost):
    """The story of a task of 100 questions, all of which the full model answers: so many are lost by level."""
    changes = {100 * tenth: line(100, n).change for tenth, n in enumerate(lost)}
    return break_view(break_point(TaskSpec("demo_outfit", 5), changes, 100, 0.25), "heads").finding


def test_how_far_names_the_level_before_a_detectable_loss_and_the_cliff():
    words = how_far([0, 0, 1, 1, 6, 7, 9, 12, 62, 66, 70])
    assert "**50%** of the heads" in words and "**70 to 80%, −50 points**" in words
    assert "With 100 questions, a loss of 12 points is noticed" in words
    never = how_far([0] * 11)
    assert "**100%** of the heads" in never and "cliff: **none**" in never
    chance = break_point(TaskSpec("demo_outfit", 5), {0: paired(np.ones(9, bool), np.ones(9, bool))}, 2, 0.25)
    assert "at chance" in break_view(chance, "heads").finding


@pytest.mark.slow("measures eleven levels of the embedded model, which has something to lose")
def test_prune_and_a_sweep_give_one_answer(open_app):
    """The same task, shots and number of questions: what the story marks is what `sweep` writes."""
    embedded = {"model": "demo", "precision": "int8", "task": "demo_copy", "shots": "0"}
    at = open_app(**embedded, limit="48", prune_story="How far?")
    [mark] = [each.proto.body for each in at.get("html") if 'data-mark="far"' in each.proto.body]
    assert 'data-state="read"' in mark
    run = RequestRun(session(), silent)
    asked = {"model": "demo", "precision": "int8", "tasks": "demo_copy", "shots": "0", "limit": 48}
    [point] = Sweep(**asked, order=ORDER, out="sweep.csv").measure(run).fields["break_points"]["heads"]
    assert run.cached, "nothing is measured again"
    assert f"**{100 * point['no_loss_up_to']:g}%** of the heads" in said(at)
    [marked] = frames_of(at)[0]["break"].to_dict("records")
    assert marked["level"] == point["first_detectable_loss"], "on the curve"
    assert not point["reading"] and point["cliff_points"] < -20 and point["first_detectable_loss"] < 1
    for name, value in point.items():
        assert f'data-{name}="{value}"' in mark


def test_a_story_closes_once_something_else_is_pruned(with_shipped, open_app):
    at = choose_story(open_app(**EMBEDDED, limit="16"), "heads")
    assert "Expect:" in said(settled(at)), "it stays while nothing is changed"
    settled(at.text_input(key="mask").set_value("L0H0").run())
    assert "Expect:" not in said(at) and at.session_state["prune_story"] is None

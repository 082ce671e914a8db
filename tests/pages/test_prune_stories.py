"""A story sets the controls that a user has, says what came out, and says so where it cannot be told."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from engine.models.loading import LoadSpec
from engine.models.masks import parse_mask
from engine.questions.requests import TaskSpec
from engine.requests import Sweep
from engine.requests.base import RequestRun
from engine.requests.running import silent
from engine.statistics import paired
from engine.studies.removal import AccuracyWithout, Removal, found_heads, without
from engine.studies.statements import break_point
from pages.ui.page.defaults import ORDER
from pages.ui.page.runtime import session
from pages.ui.prune import stories, story
from pages.ui.prune.stories import Cast, Far, cast_from
from tests.embedded import SHAPE
from tests.pages.conftest import charts_of, labels, level, said, settled

NAME = "Remove induction heads"


def induction_heads():
    """The mask without the embedded model's induction heads, once they are known."""
    found = found_heads(session().target(LoadSpec("demo", "int8"))).stored(session())
    assert found.heads, "the embedded model has some"
    return without(SHAPE, found.heads)


def choose(at, name):
    at.session_state["prune_story"], at.session_state["prune story to set"] = name, True
    return settled(at)


def test_stories_set_the_controls_and_tell_what_came_out(with_shipped, open_app):
    embedded = {"model": "demo", "precision": "int8", "task": "demo_outfit", "shots": "5"}
    embedded |= {"labels": "Shuffled", "heads": "20"}
    at = open_app(**embedded, limit="48", order="random")
    choose(at, "heads")
    assert at.segmented_control(key="labels").value == "true"
    found = induction_heads()
    assert at.text_input(key="mask").value == found.text() and level(at, "heads") == 0
    assert found.text() in said(at) and "The story holds here." in said(at)
    before = re.findall(r"([\d.]+) → [\d.]+% right", said(at))
    assert len(before) == 3 and before[0] == before[1], "one full model on one set of questions"
    titles = {layer["encoding"].get("x", {}).get("title") for layer in charts_of(at)[0]["layer"]}
    assert f"Attention heads pruned in addition to “{found.text()}”" in titles
    choose(at, "others")
    others = parse_mask(at.text_input(key="mask").value, SHAPE)
    assert others.n_heads_pruned == found.n_heads_pruned
    assert (np.array(others.heads) | np.array(found.heads)).all(), "none of them is one of the induction heads"
    choose(at, "control")
    assert at.selectbox(key="task").value == "demo_question"
    assert at.text_input(key="mask").value == found.text()
    choose(at, "heads")
    assert at.selectbox(key="task").value == "demo_outfit", "what is told by examples is asked with examples"


def test_a_link_to_a_story_alone_sets_the_controls_too(with_shipped, open_app):
    link = {"model": "demo", "precision": "int8", "prune_story": NAME, "limit": "16"}
    at = open_app(run=False, **link)
    del at.query_params["task"], at.query_params["shots"]
    settled(at)
    assert at.text_input(key="mask").value == induction_heads().text()
    at = open_app(**link, mask="L0H1")
    assert at.text_input(key="mask").value == "L0H1", "a link that says more is what it says"


def test_a_model_that_cannot_be_asked_is_shown_a_text(open_app, monkeypatch):
    monkeypatch.setattr(stories, "cast_from", lambda *needs: None)
    at = open_app(order="random", prune_story=NAME)
    assert story.UNASKED in said(at)
    choose(at, "heads")
    assert not at.exception and "See it on a text" in labels(at)


def line(n, lost):
    right = np.ones(n, bool)
    pruned = np.arange(n) >= lost
    return AccuracyWithout(1.0, float(pruned.mean()), paired(right, pruned))


def test_words_say_whether_it_holds():
    from engine.shapes import ModelShape

    shape = ModelShape(4, 8, 8, 32, 4, 64, 512, 256)
    draws = tuple(line(48, lost) for lost in (0, 0, 0, 0, 24))
    found = Removal((8, 9, 11, 12), line(100, 52), line(100, 0), draws)
    assert story.in_words(found, shape).endswith("**The story holds here.**")
    assert "does not hold here" in story.in_words(Removal((8,), line(100, 1), line(100, 0), draws), shape)
    told = story.cells(found, Cast(TaskSpec("demo_outfit", 5), TaskSpec("demo_yesno")))
    assert told[0].startswith("**−52 points** without the 4") and "100 → 48% right; demo_outfit, 5 shots" in told[0]
    assert told[1].startswith("**−10 points**") and "−50 to 0 over 5 draws" in told[1]
    assert told[2].startswith("**0 points**")


NEEDS = {"outfit": "examples", "copy": "copying", "question": "nothing", "sense": "nothing", "yesno": "reading"}
DEMO = {f"demo_{name}": need for name, need in NEEDS.items()}


@pytest.mark.parametrize(
    "preferred, main",
    [
        ((None, None), "demo_outfit"),
        (("demo_copy", None), "demo_copy"),
        (("demo_question", "demo_copy"), "demo_copy"),  # what needs nothing from its context has nothing to lose
        (("demo_yesno", None), "demo_outfit"),
        (("own.jsonl", None), "demo_outfit"),
    ],
)
def test_a_story_asks_a_task_that_takes_something_from_its_context(preferred, main):
    assert cast_from(DEMO, *preferred) == (main, "demo_question")
    assert cast_from({**DEMO, "demo_question": "copying"}, *preferred)[1] == "demo_sense", "what needs nothing"


@pytest.mark.parametrize(("task", "shots", "main"), [("demo_pet", 0, TaskSpec("demo_pet", 5)),
                                                     ("/a/mine.jsonl", 0, TaskSpec("/a/mine.jsonl", 0))])  # fmt: skip
def test_a_story_keeps_the_task_that_is_chosen_and_ones_own_questions(monkeypatch, task, shots, main):
    monkeypatch.setattr(stories.st, "session_state", {"task": task, "shots": shots})
    cast = stories.cast_of(SimpleNamespace(data_dir=None, spec=LoadSpec("demo")))
    assert (cast.main, cast.control) == (main, TaskSpec("demo_question", 0))


def test_of_tasks_whose_needs_nobody_has_said_some_are_known_to_need_no_examples():
    assert cast_from({"piqa": "", "copa": "", "boolq": ""}, "copa") == ("copa", "piqa")
    assert cast_from({"piqa": ""}, "piqa") is None and cast_from({"copa": "", "cb": ""}) is None
    assert cast_from({"copa": "", "pairs_plural": "examples"}, "copa") == ("pairs_plural", None), (
        "what other models have"
    )


def how_far(lost):
    """The story of a task of 100 questions, all of which the full model answers: so many are lost by level."""
    lines = {100 * tenth: line(100, n) for tenth, n in enumerate(lost)}
    changes = {level: each.change for level, each in lines.items()}
    return Far(lines, break_point(TaskSpec("demo_outfit", 5), changes, 100, 0.25))


def test_how_far_names_the_first_detectable_loss_and_the_cliff():
    found = how_far([0, 0, 1, 1, 6, 7, 9, 12, 62, 66, 70])
    told = story.far_cells(found)
    assert [cell.split("% of")[0].split(" ", 2)[2] for cell in told] == ["without 50", "without 60", "from 70 to 80"]
    assert told[1].startswith("**−9 points**") and told[2].startswith("**−50 points**") and "88 → 38% right" in told[2]
    words = story.far_in_words(found)
    assert "**50%** of the heads" in words and "**70 to 80%, −50 points**" in words
    assert "With 100 questions, a loss of 12 points is noticed" in words and found.level == 500
    never = how_far([0] * 11)
    assert never.level == 1000 and len(story.far_cells(never)) == 1 and "cliff: **none**" in story.far_in_words(never)
    lines = {level: line(100, 80) for level in (0, 100)}
    chance = Far(
        lines, break_point(TaskSpec("demo_outfit", 5), {0: paired(np.ones(9, bool), np.ones(9, bool))}, 2, 0.25)
    )
    assert chance.level == 0 and "at chance" in story.far_in_words(chance) and not story.far_cells(chance)


@pytest.mark.slow("measures eleven levels of the embedded model, which has something to lose")
def test_prune_and_a_sweep_give_one_answer(open_app):
    """The same task, shots and number of questions: what the story marks is what `sweep` writes."""
    embedded = {"model": "demo", "precision": "int8", "task": "demo_copy", "shots": "0"}
    at = open_app(**embedded, limit="48", prune_story="How far?")
    [mark] = [each.proto.body for each in at.get("html") if 'data-mark="far"' in each.proto.body]
    assert 'data-state="read"' in mark and f"{level(at, 'heads')}%" in said(at)
    run = RequestRun(session(), silent)
    asked = {"model": "demo", "precision": "int8", "tasks": "demo_copy", "shots": "0", "limit": 48}
    [point] = Sweep(**asked, order=ORDER, out="sweep.csv").measure(run).fields["break_points"]["heads"]
    assert run.cached, "nothing is measured again"
    assert not point["reading"] and point["cliff_points"] < -20 and point["first_detectable_loss"] < 1
    for name, value in point.items():
        assert f'data-{name}="{value}"' in mark


def test_a_story_closes_when_its_heads_or_its_task_are_left(with_shipped, open_app):
    embedded = {"model": "demo", "precision": "int8", "task": "demo_outfit", "shots": "5"}
    at = choose(open_app(**embedded, limit="16"), "heads")
    assert "Expect:" in said(settled(at)), "it stays while nothing is changed"
    settled(at.text_input(key="mask").set_value("L0H0").run())
    assert "Expect:" not in said(at) and at.session_state["prune_story"] is None
    choose(at, "control")
    settled(at.selectbox(key="task").set_value("demo_copy").run())
    assert "Expect:" not in said(at)

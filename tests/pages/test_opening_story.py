"""The opening story plays once, on a first visit to an address without parameters, and shows what was measured."""

from dataclasses import replace

import numpy as np
import pytest

from engine.models.loading import LoadSpec
from engine.models.masks import Mask
from engine.questions.requests import TaskSpec
from engine.studies.removal import removal, without
from engine.texts.tokenloss import token_losses
from pages.ui.page import first_visit
from pages.ui.page.runtime import jobs, session, store
from pages.ui.prune.opening import playing, records
from pages.ui.prune.stories import TEXT
from pages.ui.training import live
from scripts.make_demo.shipped import KERNELS
from tests.conftest import some_of
from tests.pages.conftest import button, components, go_to, ran, settled

TASKS = TaskSpec("demo_outfit", 5), TaskSpec("demo_question", 0)


@pytest.fixture
def visit(open_app, monkeypatch):
    """Opens the app in a new session, at an address with these parameters alone, with the shipped records."""
    monkeypatch.setenv("HEADROOM_SHIPPED", "1")
    monkeypatch.setenv("HEADROOM_PRODUCTS", KERNELS[0])
    monkeypatch.setattr("engine.models.session.device_class", lambda: "cpu")
    monkeypatch.setattr("engine.models.loading.device_class", lambda: "cpu")

    def visit(screen="", state=(), **parameters):
        at = open_app(screen, run=False)
        at.query_params.clear()
        at.query_params.update(parameters)
        for key, value in dict(state).items():
            at.session_state[key] = value
        return ran(at)

    return visit


def played(at):
    """What the component was sent: [] if it is not drawn."""
    return [data for data in components(at) if "sentences" in data]


def target():
    return session().target(LoadSpec("demo", "int8"))


def told():
    story = records.read_story(target(), TASKS, None, session())
    assert story is not None, "run python -m scripts.make_demo.shipped --add passage"
    return story


def test_it_plays_on_the_first_visit_alone(visit):
    at = visit()
    [data] = played(at)
    assert data["number"] == 1 and not data["asked"]
    assert played(ran(at)) == [data], "what follows in the same session does not start it again"
    assert not first_visit.plays_next(store()) and played(visit()) == []


def test_it_leaves_when_a_control_is_changed(visit):
    at = visit()
    at.query_params["written"] = "by the browser"  # which has a control's change in the address
    assert played(ran(at)) == []


OTHERS = [
    ({"prune_limit": "50"}, {}),
    ({}, {"model": "demo@other"}),
    ({"present": "1"}, {}),
    ({}, {"precision": "bf16"}),
    ({}, {"bos": "off"}),
]


@pytest.mark.thorough
@pytest.mark.parametrize("address, state", some_of(OTHERS, 2))
def test_it_plays_on_no_other_view(visit, address, state):
    assert played(visit(state=state, **address)) == []
    assert first_visit.plays_next(store()), "a first visit is still to come"


def test_it_does_not_play_without_its_records(visit, monkeypatch):
    monkeypatch.setenv("HEADROOM_SHIPPED", "0")
    assert played(visit()) == [] and first_visit.plays_next(store())


def test_it_does_not_play_where_another_screen_was_opened_first(visit):
    assert played(go_to(visit("induction"), "prune")) == []


def test_the_switch_turns_it_off_and_on_again(visit):
    at = visit(prune_limit="50")
    switch = at.toggle(key="opening_story")
    assert switch.value, "on by default"
    switch.set_value(False)
    ran(at)
    assert played(visit()) == []
    at = visit()
    assert not at.toggle(key="opening_story").value
    at.toggle(key="opening_story").set_value(True)
    ran(at)
    at = visit()
    assert played(at) and not ran(at).toggle(key="opening_story").value, "playing it turns the switch off"


def test_a_button_plays_it_on_any_view(visit):
    at = visit(prune_limit="50")
    button(at, "Play the story").click()
    [data] = played(ran(at))
    assert data["number"] == 1 and data["asked"]
    button(at, "Play the story").click()
    assert played(ran(at))[0]["number"] == 2


def test_a_button_says_where_it_cannot_be_played(visit, monkeypatch):
    monkeypatch.setenv("HEADROOM_SHIPPED", "0")
    at = settled(visit(prune_limit="16", prune_order="random", prune_shots="0", prune_idle="false"))
    button(at, "Play the story").click()
    assert played(ran(at)) == [] and [each.value for each in at.toast] == [playing.MISSING]


def test_its_numbers_are_those_of_the_story_and_of_passage(visit):
    [data] = played(visit())
    found = removal(target(), *TASKS, 100).stored(session())
    masks = Mask.full(target().shape), without(target().shape, found.heads)
    text = next(each.text for each in records.passages() if each.title == TEXT)
    full, pruned = (token_losses(target(), text, mask).stored(session()) for mask in masks)
    accuracy = data["accuracy"]
    shares = [accuracy["full"]["share"], accuracy["removed"]["share"], *(each["share"] for each in accuracy["draws"])]
    assert shares == [found.removed.full, found.removed.pruned, *(line.pruned for line in found.draws)]
    assert tuple(data["heads"]) == found.heads and not set(data["heads"]) & set(sum(data["draws"], []))
    assert accuracy["full"]["interval"] == ["88.8", "97.8"], "as under the figure of Prune"
    np.testing.assert_allclose(data["added"], pruned.loss_nats - full.loss_nats, atol=6e-4)
    assert "".join(data["pieces"]) == text and data["pieces"][data["repeats_at"]].strip() == data["pieces"][0].strip()
    half = data["repeats_at"]
    assert data["loss"]["full"] == [f"{full.loss_nats[:half].mean():.1f}", f"{full.loss_nats[half:].mean():.1f}"]
    assert all(len(sentence) <= 90 for sentence in data["sentences"])
    assert "34 of 100 answers are right, not 95" in data["sentences"][1] and "92 to 98 of 100" in data["sentences"][2]


def test_it_reads_the_measurement_of_the_button(visit):
    settled(visit(prune_story="Remove induction heads"))
    assert jobs().snapshot("story").key == records.measurement(target(), TASKS, None).key


def test_it_is_not_told_where_the_records_show_something_else(visit):
    visit()
    story = told()
    assert story.holds
    assert not replace(story, pruned=story.full).holds, "no loss appears"
    harmful = (*story.found.draws[1:], story.found.removed)
    assert not replace(story, found=replace(story.found, draws=harmful)).holds, "a draw loses as much"
    assert not replace(story, found=replace(story.found, draws=story.found.draws[:1])).holds


def test_an_entrance_trains_a_model(visit, monkeypatch):
    begun = []
    monkeypatch.setattr(live, "begin", lambda *run: begun.append(run[1]))
    at = visit()
    at.session_state[first_visit.LEARNING] = True  # as the component's report does
    ran(at)
    at = go_to(at, "training")
    assert begun == [live.FIRST] and button(at, "Train two tiny models live, about 2 min")
    go_to(at, "training")
    assert len(begun) == 1

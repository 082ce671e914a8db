"""What one screen prunes the others open with, and one button lets go of it everywhere."""

import pytest

from engine.models.masks import parse_mask
from engine.shapes import ModelShape
from pages.ui.controls.study import KEYS
from pages.ui.page.tables import mask_counts
from tests.pages.conftest import go_to, press, settled

SCREENS = {"induction": "induction"}  # which has a mask of its own


def goes_to(at, name):
    for key in list(at.query_params):  # a browser leaves the other screen's behind
        if key in KEYS or key.startswith(tuple(f"{screen}_" for screen in SCREENS)):
            del at.query_params[key]
    return go_to(at, SCREENS.get(name, name))


def badges(at):
    return [each.value for each in at.markdown if "Pruned:" in each.value]


def test_each_screen_opens_with_what_prune_prunes(open_app):
    at = open_app(order="random", heads="25", mask="F1")
    [badge] = badges(at)
    assert "2 of 8 heads, 1 of 2 FFNs" in badge
    goes_to(at, "text")
    assert (
        badges(at) == [badge] and at.number_input(key="heads").value == 25 and at.text_input(key="mask").value == "F1"
    )
    for name in SCREENS:
        goes_to(at, name)
        field = at.text_input(key=f"{name}_mask").value
        assert "F1" in field and "H" in field, name
        assert badges(at) == [f"{badge.removesuffix(']')}, from Prune]"], name
    goes_to(at, "prune")
    assert at.number_input(key="heads").value == 25, "what is unchanged stays as it was set"


def test_what_another_screen_sets_comes_back_and_is_let_go_of_everywhere(open_app):
    at = open_app(order="random", heads="25")
    goes_to(at, "induction")
    at.text_input(key="induction_mask").set_value("L0H1")
    settled(at)
    goes_to(at, "prune")
    assert at.text_input(key="mask").value == "L0H1" and at.number_input(key="heads").value == 0
    assert "1 of 8 heads" in badges(at)[0]
    press(goes_to(at, "text"), "Restore")
    assert badges(at) == [] and at.text_input(key="mask").value == ""
    goes_to(at, "prune")
    assert at.text_input(key="mask").value == "" and badges(at) == []


def test_an_address_says_what_is_pruned_and_hands_it_on(open_app):
    at = open_app("text", mask="L1H3")
    assert at.text_input(key="mask").value == "L1H3"
    goes_to(at, "prune")
    assert at.text_input(key="mask").value == "L1H3"


@pytest.mark.parametrize(
    "text, words", [("L0H0-2", "3 of 24 heads"), ("F1", "1 of 6 FFNs"), ("L5H0 F1", "1 of 24 heads, 1 of 6 FFNs")]
)
def test_a_badge_says_only_what_is_pruned(text, words):
    shape = ModelShape(6, 4, 4, 32, 8, 64, 512, 256)
    assert mask_counts(shape, parse_mask(text, shape)) == words

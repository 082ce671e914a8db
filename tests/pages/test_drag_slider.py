"""The slider for pruning levels: what the hand reports, what is set, and what whoever else sets it does to both."""

import pytest
from streamlit.testing.v1 import AppTest

from tests.conftest import HANG_S
from tests.pages.conftest import components, level, ran, slide


def screen():
    import streamlit as st

    from pages.ui.controls import drag_slider
    from pages.ui.controls.drag_slider import Field, draw_slider, level_field

    def preset():
        st.session_state.trial_heads = 15

    place = st.container()
    percent = level_field(place.container(key="hidden trial_heads"), "trial_heads", "Heads pruned")
    field = Field("trial_heads", "Heads pruned", percent, place)
    draw_slider(field, "They give 0.", live=True, texts={0: "none", 5: "<b>"})
    hand = drag_slider.hand("trial_heads")
    st.button("Preset", on_click=preset)
    st.text(f"{10 * field.percent} {hand.permille} {hand.moving}")


@pytest.fixture
def open_screen():
    def open_screen(**parameters):
        at = AppTest.from_function(screen, default_timeout=HANG_S)
        for name, value in parameters.items():
            at.query_params[name] = value
        return ran(at)

    return open_screen


def said(at):
    """(permille set, permille of the hand, whether it moves)."""
    return at.text[0].value


def test_a_moving_hand_sets_nothing_until_it_lets_go(open_screen):
    at = open_screen()
    [data] = components(at)
    assert data["label"] == "Heads pruned" and data["help"].startswith("They give 0. ")
    assert data["value"] == 0 and data["live"] and data["texts"] == {"0": "none", "5": "<b>"}
    ran(slide(at, "trial_heads", 40, moving=True))
    assert said(at) == "0 400 True" and components(at)[0]["value"] == 0
    ran(slide(at, "trial_heads", 45))
    assert said(at) == "450 450 False" and level(at, "trial_heads") == 45
    [data] = components(at)
    assert data["value"] == 45 and data["seen"] == at.session_state["trial_heads drag"]["hand"]["number"]


def test_a_level_let_go_is_set_once(open_screen):
    at = open_screen()
    ran(slide(at, "trial_heads", 40))
    at.number_input(key="trial_heads").set_value(43)
    assert said(ran(at)) == "430 430 False"
    at.button[0].click()
    assert said(ran(at)) == "150 150 False" and components(at)[0]["value"] == 15
    assert said(ran(at)) == "150 150 False"


def test_the_address_sets_it(open_screen):
    assert said(open_screen(trial_heads="40")) == "400 400 False"
    assert (
        said(open_screen(trial_heads="-3")) == "0 0 False"
        and said(open_screen(trial_heads="4000")) == "1000 1000 False"
    )
    assert said(open_screen(trial_heads="<script>")) == "0 0 False"


def test_a_hand_stays_on_the_scale_and_nonsense_is_no_hand(open_screen):
    at = open_screen(trial_heads="40")
    for hand in (None, 7, "x", {}, {"percent": "<b>", "number": 1}, {"percent": None, "number": 1},
                 {"percent": float("nan"), "number": 1}, {"percent": 10, "number": "?"}):  # fmt: skip
        at.session_state["trial_heads drag"] = {"hand": hand}
        assert said(ran(at)) == "400 400 False", hand
    at = open_screen()
    assert said(ran(slide(at, "trial_heads", 1e9, moving=True))) == "0 1000 True"
    assert said(ran(slide(at, "trial_heads", -7))) == "0 0 False"

"""The Prune screen while its slider moves: an estimate stands in for each part, and nothing is read or measured."""

import streamlit as st

from pages.ui.controls.drag_slider import hand
from pages.ui.controls.study import drawn_axis
from pages.ui.controls.study_bar import draw_pruned
from pages.ui.page.marks import counts, mark
from pages.ui.page.tables import plain
from pages.ui.prune import charts, estimates
from pages.ui.prune.experiment import Experiment
from pages.ui.prune.figure import draw_estimate
from pages.ui.prune.parts import draw_curve_of, draw_example, draw_map_of
from pages.ui.prune.state import PruneState


def is_dragged() -> bool:
    """Returns whether the drawn slider moves."""
    return hand(drawn_axis()).moving


def at_slider(state: PruneState) -> Experiment:
    """Returns the experiment at the slider's position."""
    return state.x.at(state.axis, hand(state.axis).permille)


def draw_figure(state: PruneState) -> None:
    """Draws the accuracy at the slider: measured before, or estimated."""
    x = at_slider(state)
    level = x.pruning.level(state.axis)
    mask = x.mask(state.known)
    what = estimates.pruned_in_words(x, state.known, mask)
    shown = draw_estimate(state.title, state.estimates, level, what, x.questions.n)
    mark("figure", shown, **counts(mask))


def draw_badge(state: PruneState) -> None:
    """Draws what is pruned at the slider, as a badge."""
    draw_pruned(st.container(), state.x.shape, at_slider(state).mask(state.known))


def draw_curve(state: PruneState) -> None:
    """Draws the curve, with the position of the slider: measured before, or estimated."""
    level = at_slider(state).pruning.level(state.axis)
    points = state.points
    now, hollow = points[points["level"] == level / 1000], charts.NONE
    if now.empty:
        hollow = estimates.hand_frame(state.estimates, level)
    draw_curve_of(state, level, now, hollow)


def draw_map(state: PruneState) -> None:
    """Draws what is pruned at the slider."""
    draw_map_of(state, at_slider(state).mask(state.known))


def draw_question(state: PruneState) -> None:
    """Draws the question of the level before, dimmed."""
    with st.container(key="outdated_example"):
        draw_example(state.x, state.answers)


def draw_second(state: PruneState) -> None:
    """Draws the second model's name: its figure follows."""
    if state.second_model is not None:
        name = plain(state.second_model.second)
        st.markdown(f":small[{name}: follows when you release the slider]")

"""The Prune screen from its slider to its map: where each part stands, and what draws it, at rest and in a drag."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import streamlit as st

from pages.ui.controls.drag_slider import Field, draw_slider
from pages.ui.controls.model import identity_of
from pages.ui.controls.study import Study
from pages.ui.controls.study_bar import beside_level
from pages.ui.figures.empty import draw_sketch
from pages.ui.page.defaults import LEVEL_HELP, LEVELS
from pages.ui.page.marks import mark
from pages.ui.page.streamlit_internals import DeltaGenerator, RunEnded
from pages.ui.page.widget_writes import hold
from pages.ui.page.work import POLL_S, live, under_way
from pages.ui.prune import around, drag, estimates, head_map, parts, schedule, second_model, stories, tables
from pages.ui.prune.experiment import ACCURACY, CURVE, SECOND, SECOND_CURVE
from pages.ui.prune.orders import ORDERS, SLOW_ORDER
from pages.ui.prune.state import PruneState, read_state

LEFT_RIGHT, MAP_EXAMPLE = (4, 7), (7, 4)  # widths of figure and curve, and of map and example
CURVE_OF = "prune curve of"  # in the session: the study of the last run, but for the level that the slider sets
FOLLOWED = (CURVE, SECOND_CURVE, "gradients", *ORDERS.values(), estimates.SLOT, around.SLOT)  # by the curve


@dataclass(frozen=True)
class PagePart:
    """A part of the screen.

    `at`: its place
    `draw`, `dragged`: draw it, at rest and while the slider moves
    `slots`: the work that it follows; none: it is drawn once a run
    """

    at: str
    draw: Callable[[PruneState], None]
    dragged: Callable[[PruneState], None]
    slots: Sequence[str] = ()


PARTS = (  # the figure before all else: otherwise it would be queued after other drawings
    PagePart("figure", parts.draw_figure, drag.draw_figure, (ACCURACY, "train questions", SLOW_ORDER)),
    PagePart("badge", parts.draw_badge, drag.draw_badge),
    PagePart("second", second_model.draw_second_model, drag.draw_second, (SECOND, ACCURACY)),
    PagePart("example", parts.draw_question, drag.draw_question),
    PagePart("story", stories.draw_story, stories.draw_story, stories.SLOTS),
    # apart from the figure: a chart takes long to build, and the measuring thread would wait for it
    PagePart("curve", parts.draw_curve, drag.draw_curve, FOLLOWED),
    PagePart("map", parts.draw_map, drag.draw_map),
)


def draw_page(of: Study) -> PruneState:
    """Draws the slider and the parts that follow it; returns what they show."""
    states: list[PruneState] = []

    @st.fragment
    def draw_fragment() -> None:  # runs again alone while the slider moves
        is_dragged = drag.is_dragged()
        if states and not is_dragged:
            hold("mask")  # as the bar does in a run of the page: else a click is lost that the browser has not drawn
            head_map.apply_edits()
            st.rerun()  # a control is set: the whole page needs it
        at = _places()
        if not states:
            states.append(_begin(of, at))
        (schedule.abandon if is_dragged else schedule.start_next)(states[0])
        if not schedule.is_postponed():
            _draw_slider(of, states[0], at["slider"])
        for part in PARTS:
            _draw_part(part, states[0], at[part.at])

    draw_fragment()
    if schedule.is_postponed():
        _draw_again()
    st.session_state[schedule.DRAWN] = True
    return states[0]


def _places() -> dict[str, DeltaGenerator]:
    """Returns the places of all parts, in their order on the page, the same in each run."""
    slider = st.container(key="study_level")
    with st.container(key="prune_stories", horizontal=True, vertical_alignment="center"):
        stories.choose_story()
        badge = st.container(key="follows_hand_badge", width="content")
    setting, told = st.container(), st.container(key="prune_told")
    figure, curve = st.columns(LEFT_RIGHT, gap="large")
    heads, question = st.columns(MAP_EXAMPLE, gap="large")
    keys = {"figure": figure, "curve": curve, "map": heads}
    at = {name: each.container(key=f"follows_hand_{name}") for name, each in keys.items()}
    at |= {"slider": slider, "badge": badge, "setting": setting, "story": told, "second": figure.container()}
    return at | {"waiting": curve, "example": question.container(key="prune_example")}


def _begin(of: Study, at: dict[str, DeltaGenerator]) -> PruneState:
    """Reads the state; while model or questions are prepared, the slider is drawn alone, and in a tab's first run
    before anything is read."""
    with at["setting"]:
        mark("setting", "same" if _keeps_curve(of) else "other")
    if schedule.is_postponed():
        _draw_slider(of, None, at["slider"])
    try:
        return read_state(of)
    except RunEnded:
        if not schedule.is_postponed():
            _draw_slider(of, None, at["slider"])
        if under_way(_waits_for(of)):
            with at["waiting"]:
                draw_sketch("plot", "curve")
        raise


def _draw_slider(of: Study, state: PruneState | None, at: DeltaGenerator) -> None:
    axis, texts, named = of.axis, {}, ""
    if state is not None:
        texts, named = state.texts, tables.named_in_words(state.x)
    field = Field(axis, LEVELS[axis], of.percent(axis), at)
    draw_slider(field, LEVEL_HELP[axis], texts, beside_level(of.typed, named), live=True)


def _draw_part(part: PagePart, state: PruneState, at: DeltaGenerator) -> None:
    def draw() -> None:
        (part.dragged if drag.is_dragged() else part.draw)(state)

    with at:
        if not part.slots:
            draw()
            return
        every_s = schedule.redrawn_every_s(state) if part.at == "figure" else POLL_S
        live(part.slots, draw, state.since_s, every_s)


def _draw_again() -> None:
    """Runs the page again once the browser has drawn it: from then on it measures."""

    @st.fragment(run_every=schedule.FIGURE_S)
    def again() -> None:
        if st.session_state.get(schedule.DRAWN):
            st.rerun()

    again()


def _keeps_curve(of: Study) -> bool:
    """Returns whether this run's curve is that of the run before, as far as the study tells."""
    now = replace(of, **{of.axis: 0})
    before, st.session_state[CURVE_OF] = st.session_state.get(CURVE_OF), now
    return before in (None, now)


def _waits_for(of: Study) -> list[str]:
    """Returns the slots of what the page waits for before it draws a figure."""
    return [identity_of(of.spec).slot, f"ways of {of.spec.precision}", "questions"]

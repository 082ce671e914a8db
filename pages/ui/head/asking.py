"""The choice of head and tasks, all in the address, and the steps to its neighbors."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import streamlit as st

from engine.errors import UsageError
from engine.heads.induction import best_heads, induction
from engine.models.session import Target
from engine.questions.requests import TaskSpec
from engine.shapes import ModelShape
from engine.studies.one_head import head_named
from engine.studies.surveys import grid
from pages.ui.controls.controls import choose_shots, settings_popover
from pages.ui.controls.heads import KEY
from pages.ui.controls.many_tasks import local_tasks, several
from pages.ui.figures.empty import reading_state
from pages.ui.page.address import current_value
from pages.ui.page.runtime import end_run, first_figure_s, session, show_error
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.widget_writes import hold, write
from pages.ui.page.work import Work, live

N_TASKS = 1  # at first: a second one doubles what the page measures by itself
HEAD_HELP = "Such as `L1H0`: layer 1, head 0, both counted from 0. First shown: the head of the best prefix matching."
LIST_HELP = "Those of the highest scores of each kind, and those without which most accuracy is lost."
TASKS_HELP = "Answered with and without the head, and used to measure its importance. All on this computer."
SHOTS_HELP = "Examples in the prompt of each question."


@dataclass(frozen=True)
class HeadControls:
    """The settings of the controls; `head` by name."""

    head: str
    tasks: tuple[TaskSpec, ...]


def choose(target: Target, data_dir: str | None) -> tuple[HeadControls, DeltaGenerator, DeltaGenerator]:
    """Draws the controls; returns their settings, the place of `choose_of`, and the rest of their row."""
    shape, first = target.shape, default_head(target)
    hold(KEY)
    typed = current_value(KEY).strip()
    head = _one_of(shape, typed) or first
    wraps = st.container(key="wraps head")  # in a narrow window
    steps_at, list_at, settings_at, rest_at = wraps.columns([5, 5, 3, 8], vertical_alignment="bottom")
    settings = settings_popover(settings_at)
    with steps_at, st.container(horizontal=True, vertical_alignment="bottom", gap="xxsmall"):
        look: dict[str, Any] = {"on_click": go_to, "width": "content"}
        st.button("‹", key="head before", args=(neighbour(shape, head, -1),), help="The head before.", **look)
        st.text_input("Head", key=KEY, bind="query-params", placeholder=first, help=HEAD_HELP, width="stretch")
        st.button("›", key="head after", args=(neighbour(shape, head, 1),), help="The next head.", **look)
    every = local_tasks(data_dir)
    draw = partial(settings.multiselect, "Tasks", every, help=TASKS_HELP, placeholder="none")
    names = several("head_tasks", every, draw, every[:N_TASKS])
    shots = choose_shots(settings, "head_shots", SHOTS_HELP, width="stretch")
    tasks = tuple(grid([name for name in every if name in names], [shots]))
    if typed and not _one_of(shape, typed):
        ends = f"{shape.head_names[0]} to {shape.head_names[-1]}"
        show_error(f"“{typed[:40]}” is not a head of this model: type one from {ends}. Below is {head}.")
    return HeadControls(head, tasks), list_at, rest_at


def choose_of(interesting: Mapping[str, str], name: str, at: DeltaGenerator) -> None:
    """Draws a list of heads with what makes each worth a look; a choice opens its head."""
    listed, key = list(interesting), f"head listed {name} {name in interesting}"
    look: dict[str, Any] = {
        "placeholder": "Choose a head",
        "help": LIST_HELP,
        "on_change": _listed,
        "args": (key, st.session_state.get(KEY)),
    }
    look["index"] = listed.index(name) if name in listed else None
    at.selectbox("Heads of interest", listed, format_func=lambda each: f"{each}: {interesting[each]}", key=key, **look)


def _listed(key: str, typed: str | None) -> None:
    """Opens the chosen head; not if the browser still reports the list of a head that has been left, which was drawn
    while `typed` was in the field."""
    state = st.session_state
    if state.get(key) and state.get(KEY) == typed:
        go_to(state[key])


def default_head(target: Target) -> str:
    """Returns the head of the best prefix matching if that is stored, else the first."""
    found = induction(target).stored(session())
    return "L0H0" if found is None else next(best_heads(found.mean["prefix_matching"], 1))[0]


def await_first_head(target: Target) -> None:
    """Ends the run, with the progress and a sketch, while the scores are measured by which the screen chooses the head
    that it opens with; not if a head is named, or if that takes longer than a screen may measure by itself."""
    if current_value(KEY).strip() or induction(target).stored(session()) is not None:
        return
    since_s, work = time.monotonic(), Work("induction", "Induction scores", induction(target), while_seen=True)
    if not work.under_way:
        if work.now() is not None or (work.takes_s() or 0.0) > first_figure_s() or not first_figure_s():
            return  # stopped, failed, or too long: the first head
        work.start()
    with reading_state("heads", "ranks"):
        live([work.slot], work.line, since_s)
    end_run()


def neighbour(shape: ModelShape, name: str, by: int) -> str:
    """Returns the head `by` places after another, wrapping from the last to the first."""
    layer, head = head_named(name, shape)
    return shape.head_names[(layer * shape.n_heads + head + by) % shape.n_heads_total]


def go_to(name: str) -> None:
    """Shows another head; for callbacks."""
    write(KEY, name)


def _one_of(shape: ModelShape, text: str) -> str | None:
    """Returns the name of the head that a text names; None if it names none, or several."""
    try:
        layer, head = head_named(text, shape)
    except UsageError:
        return None
    return f"L{layer}H{head}"

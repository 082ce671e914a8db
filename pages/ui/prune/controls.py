"""The controls of the Prune screen: what is asked and in which order is pruned in one row, the rest under "Settings".

The sliders are drawn by `parts`, as they alone run while one of them moves.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import streamlit as st

from engine.importance.layers import LAYERS_BY
from engine.importance.rankings_of import Axis
from engine.questions.requests import TaskSpec
from engine.questions.tasks import list_tasks
from pages.ui.controls.controls import (
    CHAT_HELP,
    MANY,
    choose_ranking,
    choose_shots,
    one_listed,
    one_of,
    pruned_and_kept,
    settings_menu,
    type_mask,
)
from pages.ui.controls.first_views import suited
from pages.ui.controls.own_questions import draw_own_questions, take_fewer_examples
from pages.ui.controls.task_box import task_box
from pages.ui.page.address import MOST, flag, number_field, put_right
from pages.ui.page.defaults import LABELS, LABELS_HELP, LEVELS, ORDER
from pages.ui.page.presentation import presenting
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.tables import level_percent, plain
from pages.ui.page.widget_writes import write

AXIS_KEY, SETTINGS = "prune_axis", "prune_settings"
AXIS_NAMES: dict[Axis, str] = {"heads": "Attention heads", "ffns": "FFNs", "layers": "Layers"}
TASK_HELP = (
    "A task of EleutherAI's lm-evaluation-harness, or your own questions. Type part of a name to filter. The examples "
    "stand in the prompt of each question (shots): 0-shot, 1-shot, 5-shot."
)
SAME_HELP = (
    "The same examples for all questions. The harness draws others for each: the same ones are several times as "
    "fast to score, but give other numbers than the harness."
)
LIMIT_HELP = (
    "Of the validation split, a stratified sample: right answers in the proportions of the whole, so that the first "
    "few are a fair preview. More questions, narrower interval."
)
LAYERS_HELP = (
    "Which layers go first, on this task's train questions. `influence`: those that turn the residual stream least, 1 "
    "- cosine of what enters and leaves (one pass). `oracle`: without which least accuracy is lost (a pass a layer). "
    "`greedy`: the same measured again on the remaining layers each time (a pass for each of them). "
    "`last-first`: the deepest. `random`: seeded, the baseline of every other."
)
MASK_CHIP_HELP = "Clicked, typed, or pruned on another screen, whatever the slider says. Opens Settings."
RESTORE_HELP = "Restores these; the slider's level stays."
CHIP_HELP = "Pruned as well. Shows this slider."


@dataclass(frozen=True)
class PruneControls:
    """What the controls above the slider are set to."""

    task: TaskSpec  # the chosen task
    limit: int  # the most questions asked
    axis: Axis  # whose slider is drawn, and whose levels run along the curve
    ranking: str  # the pruning order of heads and FFNs; "" until the screen has set it
    layers_by: str  # the pruning order of layers
    typed: str  # the text of a mask, pruned as well
    is_chat: bool  # prompts are chats


def choose_controls(data_dir: str | None, is_demo: bool) -> PruneControls:
    """Draws the row of controls; HeadroomError without the data folder. The included model has no chats."""
    row = st.container(key="prune_controls", horizontal=True, vertical_alignment="bottom", gap="small")
    available = [status.info.name for status in list_tasks(data_dir) if status.available]
    names = suited(available, is_demo)
    name = task_box(row, "Task", names, "prune_task", _open_settings, help=TASK_HELP)
    take_fewer_examples()
    shots = choose_shots(row, "prune_shots", None, width="content")
    axis = choose_axis(row)
    ranking = choose_ranking("prune", row, ORDER if is_demo else "")
    settings = settings_menu(row, "prune")
    draw_own_questions(settings, _close_settings)  # first, as the list of tasks leads to them
    about: dict[str, Any] = {"value": 100, "step": 50, "help": LIMIT_HELP}
    limit = number_field(settings, "Questions", (1, MOST), "prune_limit", **about)
    same = _switch(settings, "Same examples for every question", "prune_same", SAME_HELP)
    labels = one_of(settings, "Labels of the examples", LABELS, "prune_labels", LABELS_HELP)
    is_chat = not is_demo and _switch(settings, "Prompts as chats", "prune_chat", CHAT_HELP)
    typed = type_mask("prune", settings)
    layers_by = one_listed(settings, "Layers by", LAYERS_BY, "prune_layers_by", help=LAYERS_HELP)
    task = TaskSpec(name, int(shots), same_examples=bool(same and shots), labels=labels)
    return PruneControls(task, int(limit), axis, ranking, layers_by, typed, is_chat)


def choose_axis(where: DeltaGenerator) -> Axis:
    """Draws the choice of what the slider prunes."""
    return one_of(where, "What to prune", AXIS_NAMES, AXIS_KEY, None, width="content")


def drawn_axis() -> Axis:
    """Returns the axis whose slider is drawn."""
    return st.session_state.get(AXIS_KEY) or "heads"


def draw_chips(where: DeltaGenerator, percent: Mapping[Axis, int], axis: Axis, typed: str, named: str) -> None:
    """Draws the rest of the pruning: a button for each other axis, which shows its slider, one with the number of heads
    and FFNs pruned as well (`named`, or "" if unknown), which opens Settings, and one that restores those alone."""
    if typed:
        pruned, kept = pruned_and_kept(typed)
        also = f"{named}: {pruned}" if named and pruned != MANY else named or pruned
        text = " · ".join([f"Also {also}"] * bool(pruned) + [f"Kept: {kept}"] * bool(kept))
        look: dict[str, Any] = {"key": "prune chip mask", "icon": ":material/content_cut:", "help": MASK_CHIP_HELP}
        at = where.container(horizontal=True, vertical_alignment="center", gap="xsmall")
        at.button(plain(text), on_click=_open_settings, **look)
        if not presenting():  # at every level: the slider next to it keeps its width in a drag
            restore: dict[str, Any] = {"key": "prune restore named", "help": RESTORE_HELP}
            at.button("Restore", type="tertiary", on_click=partial(write, "prune_mask", ""), **restore)
    for other in LEVELS:
        if other != axis and percent[other]:
            about: dict[str, Any] = {"key": f"prune chip {other}", "icon": ":material/content_cut:", "help": CHIP_HELP}
            label = f"{AXIS_NAMES[other]} {level_percent(10 * percent[other])}"
            where.button(label, on_click=partial(write, AXIS_KEY, other), **about)


def _switch(where: DeltaGenerator, label: str, key: str, help: str) -> bool:
    put_right(key, label, flag)
    return where.checkbox(label, key=key, bind="query-params", help=help)


def _open_settings() -> None:
    st.session_state[SETTINGS] = True


def _close_settings() -> None:
    st.session_state[SETTINGS] = False

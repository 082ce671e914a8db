"""The bar of the study, the same on all screens that measure: what is asked, and what is pruned."""

from typing import Any

import streamlit as st

from engine.importance.layers import LAYERS_BY
from engine.importance.rankings_of import Axis
from engine.models.masks import Mask
from engine.questions.requests import TaskSpec
from engine.questions.tasks import list_tasks
from engine.shapes import ModelShape
from pages.ui.controls.controls import (
    CHAT_HELP,
    beside_level,
    choose_ranking,
    choose_shots,
    one_listed,
    one_of,
    settings_menu,
    type_mask,
)
from pages.ui.controls.drag_slider import Field, draw_slider, level_field
from pages.ui.controls.first_views import suited
from pages.ui.controls.own_questions import draw_own_questions, take_fewer_examples
from pages.ui.controls.study import STUDY, Setup, Study, apply_settings, restore
from pages.ui.controls.task_box import task_box
from pages.ui.page.address import MOST, flag, number_field, put_right
from pages.ui.page.defaults import LABELS, LABELS_HELP, LEVEL_HELP, LEVELS, ORDER
from pages.ui.page.runtime import errors_shown
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.tables import mask_counts

SETTINGS = "study_settings"  # the menu
AXIS_NAMES: dict[Axis, str] = {"heads": "Heads", "ffns": "FFNs", "layers": "Layers"}
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
PRUNED_HELP = "On all screens. By the slider, by a click on the map, or typed under Settings: {}"
RESTORE_HELP = "Restores all of it: levels at 0, nothing named."


def draw_bar(setup: Setup) -> None:
    """Draws the row of controls, of which `study` returns the values. A screen draws the slider below it, by
    `draw_level` or, as Prune, in a part that follows it while it moves."""
    apply_settings()
    row = st.container(key="study_bar", horizontal=True, vertical_alignment="bottom", gap="small")
    with errors_shown():
        available = [status.info.name for status in list_tasks(setup.data_dir) if status.available]
    is_demo = setup.spec.is_demo
    name = task_box(row, "Task", suited(available, is_demo), "task", _open_settings, help=TASK_HELP)
    take_fewer_examples()
    shots = choose_shots(row, "shots", None, width="content")
    axis = one_of(row, "What to prune", AXIS_NAMES, "axis", None, width="content")
    ranking = choose_ranking("order", row, ORDER if is_demo else "")
    settings = settings_menu(row, "study")
    draw_own_questions(settings, _close_settings)  # first, as the list of tasks leads to them
    about: dict[str, Any] = {"value": 100, "step": 50, "help": LIMIT_HELP}
    limit = number_field(settings, "Questions", (1, MOST), "limit", **about)
    same = _switch(settings, "Same examples for every question", "same", SAME_HELP)
    labels = one_of(settings, "Labels of the examples", LABELS, "labels", LABELS_HELP)
    is_chat = not is_demo and _switch(settings, "Prompts as chats", "chat", CHAT_HELP)
    typed = type_mask("mask", settings)
    layers_by = one_listed(settings, "Layers by", LAYERS_BY, "layers_by", help=LAYERS_HELP)
    fields = st.container(key="hidden levels")
    levels = {each: level_field(fields, each, label) for each, label in LEVELS.items()}
    task = TaskSpec(name, int(shots), same_examples=bool(same and shots), labels=labels)
    of = {"ranking": ranking, "layers_by": layers_by, "typed": typed, "is_chat": is_chat}
    st.session_state[STUDY] = Study(setup, task, int(limit), axis, **levels, **of)


def draw_level(of: Study) -> DeltaGenerator:
    """Draws the slider below the row of controls; returns the place of the badge next to it."""
    with st.container(key="study_level"):
        level_at, badge_at = st.columns([8, 5], gap="medium", vertical_alignment="center")
    level = Field(of.axis, LEVELS[of.axis], of.percent(of.axis), level_at)
    draw_slider(level, LEVEL_HELP[of.axis], more=beside_level(of.typed))
    return badge_at


def draw_pruned(where: DeltaGenerator, shape: ModelShape, mask: Mask | None) -> None:
    """Draws what is pruned, as a badge, and the button that restores it; nothing if the mask is not known yet."""
    if mask is None or mask.is_full:
        return
    with where.container(horizontal=True, vertical_alignment="center", gap="xxsmall"):
        look: dict[str, Any] = {"icon": ":material/content_cut:", "color": "orange"}
        st.badge(f"Pruned: {mask_counts(shape, mask)}", help=PRUNED_HELP.format(mask.text()), **look)
        st.button("Restore", key="restore", type="tertiary", help=RESTORE_HELP, on_click=restore)


def _switch(where: DeltaGenerator, label: str, key: str, help: str) -> bool:
    put_right(key, label, flag)
    return where.checkbox(label, key=key, bind="query-params", help=help)


def _open_settings() -> None:
    st.session_state[SETTINGS] = True


def _close_settings() -> None:
    st.session_state[SETTINGS] = False

"""The pruning controls of the screens that show a text: two levels, a mask, a ranking."""

from collections.abc import Sequence
from typing import Any

import streamlit as st

from engine.importance.rankings_of import NEEDS
from engine.questions.requests import TaskSpec
from pages.ui.controls.controls import Levels, choose_level, choose_ranking, type_mask
from pages.ui.controls.many_tasks import local_tasks
from pages.ui.controls.task_box import task_box
from pages.ui.page.defaults import SHOTS
from pages.ui.page.streamlit_internals import DeltaGenerator

RANKING, HEADS = "induction-first", 10  # defaults of such a screen, so that there is something to see: percent
TASK_HELP = (
    f"Orders by importance need a task: measured on its train questions with {SHOTS} shots. Off if "
    "nothing is pruned by importance."
)


def choose_pruning(
    prefix: str, data_dir: str | None, of: str = "", places: Sequence[DeltaGenerator] | None = None
) -> Levels:
    """Draws the controls, kept in the address under `prefix`; `of` precedes the labels of the sliders. `places`: of the
    sliders of heads and FFNs, the mask, the order and its task; by default side by side."""
    if places is None:
        wraps = st.container(key="wraps pruning")  # in a narrow window: see screens.css
        places = wraps.columns([4, 4, 3, 3, 3], gap="small")
    heads_at, ffns_at, mask_at, ranking_at, task_at = places
    heads_title, ffns_title = (f"{of}heads pruned", f"{of}FFNs pruned")
    help = "These heads give 0 to their layer's output."
    heads = choose_level(prefix, heads_at, "heads", heads_title[:1].upper() + heads_title[1:], help, HEADS)
    ffns = choose_level(prefix, ffns_at, "ffns", ffns_title, "These FFNs add nothing.")
    typed, ranking = type_mask(prefix, mask_at), choose_ranking(prefix, ranking_at, RANKING)
    more: dict[str, Any] = {"disabled": not by_importance(ranking, ffns), "help": TASK_HELP}
    name = task_box(task_at, "Important for", local_tasks(data_dir), f"{prefix}_task", **more)
    return Levels(TaskSpec(name, SHOTS), ranking, heads, ffns, typed)


def by_importance(ranking: str, ffns_permille: int) -> bool:
    """Returns whether anything is pruned by a task's importance: heads ranked by it, or FFNs, which always are."""
    return "heads" in NEEDS[ranking] or ("ffns" in NEEDS[ranking] and ffns_permille > 0)

"""The pruning controls of the screens that show a text: two levels, a mask, a ranking."""

from dataclasses import replace
from typing import Any

from engine.importance.rules import RULES
from engine.questions.requests import TaskSpec
from pages.ui.controls.carried import count_named
from pages.ui.controls.controls import Levels, beside_level, choose_level, choose_ranking, type_mask
from pages.ui.controls.drag_slider import draw_field, draw_slider
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
    prefix: str, data_dir: str | None, heads_at: DeltaGenerator, menu: DeltaGenerator, of: str = ""
) -> Levels:
    """Draws the controls, kept in the address under `prefix`: the slider of heads, and the others in the menu. `of`
    precedes the labels of the sliders."""
    heads_title, ffns_title = (f"{of}heads pruned", f"{of}FFNs pruned")
    help = "These heads give 0 to their layer's output."
    heads = draw_field(heads_at, f"{prefix}_heads", heads_title[:1].upper() + heads_title[1:], HEADS)
    ffns = choose_level(prefix, menu, "ffns", ffns_title, "These FFNs add nothing.")
    typed, ranking = type_mask(f"{prefix}_mask", menu), choose_ranking(f"{prefix}_order", menu, RANKING)
    named = replace(heads, label=f"{heads.label}, {ranking}")  # each screen has its own order
    draw_slider(named, help, more=beside_level(typed, count_named(prefix, typed)))
    more: dict[str, Any] = {"disabled": not by_importance(ranking, ffns), "help": TASK_HELP}
    name = task_box(menu, "Important for", local_tasks(data_dir), f"{prefix}_task", **more)
    return Levels(TaskSpec(name, SHOTS), ranking, 10 * heads.percent, ffns, typed)


def by_importance(ranking: str, ffns_permille: int) -> bool:
    """Returns whether anything is pruned by a task's importance: heads ranked by it, or FFNs, which always are."""
    needs = RULES[ranking].needs
    return "heads" in needs or ("ffns" in needs and ffns_permille > 0)

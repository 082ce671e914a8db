"""What the screens about many tasks open with: a few tasks at one shot count, so that a first view is measured in
seconds.

No streamlit here: the results of these views can be made before the app is started.
"""

from collections.abc import Sequence

from engine.questions.requests import TaskSpec
from engine.questions.tasks import embedded_tasks, pair_tasks, task_info
from engine.studies.surveys import grid
from pages.ui.page.defaults import SHOTS

JUDGES = 100  # questions per task: the default of Prune, so that both agree
N_FIRST, N_COMPARED = 3, 6  # tasks: of most forms, and of those that are compared on Heads
# short tasks of different kinds
FIRST_OF_DEMO = ("demo_outfit", "demo_translation", "demo_cloze")
OTHERS_OF_DEMO = ("demo_surname", "demo_blank", "demo_entailment")  # so that half of the tasks need examples
FIRST_OF_HARNESS = ("copa", "piqa", "arc_easy")
FIRST_OF_PAIRS = ("pairs_plural", "pairs_past", "pairs_ing_form")  # which small models can do
OTHERS_OF_PAIRS = ("pairs_capital", "pairs_french", "pairs_spanish")  # of another kind


def suited(names: Sequence[str], is_demo: bool) -> list[str]:
    """Returns tasks in the order in which a model is offered them: the demo model its own and no word pairs, whose
    words it does not know; any other model word pairs first and the demo's last."""
    if is_demo:
        return [name for name in names if name not in pair_tasks()]
    first = [name for name in (*FIRST_OF_PAIRS, *pair_tasks()) if name in names]
    return [*dict.fromkeys([*first, *(name for name in names if name not in embedded_tasks()), *names])]


def first_tasks(every: Sequence[str], is_demo: bool, n: int = N_FIRST) -> list[str]:
    """Returns the up to `n` tasks of the first view: short ones of different kinds, those made for the model first. Of
    tasks whose prompts are long, as those of the harness, it has no more than `N_FIRST`."""
    others = (*FIRST_OF_HARNESS, *FIRST_OF_PAIRS)
    of_demo = (*FIRST_OF_DEMO, *OTHERS_OF_DEMO)
    preferred = (*of_demo, *others) if is_demo else (*others, *OTHERS_OF_PAIRS, *of_demo)
    ordered = dict.fromkeys([*(name for name in preferred if name in every), *every])
    is_short = is_demo or not {*FIRST_OF_HARNESS} & {*every}
    chosen = list(ordered)[: n if is_short else min(n, N_FIRST)]
    return [name for name in every if name in chosen]


def first_task(available: Sequence[str], is_demo: bool) -> str:
    """Returns the first task that needs its examples, if possible one that was made for the model."""
    own = [name for name in available if name.startswith("demo_") == is_demo] or list(available)
    return min(own, key=lambda name: task_info(name).needs != "examples")


def first_counts(tasks: Sequence[str], is_demo: bool) -> list[int]:
    """Returns the shot counts of the first view: other tasks than word pairs are several times as fast without examples
    on a larger model."""
    return [SHOTS if is_demo or any(name in pair_tasks() for name in tasks) else 0]


def transfer_percent(is_demo: bool) -> int:
    """Returns the level of heads at which each task is pruned by the order of another: at half of them the demo model
    loses nothing by any order."""
    return 70 if is_demo else 50


def first_view(every: Sequence[str], is_demo: bool, n: int = N_FIRST) -> list[TaskSpec]:
    """Returns the up to `n` tasks of the first view at its shot counts."""
    tasks = first_tasks(every, is_demo, n)
    return grid(tasks, first_counts(tasks, is_demo))

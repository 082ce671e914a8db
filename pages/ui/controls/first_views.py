"""What is measured of many tasks at first: a few short ones, so that a first view is measured in seconds.

No streamlit here: the results of these views can be made before the app is started.
"""

from collections.abc import Sequence

from engine.questions.tasks import embedded_tasks, pair_tasks

JUDGES = 100  # questions per task: the default of Prune, so that both agree
N_FIRST, N_COMPARED = 3, 6  # tasks: of most views, and of those that are compared on Heads
# short tasks of different kinds
FIRST_OF_DEMO = ("demo_outfit", "demo_translation", "demo_cloze")
OTHERS_OF_DEMO = ("demo_surname", "demo_blank", "demo_entailment")  # so that half of the tasks need examples
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
    """Returns the up to `n` tasks of the first view: short ones of different kinds, those made for the model first, and
    word pairs for other models than the included one."""
    of_demo, of_pairs = (*FIRST_OF_DEMO, *OTHERS_OF_DEMO), (*FIRST_OF_PAIRS, *OTHERS_OF_PAIRS)
    preferred = (*of_demo, *of_pairs) if is_demo else (*of_pairs, *of_demo)
    chosen = list(dict.fromkeys([*(name for name in preferred if name in every), *every]))[:n]
    return [name for name in every if name in chosen]


def transfer_percent(is_demo: bool) -> int:
    """Returns the level of heads at which each task is pruned by the order of another: at half of them the demo model
    loses nothing by any order."""
    return 70 if is_demo else 50

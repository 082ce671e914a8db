"""What the screens about many tasks open with: a few tasks at one shot count, so that a first view is measured in
seconds.

No streamlit here: the results of these views can be made before the app is started.
"""

from collections.abc import Sequence

from engine.questions.requests import TaskSpec
from engine.studies.surveys import grid
from pages.ui.page.defaults import SHOTS

JUDGES = 100  # questions per task: the default of Prune, so that both agree
N_FIRST = 3
# Short tasks of different kinds. One of each list is kept out of aggregates (engine.studies.study.OUT_OF_DISTRIBUTION).
FIRST_OF_DEMO = ("demo_outfit", "demo_translation", "demo_cloze")
FIRST_OF_HARNESS = ("copa", "piqa", "arc_easy")


def first_tasks(every: Sequence[str], is_demo: bool) -> list[str]:
    """Returns the tasks of the first view: short ones of different kinds, those made for the model first."""
    preferred = (*FIRST_OF_DEMO, *FIRST_OF_HARNESS) if is_demo else (*FIRST_OF_HARNESS, *FIRST_OF_DEMO)
    ordered = dict.fromkeys([*(name for name in preferred if name in every), *every])
    chosen = list(ordered)[:N_FIRST]
    return [name for name in every if name in chosen]


def first_counts(is_demo: bool) -> list[int]:
    """Returns the shot counts of the first view: without examples a larger model is several times as fast."""
    return [SHOTS if is_demo else 0]


def first_view(every: Sequence[str], is_demo: bool) -> list[TaskSpec]:
    """Returns the tasks of the first view at its shot counts."""
    return grid(first_tasks(every, is_demo), first_counts(is_demo))

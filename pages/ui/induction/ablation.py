"""What the induction heads carry: a task's accuracy without all of them, next to the same number of random others."""

from collections.abc import Sequence

import streamlit as st

from engine.measurement import Measurement
from engine.questions.requests import TaskSpec
from engine.studies.removal import N_DRAWS, Removal
from pages.ui.controls.controls import choose_shots, one_listed
from pages.ui.controls.first_views import first_task
from pages.ui.controls.many_tasks import local_tasks
from pages.ui.controls.study import Setup
from pages.ui.page.marks import mark
from pages.ui.page.runtime import budget_s
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.tables import p_in_words, percents, plain, whole_percent
from pages.ui.page.work import Work

N_QUESTIONS = 100
TASK_HELP = "Its questions are asked without induction heads; its line of importance is drawn thick."
MEASURE_HELP = f"{N_QUESTIONS} questions: without them, and {N_DRAWS} times without as many random others."


def choose_task(setup: Setup, where: DeltaGenerator) -> TaskSpec:
    """Draws the choice of the screen's task and of its examples; the first is a task that needs its examples."""
    available = local_tasks(setup.data_dir)
    index = available.index(first_task(available, setup.spec.is_demo))
    name = one_listed(where, "Task", available, "induction_task", index=index, help=TASK_HELP)
    return TaskSpec(name, choose_shots(where, "induction_shots", "In the prompt of each question."))


def work_of(measured: Measurement[Removal]) -> Work[Removal]:
    """Returns the work that measures it."""
    return Work("induction removed", "Accuracy without them", measured, 1, while_seen=True)


def draw_effect(work: Work[Removal], known: Removal, task: str, is_demo: bool) -> None:
    """Draws the state of the measurement until it is complete; to be run by `live`. It starts by
    itself if it is short, else a button asks."""
    mark("removal", "measured" if len(known.draws) == N_DRAWS else "missing", draws=len(known.draws))
    if len(known.draws) == N_DRAWS or work.line() or not work.is_read:
        return
    takes_s = work.takes_s()
    if budget_s() and (is_demo if takes_s is None else takes_s <= budget_s()):
        work.start()
        st.rerun()
    work.offer(f"Measure accuracy on {plain(task)} without them", "science", MEASURE_HELP)


def so_far(work: Work[Removal]) -> Removal:
    """Returns what is known, stored or just measured."""
    return max(work.stored(), key=lambda each: (each.removed is not None) + len(each.draws), default=Removal(()))


def effect_in_words(found: Removal, task: TaskSpec) -> str:
    """Describes the accuracy without the heads, and without random others, in Markdown; "" if it is not known."""
    line, n = found.removed, len(found.heads)
    if line is None:
        return ""
    full, pruned = whole_percent(line.full), whole_percent(line.pruned)
    said = f"Without {'it' if n == 1 else f'these {n}'}, accuracy on {plain(task.name)} ({task.shots} shots) "
    if line.is_loss:
        said += f"falls from {full} to **{pruned}**"
    else:
        said += f"is {pruned}, not clearly less than {full} ({p_in_words(line.change.p_mcnemar)})"
    if not found.draws:
        return f"{said}."
    return f"{said}; without as many others at random, it is {_range([each.pruned for each in found.draws])}."


def _range(shares: Sequence[float]) -> str:
    low, high = min(shares), max(shares)
    return whole_percent(low) if whole_percent(low) == whole_percent(high) else percents(low, high, 0)

"""What the screens about many tasks share: which tasks and shot counts, and the importance of each of them."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import streamlit as st

from engine.errors import one_line
from engine.importance.importance import Scores
from engine.models.session import Target
from engine.questions.requests import TaskSpec
from engine.questions.tasks import list_tasks
from engine.studies.surveys import StudySettings, Survey, grid, survey
from pages.ui.controls.sidebar import Setup
from pages.ui.page.address import put_right_several
from pages.ui.page.defaults import RANKING_QUESTIONS, SHOT_COUNTS, SHOTS
from pages.ui.page.marks import mark
from pages.ui.page.runtime import end_run, errors_shown
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.tables import plain
from pages.ui.page.work import Work

JUDGES = 100  # questions a task: as many as Prune begins with, so that both say the same
REDRAW_S = 10.0
# What screens open with: short tasks of different kinds. One of each list is kept out of aggregates
# (engine.studies.study.OUT_OF_DISTRIBUTION), so that "Unseen tasks" has something to show.
FIRST_OF_DEMO = ("demo_outfit", "demo_cloze", "demo_yesno", "demo_question")
FIRST_OF_HARNESS = ("arc_easy", "piqa", "copa", "lambada_openai")
N_FIRST = 4
FEW_COUNTS = (0, SHOTS)
TASKS_HELP = (
    "All whose rows lie on this computer; type part of a name to filter. One from the hub appears here once its folder "
    "is in the task data folder."
)


def setting_of(setup: Setup, n_questions: int = JUDGES, aggregate: str = "scores") -> StudySettings:
    """How the sidebar's model is studied."""
    return StudySettings(setup.spec, setup.bos, setup.data_dir, n_questions, RANKING_QUESTIONS, aggregate=aggregate)


def local_tasks(data_dir: str | None) -> list[str]:
    """Names of the tasks whose rows lie on this computer."""
    with errors_shown():
        return [state.info.name for state in list_tasks(data_dir) if state.available and state.where != "hub"]


def first_tasks(every: Sequence[str], is_demo: bool) -> list[str]:
    """Some of the tasks, to begin with: short ones of different kinds, those made for the model first."""
    preferred = (*FIRST_OF_DEMO, *FIRST_OF_HARNESS) if is_demo else (*FIRST_OF_HARNESS, *FIRST_OF_DEMO)
    ordered = dict.fromkeys([*(name for name in preferred if name in every), *every])
    chosen = list(ordered)[:N_FIRST]
    return [name for name in every if name in chosen]


def choose_tasks(
    prefix: str, where: DeltaGenerator, setup: Setup, counts: Sequence[int] = SHOT_COUNTS, few: bool = False
) -> list[TaskSpec]:
    """Draws the choice of tasks and shot counts, kept in the address; gives every chosen task at every chosen count.
    Where the address does not say them, they are all tasks (`few`: the first ones) at `counts`.

    Without any the page ends here.
    """
    tasks_at, shots_at = where.columns([8, 3])
    every = local_tasks(setup.data_dir)
    first = first_tasks(every, setup.spec.model == "demo") if few else None
    box = partial(tasks_at.multiselect, "Tasks", every, help=TASKS_HELP, filter_mode="contains")
    names = several(f"{prefix}_tasks", every, box, first)
    shown, help = [str(count) for count in SHOT_COUNTS], "In front of each question. At least one count."
    pills = partial(shots_at.pills, "Solved examples", shown, selection_mode="multi", width="stretch", help=help)
    shots = several(f"{prefix}_shots", shown, pills, [str(count) for count in counts])
    tasks = grid([name for name in every if name in names], [int(count) for count in shown if count in shots])
    if not tasks:
        st.info("Choose at least one task and one number of solved examples.", icon=":material/checklist:")
        mark("tasks", "none")
        end_run()
    return tasks


def importance_work(
    setting: StudySettings, target: Target, tasks: Sequence[TaskSpec], what: str, slot: str, title: str
) -> Work[Survey]:
    """The work that measures the importance of every task; `so_far` tells what there is of it."""
    return Work(slot, title, survey(target, setting, tuple(tasks), what), priority=2)


def so_far(work: Work[Survey]) -> Survey:
    """The importance there is so far, stored or just measured."""
    scores: dict[TaskSpec, Scores] = {}
    failed: dict[TaskSpec, str] = {}
    for value in work.stored():
        scores, failed = {**scores, **value.scores}, {**failed, **value.failed}
    return Survey(scores, failed)


def survey_line(work: Work[Survey], n_tasks: int, found: Survey, since_s: float) -> None:
    """Draws how a survey stands, or the button that starts it; to be run by `live`.

    While it is measured the page is drawn anew as more becomes known, but not often: that interrupts the worker.
    """
    missing = n_tasks - len(found.scores)
    st.caption(f"{work.title}: importance is there for {len(found.scores)} of {n_tasks}.")
    mark_known(work, len(found.scores), n_tasks)
    if work.line():
        known = len(work.found.scores) if work.found is not None else 0
        if known > len(found.scores) and time.monotonic() - since_s > REDRAW_S:
            st.rerun()
        return
    about = f"On {RANKING_QUESTIONS} train questions of each task, in the background. What is stored is kept."
    if missing:
        label, key = f"Measure the {missing} that are missing", f"measure {work.slot}"
        work.offer(label, "insights", about, least_s=0.0, key=key)


def mark_known(work: Work[Survey], known: int, of: int) -> None:
    """Marks for how many tasks the importance is known."""
    mark("importance", "measured" if known == of else "missing", slot=work.slot, known=known, of=of)


def show_failed(failed: Mapping[TaskSpec, str]) -> None:
    """One line for each task that could not be measured, the same reason once."""
    for reason in dict.fromkeys(failed.values()):
        st.warning(plain(one_line(reason)), icon=":material/report:")


def several(
    key: str,
    options: Sequence[str],
    draw: Callable[..., Sequence[str]],
    first: Sequence[str] | None = None,
    shown: Mapping[str, str] | None = None,
    before: Mapping[str, Collection[str]] | None = None,
) -> list[str]:
    """Several of `options` from a widget that is bound to the address, `first` (None: all) where that says nothing;
    `shown`: how the widget writes each option, where it does not as it is; `before`: how it did in older addresses."""
    put_right_several(key, shown or {option: option for option in options}, before)
    return list(draw(key=key, default=list(options if first is None else first), bind="query-params"))

"""Controls and work of the screens about many tasks: tasks, shot counts, and the importance of each."""

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

JUDGES = 100  # questions per task: the default of Prune, so that both agree
REDRAW_S = 10.0
# What screens open with: short tasks of different kinds. One of each list is kept out of aggregates
# (engine.studies.study.OUT_OF_DISTRIBUTION), so that "Unseen tasks" has something to show.
FIRST_OF_DEMO = ("demo_outfit", "demo_cloze", "demo_yesno", "demo_question")
FIRST_OF_HARNESS = ("arc_easy", "piqa", "copa", "lambada_openai")
N_FIRST = 4
FEW_COUNTS = (0, SHOTS)
TASKS_HELP = (
    "All whose rows are on this computer; type part of a name to filter. One from the hub appears here once its folder "
    "is in the task data folder."
)


def setting_of(setup: Setup, n_questions: int = JUDGES, aggregate: str = "scores") -> StudySettings:
    """Returns the settings of a study of the sidebar's model."""
    return StudySettings(setup.spec, setup.bos, setup.data_dir, n_questions, RANKING_QUESTIONS, aggregate=aggregate)


def local_tasks(data_dir: str | None) -> list[str]:
    """Returns the names of the tasks whose rows are on this computer."""
    with errors_shown():
        return [state.info.name for state in list_tasks(data_dir) if state.available and state.where != "hub"]


def first_tasks(every: Sequence[str], is_demo: bool) -> list[str]:
    """Returns the tasks chosen at first: short ones of different kinds, those made for the model first."""
    preferred = (*FIRST_OF_DEMO, *FIRST_OF_HARNESS) if is_demo else (*FIRST_OF_HARNESS, *FIRST_OF_DEMO)
    ordered = dict.fromkeys([*(name for name in preferred if name in every), *every])
    chosen = list(ordered)[:N_FIRST]
    return [name for name in every if name in chosen]


def choose_tasks(
    prefix: str, where: DeltaGenerator, setup: Setup, counts: Sequence[int] = SHOT_COUNTS, few: bool = False
) -> list[TaskSpec]:
    """Draws the choice of tasks and shot counts, kept in the address; returns every chosen task at every chosen count.
    The defaults are all tasks (`few`: the first ones) at `counts`.

    If none is chosen, the page ends here.
    """
    tasks_at, shots_at = where.columns([8, 3])
    every = local_tasks(setup.data_dir)
    first = first_tasks(every, setup.spec.model == "demo") if few else None
    box = partial(tasks_at.multiselect, "Tasks", every, help=TASKS_HELP, filter_mode="contains")
    names = several(f"{prefix}_tasks", every, box, first)
    shown, help = [str(count) for count in SHOT_COUNTS], "Examples in the prompt of each question. At least one count."
    pills = partial(shots_at.pills, "Examples in the prompt", shown, selection_mode="multi", width="stretch", help=help)
    shots = several(f"{prefix}_shots", shown, pills, [str(count) for count in counts])
    tasks = grid([name for name in every if name in names], [int(count) for count in shown if count in shots])
    if not tasks:
        st.info("Choose at least one task and one number of examples.", icon=":material/checklist:")
        mark("tasks", "none")
        end_run()
    return tasks


def importance_work(
    setting: StudySettings, target: Target, tasks: Sequence[TaskSpec], what: str, slot: str, title: str
) -> Work[Survey]:
    """Returns the work that measures the importance of every task; `so_far` returns its results so far."""
    return Work(slot, title, survey(target, setting, tuple(tasks), what), priority=2)


def so_far(work: Work[Survey]) -> Survey:
    """Returns the importance so far, stored or just measured."""
    scores: dict[TaskSpec, Scores] = {}
    failed: dict[TaskSpec, str] = {}
    for value in work.stored():
        scores, failed = {**scores, **value.scores}, {**failed, **value.failed}
    return Survey(scores, failed)


def survey_line(work: Work[Survey], n_tasks: int, found: Survey, since_s: float) -> None:
    """Draws the progress of a survey, or the button that starts it; to be run by `live`.

    While it is measured, the page is redrawn as results arrive, but not often: that interrupts the worker.
    """
    missing = n_tasks - len(found.scores)
    st.caption(f"{work.title}: {len(found.scores)} of {n_tasks} measured")
    mark_known(work, len(found.scores), n_tasks)
    if work.line():
        known = len(work.found.scores) if work.found is not None else 0
        if known > len(found.scores) and time.monotonic() - since_s > REDRAW_S:
            st.rerun()
        return
    about = f"On {RANKING_QUESTIONS} train questions of each task, in the background. Stored results are kept."
    if missing:
        label, key = f"Measure {missing} missing score{'s' * (missing > 1)}", f"measure {work.slot}"
        work.offer(label, "insights", about, least_s=0.0, key=key)


def mark_known(work: Work[Survey], known: int, of: int) -> None:
    """Draws the mark with the number of tasks whose importance is known."""
    mark("importance", "measured" if known == of else "missing", slot=work.slot, known=known, of=of)


def show_failed(failed: Mapping[TaskSpec, str]) -> None:
    """Draws the tasks that could not be measured, each reason once."""
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
    """Returns several of `options` from a widget bound to the address, `first` (None: all) by default; `shown`: the
    widget's label of each option, if it differs; `before`: its labels in older addresses."""
    put_right_several(key, shown or {option: option for option in options}, before)
    return list(draw(key=key, default=list(options if first is None else first), bind="query-params"))

"""Controls and work of the screens about many tasks: tasks, shot counts, and the importance of each."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import streamlit as st

from engine.errors import one_line
from engine.importance.scores import ORACLES
from engine.models.session import Target
from engine.questions.rendering import TaskSpec
from engine.questions.tasks import list_tasks
from engine.studies.surveys import Survey, SurveySettings, grid, survey
from pages.ui.controls.first_views import JUDGES, N_COMPARED, first_tasks, suited
from pages.ui.controls.study import Study, study
from pages.ui.page.defaults import RANKING_QUESTIONS, SHOT_COUNTS
from pages.ui.page.marks import mark
from pages.ui.page.runtime import end_run, errors_shown
from pages.ui.page.streamlit_internals import DeltaGenerator, rewrite_param
from pages.ui.page.tables import plain
from pages.ui.page.widget_writes import follow_default, hold
from pages.ui.page.work import Work

REDRAW_S = 10.0
MADE_FOR_DEMO = "Tasks named demo_ were made for the demo model; other models may only guess at them."
SHOTS_HELP = "Examples in the prompt of each question (shots); several counts can be chosen."
TASKS_HELP = (
    "All whose rows are on this computer; type part of a name to filter. One from the hub appears here once its folder "
    "is in the task data folder."
)


def setting_of(of: Study) -> SurveySettings:
    """Returns the settings of measurements over many tasks, of the study's model."""
    return SurveySettings(of.spec, of.bos, of.data_dir, JUDGES, RANKING_QUESTIONS)


def local_tasks(data_dir: str | None) -> list[str]:
    """Returns the names of the tasks whose rows are on this computer, as they suit the study's model."""
    with errors_shown():
        found = [state.info.name for state in list_tasks(data_dir) if state.available and state.where != "hub"]
    return suited(found, study().spec.is_demo)


def with_others(task: TaskSpec, of: Study, n: int) -> list[TaskSpec]:
    """Returns a task, and others that are measured with it at its number of examples, up to `n` in all."""
    others = [name for name in local_tasks(of.data_dir) if name != task.name]
    return [task, *grid(first_tasks(others, of.spec.is_demo, n - 1), [task.shots])]


def choose_tasks(where: DeltaGenerator, of: Study) -> list[TaskSpec]:
    """Draws the choice of tasks and shot counts to compare, kept in the address; returns every chosen task at every
    chosen count. At first that is the task of the study at its count, and others.

    If none is chosen, the page ends here.
    """
    tasks_at, shots_at = where.columns([7, 2], vertical_alignment="bottom")
    every, is_demo, own_task = local_tasks(of.data_dir), of.spec.is_demo, of.task
    box = partial(tasks_at.multiselect, "Tasks to compare", every, help=TASKS_HELP, filter_mode="contains")
    first = {task.name for task in with_others(own_task, of, N_COMPARED + (own_task.name not in every))}
    names = several("heads_tasks", every, box, [name for name in every if name in first])
    counts = [str(count) for count in SHOT_COUNTS]
    chips = partial(shots_at.segmented_control, "Shots to compare", counts, selection_mode="multi", help=SHOTS_HELP)
    shots = several("heads_shots", counts, chips, [str(own_task.shots)])
    if not is_demo and any(name.startswith("demo_") for name in names):
        where.caption(MADE_FOR_DEMO)
    tasks = grid([name for name in every if name in names], [int(count) for count in counts if count in shots])
    if not tasks:
        st.info("Choose at least one task and one number of examples.", icon=":material/checklist:")
        mark("tasks", "none")
        end_run()
    return tasks


def importance_work(
    setting: SurveySettings, target: Target, tasks: Sequence[TaskSpec], what: str, slot: str, title: str
) -> Work[Survey]:
    """Returns the work that measures the importance of every task; `so_far` returns its results so far."""
    # without a head of an early layer, more layers are run than without one of a late layer
    return Work(slot, title, survey(target, setting, tuple(tasks), what), 2, is_uneven=what in ORACLES)


def is_short(work: Work[Any], target: Target, within_s: float) -> bool:
    """Returns whether a screen measures this by itself: its forecast is within so many seconds. Without a forecast that
    of the included model is, and other models are judged by their size."""
    is_demo = target.spec.is_demo
    takes_s = work.takes_s(by_size=not is_demo)
    return bool(within_s) and (is_demo if takes_s is None else takes_s <= within_s)


def so_far(work: Work[Survey]) -> Survey:
    """Returns the importance so far, stored or just measured."""
    found = Survey()
    for value in work.results_so_far():
        scores, failed = {**found.scores, **value.scores}, {**found.failed, **value.failed}
        begun = {task: each for task, each in {**found.begun, **value.begun}.items() if task not in scores}
        found = Survey(scores, failed, begun)
    return found


@dataclass(frozen=True)
class FirstMeasured:
    """The button of a survey of which nothing is measured yet: its label, without the cost, and its type."""

    label: str
    type: str = "secondary"


def survey_line(
    work: Work[Survey], n_tasks: int, found: Survey, since_s: float, first: FirstMeasured | None = None
) -> None:
    """Draws the progress of a survey, or the button that starts it, and nothing once it is complete; to be run by
    `live`. `first`: the button while nothing is measured.

    While it is measured, the page is redrawn as results arrive, but not often: that interrupts the measuring thread.
    """
    missing = n_tasks - len(found.scores)
    mark_known(work, len(found.scores), n_tasks)
    if work.line():
        now = work.job_value or Survey()
        is_more = len(now.scores) > len(found.scores) or len(now.begun) > len(found.begun)
        is_first = not found.scores and not found.begun
        if is_more and (is_first or time.monotonic() - since_s > REDRAW_S):
            st.rerun()
        return
    about = f"On {RANKING_QUESTIONS} train questions of each task, in the background. Stored results are kept."
    key = f"measure {work.slot}"
    if not work.is_read or work.is_first_read:
        work.reading_line()
        return  # the page runs again once the stored results are read
    if missing and not found.n_known and first is not None:
        work.offer(first.label, "insights", about, least_s=0.0, by_size=True, key=key, type=first.type)
    elif missing:
        st.caption(f"{work.title}: {len(found.scores)} of {n_tasks} measured")
        label = f"Measure {missing} missing score{'s' * (missing > 1)}"
        work.offer(label, "insights", about, least_s=0.0, key=key)


def mark_known(work: Work[Survey], known: int, of: int) -> None:
    """Draws the mark with the number of tasks whose importance is known."""
    mark("importance", "measured" if known == of else "missing", slot=work.slot, known=known, of=of)


def show_failed(failed: Mapping[TaskSpec, str]) -> None:
    """Draws the tasks that could not be measured, each reason once."""
    for reason in dict.fromkeys(failed.values()):
        st.warning(plain(one_line(reason)), icon=":material/report:")


def several(
    key: str, options: Sequence[str], draw: Callable[..., Sequence[str]], first: Sequence[str] | None = None
) -> list[str]:
    """Returns several of `options` from a widget bound to the address, `first` (None: all) by default."""
    default = list(options if first is None else first)
    follow_default(key, default)
    hold(key)
    put_right_several(key, options)
    return list(draw(key=key, default=default, bind="query-params"))


def put_right_several(key: str, options: Sequence[str]) -> None:
    """Normalizes the query parameter of a control for several options; to be called before it is drawn.

    Understands names with commas between them too; anything else is dropped.
    """

    def as_shown(said: list[str]) -> list[str] | None:
        if said == [""] or {*options}.issuperset(said):  # an empty text: no option is chosen
            return said
        meant = {part for text in said for part in ([text] if text in options else text.split(","))}
        return [option for option in options if option in meant] or None

    rewrite_param(key, as_shown)

"""Controls and work of the screens about many tasks: tasks, shot counts, and the importance of each."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import streamlit as st

from engine.errors import one_line
from engine.models.session import Target
from engine.questions.requests import TaskSpec
from engine.questions.tasks import list_tasks
from engine.studies.surveys import StudySettings, Survey, grid, survey
from pages.ui.controls.first_views import JUDGES, N_FIRST, first_counts, first_tasks, first_view, suited
from pages.ui.controls.study import Setup, chosen
from pages.ui.page.address import put_right_several
from pages.ui.page.defaults import RANKING_QUESTIONS, SHOT_COUNTS
from pages.ui.page.marks import mark
from pages.ui.page.runtime import end_run, errors_shown, first_figure_s
from pages.ui.page.streamlit_internals import DeltaGenerator
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


def setting_of(setup: Setup) -> StudySettings:
    """Returns the settings of a study of the sidebar's model."""
    return StudySettings(setup.spec, setup.bos, setup.data_dir, JUDGES, RANKING_QUESTIONS)


def local_tasks(data_dir: str | None) -> list[str]:
    """Returns the names of the tasks whose rows are on this computer, as they suit the sidebar's model."""
    with errors_shown():
        found = [state.info.name for state in list_tasks(data_dir) if state.available and state.where != "hub"]
    return suited(found, chosen().spec.is_demo)


def choose_tasks(
    prefix: str, where: DeltaGenerator, setup: Setup, n: int = N_FIRST, shots_at: DeltaGenerator | None = None
) -> list[TaskSpec]:
    """Draws the choice of tasks and shot counts, kept in the address; returns every chosen task at every chosen count.
    The defaults are those of `first_views`, with up to `n` tasks. `shots_at`: where the counts go, if not next to the
    tasks.

    If none is chosen, the page ends here.
    """
    tasks_at, right_at = (where, shots_at) if shots_at is not None else where.columns([8, 3])
    every, is_demo = local_tasks(setup.data_dir), setup.spec.is_demo
    box = partial(tasks_at.multiselect, "Tasks", every, help=TASKS_HELP, filter_mode="contains")
    first = first_tasks(every, is_demo, n)
    names = several(f"{prefix}_tasks", every, box, first)
    shown, width = [str(count) for count in SHOT_COUNTS], "stretch" if shots_at is None else "content"
    look: dict[str, Any] = {"selection_mode": "multi", "help": SHOTS_HELP, "width": width}
    chips = partial(right_at.segmented_control, "Examples in the prompt", shown, **look)
    shots = several(f"{prefix}_shots", shown, chips, [str(count) for count in first_counts(first, is_demo)])
    if not is_demo and any(name.startswith("demo_") for name in names):
        where.caption(MADE_FOR_DEMO)
    tasks = grid([name for name in every if name in names], [int(count) for count in shown if count in shots])
    if not tasks:
        st.info("Choose at least one task and one number of examples.", icon=":material/checklist:")
        mark("tasks", "none")
        end_run()
    return tasks


def start_first_view(setup: Setup, tasks: Sequence[TaskSpec], missing: Sequence[Work[Any]], n: int = N_FIRST) -> bool:
    """Starts the `missing` work of a screen, in order, as far as a screen may measure by itself, if `tasks` are those
    that it opens with, up to `n`; returns False if it takes too long.

    Without a forecast the demo model is measured; other models are judged by their size.
    """
    is_demo = setup.spec.is_demo
    if not missing or not all(work.is_read for work in missing):
        return True  # the page runs again once the stored results are read
    if list(tasks) != first_view(local_tasks(setup.data_dir), is_demo, n):
        return True
    left_s, starts = first_figure_s(), True
    for work in missing:
        takes_s = work.takes_s(by_size=not is_demo)
        if left_s and (is_demo if takes_s is None else takes_s <= left_s):
            replace(work, while_seen=True).start()
            left_s -= takes_s or 0.0
        else:
            starts = False
    return starts


def importance_work(
    setting: StudySettings, target: Target, tasks: Sequence[TaskSpec], what: str, slot: str, title: str
) -> Work[Survey]:
    """Returns the work that measures the importance of every task; `so_far` returns its results so far."""
    return Work(slot, title, survey(target, setting, tuple(tasks), what), priority=2)


def so_far(work: Work[Survey]) -> Survey:
    """Returns the importance so far, stored or just measured."""
    found = Survey()
    for value in work.stored():
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

    While it is measured, the page is redrawn as results arrive, but not often: that interrupts the worker.
    """
    missing = n_tasks - len(found.scores)
    mark_known(work, len(found.scores), n_tasks)
    if work.line():
        now = work.found or Survey()
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

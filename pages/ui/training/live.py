"""Train a model now: one button, other recipes in a popover, charts that grow with the log, and the result as a model
on every screen.

Training continues while other pages are open and stops with the app; Resume continues from there.
"""

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from engine.checkpoints.names import is_run
from engine.errors import HeadroomError
from engine.progress import in_time
from engine.slots import Job
from engine.training.folders import Run, open_run, runs_in
from engine.training.live import free_name, trained
from engine.training.locking import trainer
from engine.training.recipe import RECIPES, Recipe
from pages.ui.figures.drawing import draw_chart
from pages.ui.page.job_words import in_words
from pages.ui.page.marks import mark
from pages.ui.page.runtime import show_error, trainings
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.tables import plain, typeset
from pages.ui.page.widget_writes import write
from pages.ui.page.work import draw_restart, live, mark_job, under_way
from pages.ui.training import live_charts

N_LEFT = 3  # unfinished runs that are offered
STOP_HELP = "Stops at once. Finished work is kept; Resume continues from there."
RESUME_HELP = "Continues from where it stopped. The weights end up the same as without the stop."
CLOSE_HELP = "Hides these charts. The run stays in its folder."
OPEN_HELP = "Makes the last snapshot the model of all screens: look at its heads on Induction, Attention and Passage."
FIRST, OTHERS = "repeats", ("smeared", "half")  # the recipe of the main button, and those in the popover
SECONDS_PER_MILLION = 30.0  # tokens' time with all measurements
PACE = "seconds per million tokens"
ONE_CORE = "It runs next to the app and leaves one core to it."


@dataclass(frozen=True)
class LiveRun:
    """The run shown: its folder and recipe, and those of its control, if any."""

    folder: Path
    recipe: Recipe
    text: Path | None = None
    control: "LiveRun | None" = None

    @property
    def slot(self) -> str:
        return f"training {self.folder}"


@st.cache_resource(show_spinner=False)
def shown_last() -> dict[Path, LiveRun]:
    """Returns by folder the run begun last, for all tabs, so that a reloaded page finds it."""
    return {}


@st.cache_resource(show_spinner=False)
def measured_pace() -> dict[str, float]:
    """Returns the pace of the last run, for all tabs; empty before it is known."""
    return {}


def draw_live(folder: Path, start_at: DeltaGenerator, recipes_at: DeltaGenerator) -> None:
    """Draws the buttons that start a run in `folder` there, and here the last run, if any."""
    since_s = time.monotonic()
    with start_at:
        both_s = seconds(RECIPES[FIRST].recipe) + seconds(RECIPES[RECIPES[FIRST].control].recipe)
        promise = "" if under_way(_slots(folder), trainings()) else f", about {in_time(both_s)}"  # a run says it itself
        label = f"Train two tiny models live{promise}"
        look: dict[str, Any] = {"type": "primary", "width": "stretch", "help": None}  # a tooltip would hide the finding
        _offer(folder, FIRST, label, **look)
    with recipes_at.popover("Recipes", icon=":material/list:", width="stretch", help="Other models to train."):
        for name in OTHERS:
            _offer(folder, name, RECIPES[name].title)
        _draw_left(folder)
    if shown_last().get(folder) or _elsewhere(folder):
        with st.container(border=True):
            live(_slots(folder), partial(_draw, folder), since_s, by=trainings(), always=bool(_elsewhere(folder)))


def _slots(folder: Path) -> list[str]:
    return [each.slot for each in _all(shown_last().get(folder))]


def seconds(recipe: Recipe) -> float:
    """Returns roughly how long a run takes: by the pace of the last one, or else on two cores."""
    return measured_pace().get(PACE, SECONDS_PER_MILLION) * recipe.tokens / 1e6


def begin(folder: Path, name: str) -> None:
    """Starts training a run of the recipe of this name, and its control after it."""
    known, control = RECIPES[name], None
    if known.control:
        other = RECIPES[known.control].recipe
        control = LiveRun(free_name(folder, known.control, other), other)
    _train(folder, LiveRun(free_name(folder, name, known.recipe), known.recipe, control=control))


def _train(folder: Path, shown: LiveRun) -> None:
    for before in _all(shown_last().get(folder)):
        trainings().cancel(before.slot)  # its finished work is kept
    shown_last()[folder] = shown
    for priority, each in enumerate(_all(shown)):
        start = partial(trained, each.folder, each.recipe, each.text)
        job = Job(f"{each.folder} {each.recipe.digest}", start, priority, f"Training {each.folder.name}")
        trainings().put(each.slot, job, again=True)


def _offer(folder: Path, name: str, title: str, **look: Any) -> None:
    known, control = RECIPES[name], ""
    if other := RECIPES.get(known.control):
        control = f" Then its control, about {in_time(seconds(other.recipe))} more: {other.title.lower()}."
    about = f"{known.words}{control} {known.recipe.tokens / 1e6:g} M tokens. {ONE_CORE}"
    look = {"help": about, "icon": ":material/model_training:", **look}
    if st.button(title, key=f"train {name}", on_click=begin, args=(folder, name), **look):
        st.rerun()


def _draw(folder: Path) -> None:
    shown = shown_last().get(folder) or _elsewhere(folder)
    if shown is None:
        return
    log, control_log = _log(shown), _log(shown.control) if shown.control is not None else []
    st.markdown(live_charts.describe(shown.recipe, log, control_log))
    mark("training run", "measured" if log else "begun", lines=len(log))
    _draw_line(folder, shown)
    if shown.control is not None and _has_begun(shown.control):
        _draw_line(folder, shown.control)
    _draw_ends(folder, _run(shown.folder))
    drawn = live_charts.pictures(shown.recipe, log, control_log)
    for at, (title, picture) in enumerate(drawn.items()):
        if at % 3 == 0:
            places = st.columns(3)
        words = f"{title}, {typeset(shown.recipe.in_full)}, over the tokens trained on"
        draw_chart(picture, f"training live {at}", words, places[at % 3])


def _draw_ends(folder: Path, run: Run | None) -> None:
    """Draws the buttons of a run that is over: one opens it, one hides its charts."""
    is_done, is_over = run is not None and run.is_done, not under_way(_slots(folder), trainings())
    if not is_done and not is_over:
        return
    with st.container(horizontal=True):
        if run is not None and is_done:
            name = f"{run.folder}@step{run.steps()[-1]}"
            opens = {"on_click": write, "args": ("model", name), "help": OPEN_HELP, "icon": ":material/open_in_new:"}
            if st.button("Open it on the other screens", key="open trained", **opens):
                st.rerun()
        if is_over and folder in shown_last() and st.button("Close", help=CLOSE_HELP):
            shown_last().pop(folder, None)
            st.rerun()


def _draw_line(folder: Path, each: LiveRun) -> None:
    """Draws the state of a run: progress and Cancel, or what ended it."""
    job = trainings().snapshot(each.slot)
    if job is None or job.state == "done":
        return
    name = each.folder.name
    if not job.finished:
        with st.container(horizontal=True, vertical_alignment="bottom"):
            share = min(1.0, job.done / job.total) if job.total else 0.0
            if job.left_s and 0.2 < share < 0.8:  # at the ends, what is left says little about the pace
                measured_pace()[PACE] = job.left_s / ((1 - share) * each.recipe.tokens / 1e6)
            st.progress(share, plain(f"{name}: {in_words(job, 'Training')}"))
            st.button("Cancel", key=f"cancel {each.slot}", on_click=_cancel, args=(each,), help=STOP_HELP)
            mark_job(each.slot, job)
        return
    if job.error:
        show_error(job.error)
    else:
        st.caption(plain(f"{name} was stopped. Finished work is kept."))
    draw_restart(job, f"resume {each.slot}", RESUME_HELP, on_click=_train, args=(folder, each))
    mark_job(each.slot, job)


def _has_begun(control: LiveRun) -> bool:
    """Returns whether a control no longer waits for its run."""
    job = trainings().snapshot(control.slot)
    return is_run(control.folder) or job is None or job.state not in ("queued", "cancelled")


def _cancel(of: LiveRun) -> None:
    """Stops a run, and the control that waits for it."""
    for each in reversed(_all(of)):
        trainings().cancel(each.slot)


def _draw_left(folder: Path) -> None:
    """Draws the runs that were stopped, each with a button that resumes it."""
    left = [run for run in runs_in(folder) if not run.is_done]
    for run in left[:N_LEFT]:
        path = run.about.get("path")
        shown = LiveRun(run.folder, run.recipe, Path(path) if path else None)
        at = max((line["tokens"] for line in run.log()), default=0)
        label = f"Resume {run.name}, {at / 1e6:.2f} of {run.recipe.tokens / 1e6:g} M tokens"
        goes = {"on_click": _train, "args": (folder, shown), "help": RESUME_HELP}
        st.button(plain(label), key=f"resume {run.folder}", icon=":material/play_arrow:", **goes)


def _elsewhere(folder: Path) -> LiveRun | None:
    """Returns a run of the folder that another process trains, such as one begun from a shell."""
    if folder in shown_last():
        return None
    going = next((run for run in runs_in(folder) if trainer(run.folder) is not None), None)
    return None if going is None else LiveRun(going.folder, going.recipe)


def _all(shown: LiveRun | None) -> list[LiveRun]:
    return [] if shown is None else [shown, *_all(shown.control)]


def _log(each: LiveRun) -> list[dict[str, Any]]:
    """Returns the log of a run so far; before its text is read, a line on the untrained model."""
    run, job = _run(each.folder), trainings().snapshot(each.slot)
    log = run.log() if run is not None else []
    return log or ([job.value] if job is not None and isinstance(job.value, dict) else [])


def _run(folder: Path) -> Run | None:
    try:
        return open_run(folder) if is_run(folder) else None
    except HeadroomError:
        return None

"""Train a model now: a button that trains a run, which is then the chosen one next to its control, and its progress.

Training continues while other pages are open and stops with the app; Resume continues from there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from engine.progress import in_time
from engine.slots import Job, JobStatus
from engine.training.folders import runs_in
from engine.training.live import free_name, trained
from engine.training.locking import trainer
from engine.training.recipe import RECIPES, Recipe
from pages.ui.page.runtime import show_error, trainings
from pages.ui.page.tables import plain
from pages.ui.page.work import draw_restart, mark_job, under_way
from pages.ui.training.choosing import NO_RUN, choose_runs
from pages.ui.training.runs import FIRST, RECORD, RunSource, own_name

N_LEFT = 3  # unfinished runs that are offered
STOP_HELP = "Stops at once. Finished work is kept; Resume continues from there."
RESUME_HELP = "Continues from where it stopped. The weights end up the same as without the stop."
TRAIN_HELP = "Trains the model with two layers next to the app, and leaves one core to it."
OTHERS = ("smeared", "half")  # recipes that read text
BEGIN_S = 10.0  # from the click to the first step
SECONDS_PER_MILLION = 40.0  # tokens of two layers, with all measurements, on two cores
PACE, SURE = "seconds per million tokens", (0.05, 0.9)  # shares between which what is left tells the pace


@dataclass(frozen=True)
class LiveRun:
    """A run that is being trained: its folder and recipe, and the file of its text, if it is of one's own."""

    folder: Path
    recipe: Recipe
    text: Path | None = None

    @property
    def slot(self) -> str:
        """Returns its slot among the trainings."""
        return f"training {self.folder}"

    @property
    def source(self) -> RunSource:
        """Returns it as a run to choose, which has the untrained model alone before its text is read."""
        job = trainings().status(self.slot)
        log = [job.value] if job is not None and isinstance(job.value, dict) else []
        return RunSource(own_name(self.folder), self.folder / RECORD, self.folder, begins=(self.recipe, log))


@st.cache_resource(show_spinner=False)
def begun_last() -> dict[Path, LiveRun]:
    """Returns by folder the run begun last, for all tabs, so that a reloaded page finds it."""
    return {}


@st.cache_resource(show_spinner=False)
def measured_pace() -> dict[str, float]:
    """Returns the pace of the last run, for all tabs; empty before it is known."""
    return {}


def slots(folder: Path) -> list[str]:
    """Returns the slot of the run begun last among the trainings, if there is one."""
    return [begun_last()[folder].slot] if folder in begun_last() else []


def is_trained_elsewhere(sources: Sequence[RunSource]) -> bool:
    """Returns whether another process trains one of these runs, such as one begun from a shell."""
    return any(each.folder is not None and each.begins is None and trainer(each.folder) is not None for each in sources)


def draw_train(folder: Path) -> None:
    """Draws the button that trains the first run."""
    forecast = "" if under_way(slots(folder), trainings()) else f", about {in_time(takes_s(RECIPES[FIRST[0]].recipe))}"
    _offer(folder, FIRST[0], f"Train one now{forecast}", type="primary", width="stretch", help=TRAIN_HELP)


def draw_recipes(folder: Path) -> None:
    """Draws the buttons that train other models, and that resume those that were stopped."""
    for name in OTHERS:
        known = RECIPES[name]
        _offer(folder, name, f"Train: {known.title}, about {in_time(takes_s(known.recipe))}", help=known.words)
    for run in [run for run in runs_in(folder) if not run.is_done][:N_LEFT]:
        path = run.about.get("path")
        live = LiveRun(run.folder, run.recipe, Path(path) if path else None)
        st.button(
            f"Resume {plain(run.name)}",
            key=f"resume {run.folder}",
            icon=":material/play_arrow:",
            on_click=_train,
            args=(folder, live),
            help=RESUME_HELP,
        )


def begin(folder: Path, name: str) -> None:
    """Starts training a run of the recipe of this name."""
    recipe = RECIPES[name].recipe
    _train(folder, LiveRun(free_name(folder, name, recipe), recipe))


def _train(folder: Path, run: LiveRun) -> None:
    """Trains this run, and chooses it next to the control of its recipe."""
    for slot in slots(folder):
        trainings().cancel(slot)  # its finished work is kept
    begun_last()[folder] = run
    restart(run)
    controls = [known.control for known in RECIPES.values() if known.control and known.recipe == run.recipe]
    choose_runs(own_name(run.folder), controls[0] if controls else NO_RUN)


def restart(run: LiveRun) -> None:
    """Trains this run, from where it stopped."""
    start = partial(trained, run.folder, run.recipe, run.text)
    job = Job(f"{run.folder} {run.recipe.digest}", start, 0, f"Training {run.folder.name}")
    trainings().put(run.slot, job, again=True)


def _offer(folder: Path, name: str, title: str, **kwargs: Any) -> None:
    icon = ":material/model_training:"
    st.button(title, key=f"train {name}", icon=icon, on_click=begin, args=(folder, name), **kwargs)


def takes_s(recipe: Recipe, job: JobStatus[Any] | None = None) -> float:
    """Returns roughly how many seconds a run takes, or its `job` still does: by the pace of the last run, or else on
    two cores."""
    share = job.done / job.total if job is not None and job.total else 0.0
    whole_s = measured_pace().get(PACE, SECONDS_PER_MILLION) * _cost(recipe)
    return whole_s * (1 - share) + (0.0 if share else BEGIN_S)


def _cost(recipe: Recipe) -> float:
    """Returns a run's tokens, in millions, as if it had two layers: the rest takes as long as one."""
    return recipe.tokens / 1e6 * (1 + recipe.n_layers) / 3


def draw_progress(folder: Path) -> None:
    """Draws the progress of the run begun last, or what ended it early."""
    run = begun_last().get(folder)
    job = trainings().status(run.slot) if run is not None else None
    if run is None or job is None or job.state == "done":
        return
    name = run.folder.name
    if not job.finished:
        share = min(1.0, job.done / job.total) if job.total else 0.0
        if job.left_s and SURE[0] < share < SURE[1]:
            measured_pace()[PACE] = job.left_s / ((1 - share) * _cost(run.recipe))
        step = f" ({job.message[:1].lower()}{job.message[1:]})" if job.message and not job.done else ""
        with st.container(horizontal=True, vertical_alignment="bottom"):
            left = f"about {in_time(takes_s(run.recipe, job))} left"
            st.progress(share, plain(f"Training {name}{step}: {left}"))
            st.button("Cancel", key=f"cancel {run.slot}", on_click=trainings().cancel, args=(run.slot,), help=STOP_HELP)
            mark_job(run.slot, job)
        return
    if job.error:
        show_error(job.error)
    else:
        st.caption(plain(f"{name} was stopped. Finished work is kept."))
    draw_restart(job, f"resume {run.slot}", RESUME_HELP, on_click=restart, args=(run,))
    mark_job(run.slot, job)

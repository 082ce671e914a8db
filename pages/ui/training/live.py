"""Train models now: a button that trains a run and its control, which are then the chosen ones, and their progress.

Training continues while other pages are open and stops with the app; Resume continues from there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from engine.progress import in_time
from engine.slots import Job
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
TRAIN_HELP = "Trains the model with two layers, then its control with one, next to the app: it leaves one core to it."
OTHERS = ("smeared", "half")  # recipes that read text
BEGIN_S = 10.0  # from the click to the first step
SECONDS_PER_MILLION = 30.0  # tokens of two layers, with all measurements
PACE = "seconds per million tokens"


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
        job = trainings().snapshot(self.slot)
        log = [job.value] if job is not None and isinstance(job.value, dict) else []
        return RunSource(own_name(self.folder), self.folder / RECORD, self.folder, begins=(self.recipe, log))


@st.cache_resource(show_spinner=False)
def begun_last() -> dict[Path, list[LiveRun]]:
    """Returns by folder the runs begun last, for all tabs, so that a reloaded page finds them."""
    return {}


@st.cache_resource(show_spinner=False)
def measured_pace() -> dict[str, float]:
    """Returns the pace of the last run, for all tabs; empty before it is known."""
    return {}


def live_runs(folder: Path) -> list[LiveRun]:
    """Returns the runs begun last in this folder."""
    return begun_last().get(folder, [])


def slots(folder: Path) -> list[str]:
    """Returns their slots among the trainings."""
    return [each.slot for each in live_runs(folder)]


def is_trained_elsewhere(sources: Sequence[RunSource]) -> bool:
    """Returns whether another process trains one of these runs, such as one begun from a shell."""
    return any(each.folder is not None and each.begins is None and trainer(each.folder) is not None for each in sources)


def draw_train(folder: Path) -> None:
    """Draws the button that trains the first pair of runs."""
    whole_s = left_s([LiveRun(folder, RECIPES[name].recipe) for name in FIRST])
    label = "Train them now" if under_way(slots(folder), trainings()) else f"Train them now, about {in_time(whole_s)}"
    _offer(folder, FIRST[0], label, type="primary", width="stretch", help=TRAIN_HELP)


def draw_recipes(folder: Path) -> None:
    """Draws the buttons that train other models, and that resume those that were stopped."""
    for name in OTHERS:
        known = RECIPES[name]
        runs = [LiveRun(folder, RECIPES[each].recipe) for each in (name, known.control) if each]
        _offer(folder, name, f"Train: {known.title}, about {in_time(left_s(runs))}", help=known.words)
    for run in [run for run in runs_in(folder) if not run.is_done][:N_LEFT]:
        path = run.about.get("path")
        live = LiveRun(run.folder, run.recipe, Path(path) if path else None)
        click = {"on_click": _train, "args": (folder, [live]), "help": RESUME_HELP}
        st.button(f"Resume {plain(run.name)}", key=f"resume {run.folder}", icon=":material/play_arrow:", **click)


def begin(folder: Path, name: str) -> None:
    """Starts training a run of the recipe of this name, and its control after it."""
    names = [each for each in (name, RECIPES[name].control) if each]
    recipes = {each: RECIPES[each].recipe for each in names}
    _train(folder, [LiveRun(free_name(folder, each, recipe), recipe) for each, recipe in recipes.items()])


def _train(folder: Path, runs: list[LiveRun]) -> None:
    """Trains these runs, one after the other, and chooses them."""
    for before in live_runs(folder):
        trainings().cancel(before.slot)  # its finished work is kept
    begun_last()[folder] = runs
    restart(folder)
    names = [own_name(each.folder) for each in runs]
    choose_runs(names[0], names[1] if len(names) > 1 else NO_RUN)


def restart(folder: Path) -> None:
    """Trains the runs begun last, from where they stopped."""
    for priority, each in enumerate(live_runs(folder)):
        start = partial(trained, each.folder, each.recipe, each.text)
        job = Job(f"{each.folder} {each.recipe.digest}", start, priority, f"Training {each.folder.name}")
        trainings().put(each.slot, job, again=True)


def _offer(folder: Path, name: str, title: str, **look: Any) -> None:
    click = {"on_click": begin, "args": (folder, name), "icon": ":material/model_training:", **look}
    if st.button(title, key=f"train {name}", **click):
        st.rerun()


def left_s(runs: Sequence[LiveRun]) -> float:
    """Returns roughly how many seconds training these runs still takes: by the pace of the last one, or else on two
    cores."""
    pace, found = measured_pace().get(PACE, SECONDS_PER_MILLION), 0.0
    for each in runs:
        job = trainings().snapshot(each.slot)
        if job is None or not job.finished:
            found += pace * _cost(each.recipe) * (1 - _share(each)) + (0 if job is not None and job.done else BEGIN_S)
    return found


def _cost(recipe: Recipe) -> float:
    """Returns a run's tokens, in millions, as if it had two layers: the rest takes as long as one."""
    return recipe.tokens / 1e6 * (1 + recipe.n_layers) / 3


def _share(run: LiveRun) -> float:
    job = trainings().snapshot(run.slot)
    return min(1.0, job.done / job.total) if job is not None and job.total else 0.0


def draw_progress(folder: Path) -> None:
    """Draws the progress of the runs begun last, with one forecast for all; then what ended them, if that was early."""
    runs = live_runs(folder)
    jobs = {each: job for each in runs if (job := trainings().snapshot(each.slot)) is not None}
    going = next((each for each, job in jobs.items() if not job.finished), None)
    if going is not None:
        job = jobs[going]
        if job.left_s and 0.2 < _share(going) < 0.8:  # at the ends, what is left says little about the pace
            measured_pace()[PACE] = job.left_s / ((1 - _share(going)) * _cost(going.recipe))
        done = sum(_share(each) * _cost(each.recipe) for each in runs) / sum(_cost(each.recipe) for each in runs)
        step = f" ({job.message.lower()})" if job.message and not job.done else ""
        with st.container(horizontal=True, vertical_alignment="bottom"):
            words = f"Training {going.folder.name}{step}: about {in_time(left_s(runs))} left"
            st.progress(done, plain(words))
            st.button("Cancel", key=f"cancel {folder}", on_click=_cancel, args=(runs,), help=STOP_HELP)
            mark_job(going.slot, job)
        return
    for each, job in jobs.items():
        if job.state == "done":
            continue
        if job.error:
            show_error(job.error)
        else:
            st.caption(plain(f"{each.folder.name} was stopped. Finished work is kept."))
        draw_restart(job, f"resume {each.slot}", RESUME_HELP, on_click=restart, args=(folder,))
        mark_job(each.slot, job)
        return


def _cancel(runs: Sequence[LiveRun]) -> None:
    """Stops these runs, the control that waits first: it would begin in between."""
    for each in reversed(runs):
        trainings().cancel(each.slot)

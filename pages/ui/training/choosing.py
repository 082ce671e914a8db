"""The controls of the Training screen: runs, folder, and the axis of tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import streamlit as st

from engine.errors import UsageError
from pages.ui.controls.controls import one_listed, one_of, settings_popover
from pages.ui.controls.many_tasks import several
from pages.ui.page.marks import mark
from pages.ui.page.runtime import errors_shown, store
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.tables import plain, typeset
from pages.ui.page.widget_writes import write
from pages.ui.training.measuring import so_far
from pages.ui.training.runs import (
    DrawnRun,
    RunSource,
    first_names,
    labels,
    recipe_in,
    short_labels,
    shown,
    snapshot_at,
    sources,
    trajectory_of,
    typed,
)
from pages.ui.training.tables import in_tokens

FOLDER = "training_folder"
RUNS_HELP = (
    "Runs whose measurements came with the app, the embedded model's own among them, and those in your folder. All are "
    "drawn over the same axis, the tokens that each was trained on. Point at a name above a chart for its recipe: "
    "attention only unless it says MLPs, how many rows of the text were repeats, seed."
)
FOLDER_HELP = "A folder that holds runs, each a folder of snapshots, such as `headroom train --out` makes."
NO_RUN = "no run"
FOLLOWS_HELP = (
    "Makes this run's snapshot nearest to the slider the sidebar's model, so that Prune, Induction, Passage and the "
    "others show the model as it was then. *Snapshots of* under *Settings* selects the run: only those with weights."
)
SCALE_HELP = "Tokens trained on, evenly or by their logarithm: the early steps then take more room."


@dataclass(frozen=True)
class RunChoice:
    """The choices of the controls."""

    runs: tuple[DrawnRun, ...]  # the measured runs
    unmeasured: tuple[str, ...]  # names of the other runs
    sources: dict[str, RunSource]  # of all runs, by name
    labels: dict[str, str]  # of all runs, by name
    folder: Path  # of the user's runs
    log: bool  # the axis is logarithmic
    followed: RunSource | None  # the run whose snapshots other screens open


def default_folder() -> Path:
    """Returns the default folder of runs that are trained here."""
    return store().directory / "runs"


def choose(runs_at: DeltaGenerator, more_at: DeltaGenerator) -> RunChoice:
    """Draws the controls; returns the choice, one of no runs if there is nothing to choose."""
    with settings_popover(more_at, width="stretch"):
        axis_at = st.container()
        hint = str(default_folder())
        said = st.text_input("Folder of runs", key=FOLDER, bind="query-params", placeholder=hint, help=FOLDER_HELP)
        rest = st.container()
    with errors_shown():
        folder = folder_of(said)
        found = sources(folder)
    read = {name: trajectory_of(source) or so_far(source) for name, source in found.items()}
    recipes = {name: recipe_in(source, read[name]) for name, source in found.items()}
    full = labels(read, recipes)
    short = short_labels(full, recipes)
    short_names, names = {name: typeset(label) for name, label in short.items()}, list(found)
    if not names:
        st.info("No runs yet: train one below, or give a folder with runs.", icon=":material/school:")
        return RunChoice((), (), found, short_names, folder, False, None)
    draw = partial(runs_at.multiselect, "Runs", names, format_func=short_names.__getitem__, help=RUNS_HELP)
    chosen = several("training_runs", names, draw, first_names(names), short_names)
    log = one_of(axis_at, "Axis", {False: "Linear", True: "Log"}, "training_axis", SCALE_HELP)
    if not chosen:
        st.info("Choose at least one run.", icon=":material/checklist:")
    unmeasured = tuple(name for name in chosen if trajectory_of(found[name]) is None)
    with_weights = [name for name in chosen if found[name].has_weights]
    key = "training_model"
    follows = one_listed(rest, "Snapshots of", [*with_weights, NO_RUN], key, help=FOLLOWS_HELP)
    followed = found.get(follows) if follows != NO_RUN else None
    return RunChoice(
        shown(chosen, short_names, read, full), unmeasured, found, short_names, folder, bool(log), followed
    )


def folder_of(said: str | None) -> Path:
    """Returns the typed folder, or the default; UsageError if it is not a possible path."""
    try:
        return Path(said.strip()).expanduser() if said and said.strip() else default_folder()
    except (RuntimeError, ValueError, OSError) as error:
        raise UsageError(f"{str(said)[:60]!r} is not a possible folder ({error}); give another one") from error


def draw_made(runs: Sequence[DrawnRun]) -> None:
    """Draws the training of runs whose labels do not show it: those of other trainers."""
    for run in runs:
        if words := (run.trajectory.recipe or {}).get("words"):
            st.caption(plain(f"{run.label[:1].upper()}{run.label[1:]}: {words}."))


def draw_followed(choice: RunChoice, tokens: float) -> None:
    """Draws a button that makes the snapshot with weights nearest to `tokens` the sidebar's model, or that it is."""
    source = choice.followed
    found = snapshot_at(source, tokens) if source is not None else None
    if source is None or found is None:
        return
    step, at = found
    name, words = typed(source, step), plain(f"{choice.labels[source.name]} at {in_tokens(at)}")
    used = (st.session_state.get("model") or "demo") == name
    if used:
        st.caption(f":material/check: All screens show {words}.", help=f"`{plain(name)}`")
    else:
        about = {
            "on_click": write,
            "args": ("model", name),
            "key": "training take model",
            "icon": ":material/neurology:",
        }
        st.button(f"Open {words} on all screens", help=FOLLOWS_HELP, **about)
    mark("training model", "used" if used else "offered", step=step)

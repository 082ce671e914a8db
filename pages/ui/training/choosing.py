"""The controls of the Training screen: which runs, from which folder, on which axis of tokens."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import streamlit as st

from pages.ui.shared.controls import one_of
from pages.ui.shared.many_tasks import several
from pages.ui.shared.runtime import end_run, errors_shown, store
from pages.ui.training.runs import (
    Shown,
    Source,
    first_names,
    labels,
    recipe_in,
    shown,
    sources,
    trajectory_of,
)

FOLDER = "training_folder"
RUNS_HELP = (
    "Runs whose measurements came with the app, and those in your folder. All are drawn over the same axis, the tokens "
    "that each was trained on. The name says the model, and how many rows of its text were repeats."
)
FOLDER_HELP = "A folder that holds runs, each a folder of snapshots, such as `headroom train --out` makes."
SCALE_HELP = "Tokens trained on, evenly or by their logarithm: the early steps then take more room."


@dataclass(frozen=True)
class Choice:
    """What is chosen: the runs that are measured, those that are not (`unmeasured`), where each is known from, the
    folder of the user's runs, and whether the axis is logarithmic."""

    runs: tuple[Shown, ...]
    unmeasured: tuple[str, ...]
    sources: dict[str, Source]
    labels: dict[str, str]
    folder: Path
    log: bool

    def source(self, run: Shown) -> Source:
        """Where a run is known from."""
        return self.sources[run.name]


def default_folder() -> Path:
    """Where runs lie that are trained here, if no other folder is said."""
    return store().directory / "runs"


def choose(runs_at, scale_at, folder_at) -> Choice:
    """Draws the controls; ends the run of the page where there is nothing to choose."""
    with folder_at.popover("Folder", icon=":material/folder_open:", width="stretch", help="Where your own runs lie."):
        typed = st.text_input("Folder of runs", key=FOLDER, bind="query-params", placeholder=str(default_folder()), help=FOLDER_HELP)
    folder = Path(typed.strip()).expanduser() if typed and typed.strip() else default_folder()
    with errors_shown():
        found = sources(folder)
    read = {name: trajectory_of(source) for name, source in found.items()}
    told = labels(read, {name: recipe_in(source, read[name]) for name, source in found.items()})
    names = list(found)
    if not names:
        st.info("There are no runs yet: train one below, or choose the folder where some lie.", icon=":material/school:")
        return Choice((), (), found, told, folder, False)
    draw = partial(runs_at.multiselect, "Runs", names, format_func=told.__getitem__, help=RUNS_HELP)
    chosen = several("training_runs", names, draw, first_names(names))
    log = one_of(scale_at, "Axis", {False: "Linear", True: "Log"}, "training_axis", SCALE_HELP)
    if not chosen:
        st.info("Choose at least one run.", icon=":material/checklist:")
        end_run()
    unmeasured = tuple(name for name in chosen if read[name] is None)
    return Choice(shown(chosen, told, read), unmeasured, found, told, folder, bool(log))

"""The controls of the Training screen: the run, its control, and the folder of one's own runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import streamlit as st

from engine.errors import UsageError
from engine.training.trajectory import Trajectory
from engine.views.training import in_tokens, names_of
from pages.ui.controls.controls import one_listed
from pages.ui.page.address import current_value
from pages.ui.page.marks import mark
from pages.ui.page.runtime import store
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.tables import plain
from pages.ui.page.widget_writes import write
from pages.ui.training.runs import FIRST, RunSource, snapshot_at, trajectory_of

FOLDER, RUN, CONTROL = "training_folder", "training_run", "training_control"
NO_RUN = "none"
RUN_HELP = "A run that came with the app, or one in your folder of runs (below)."
FOLDER_HELP = "A folder that holds runs, each a folder of snapshots, such as `headroom train --out` makes."
FOLLOWS_HELP = "Makes the run's snapshot nearest to the slider the model of all screens."


@dataclass(frozen=True)
class RunChoice:
    """The chosen runs: one, or one and its control."""

    sources: Sequence[RunSource]

    @cached_property
    def runs(self) -> list[Trajectory]:
        """Returns those that have measurements."""
        return [found for each in self.sources if (found := trajectory_of(each)) is not None]

    @property
    def is_measured(self) -> bool:
        """Returns whether all of them have."""
        return len(self.runs) == len(self.sources) > 0

    @property
    def names(self) -> list[str]:
        """Returns their short names."""
        return names_of(self.runs)


def run_folder() -> Path:
    """Returns the typed folder of runs, or the default one; UsageError if it is not a possible path."""
    said = current_value(FOLDER).strip()
    try:
        return Path(said).expanduser() if said else store().directory / "runs"
    except (RuntimeError, ValueError, OSError) as error:
        raise UsageError(f"{said[:60]!r} is not a possible folder ({error}); give another one") from error


def draw_folder() -> None:
    """Draws the field for the folder of runs."""
    hint = str(store().directory / "runs")
    st.text_input("Folder of runs", key=FOLDER, bind="query-params", placeholder=hint, help=FOLDER_HELP)


def choose(found: dict[str, RunSource], run_at: DeltaGenerator, control_at: DeltaGenerator) -> RunChoice:
    """Draws the choice of a run and its control."""
    names = list(found)
    run = one_listed(run_at, "Run", names, RUN, index=names.index(FIRST[0]) if FIRST[0] in names else 0, help=RUN_HELP)
    others = [NO_RUN, *(name for name in names if name != run)]
    first = others.index(FIRST[1]) if FIRST[1] in others else 0
    control = one_listed(control_at, "Next to it", others, CONTROL, index=first, help="Its control, or another run.")
    return RunChoice([found[name] for name in (run, control) if name != NO_RUN])


def choose_runs(run: str, control: str) -> None:
    """Chooses these two runs in place of the user, before the controls are drawn."""
    write(RUN, run)
    write(CONTROL, control)


def draw_followed(source: RunSource, name: str, tokens: float) -> None:
    """Draws the button that makes the run's snapshot with weights nearest to `tokens` the model of all screens, or that
    it is; nothing without any."""
    found = snapshot_at(source, tokens)
    if found is None:
        return
    model, words = found[0], plain(f"{name} at {in_tokens(found[1])}")
    used = (st.session_state.get("model") or "demo") == model
    if used:
        st.caption(f":material/check: All screens show {words}.", help=f"`{plain(model)}`")
    else:
        st.button(
            f"Open {words} on all screens",
            key="training take model",
            on_click=write,
            args=("model", model),
            icon=":material/neurology:",
            help=FOLLOWS_HELP,
        )
    mark("training model", "used" if used else "offered", model=model)

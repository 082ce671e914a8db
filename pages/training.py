"""The Training screen: two small models while they are trained, snapshot by snapshot, on one axis of tokens."""

import time
from collections.abc import Sequence
from functools import partial

import numpy as np
import streamlit as st

from engine.requests import MeasureTrajectory
from engine.views.training import difference, phase_change, trajectory_view
from pages.ui.controls.controls import folded
from pages.ui.downloads.actions import draw_actions
from pages.ui.downloads.origin import Origin
from pages.ui.figures.sheet import Sheet
from pages.ui.page.runtime import errors_shown, require_frame, trainings
from pages.ui.page.tables import plain
from pages.ui.page.work import live, under_way
from pages.ui.training.charts import draw_parts
from pages.ui.training.choosing import FOLDER, RunChoice, choose, choose_runs, draw_folder, draw_followed, run_folder
from pages.ui.training.live import begun_last, draw_progress, draw_recipes, draw_train, is_trained_elsewhere, slots
from pages.ui.training.passage import passage
from pages.ui.training.runs import ON_TEXT, RunSource, sources
from pages.ui.training.slider import draw_field, moment, slider


def available() -> dict[str, RunSource]:
    """Returns the runs by name."""
    return sources(folder, [begun_last()[folder].source] if folder in begun_last() else [])


def draw_runs(names: Sequence[str], sheet: Sheet) -> None:
    """Draws the progress of a live run, the finding, and the slider with its charts."""
    draw_progress(folder)
    found = available()  # once more: a live run has grown
    choice = RunChoice([found[name] for name in names if name in found])
    if not choice.is_measured:
        if not under_way(slots(folder), trainings()):
            st.info("A run has no measurements yet: measure it with `headroom trajectory`, or choose another.")
        return
    view = trajectory_view(*choice.runs)
    sheet.says, sheet.views = [], {}  # of the time before, while a run grows
    sheet.add_view(view)
    st.markdown(f"#### {view.finding}")
    if len(choice.runs) > 1:
        st.caption(difference(*choice.runs))
    slider(choice.runs, at := moment(choice.runs))
    draw_parts(view.parts[: view.on_slide], choice.names, sheet)
    draw_followed(choice.sources[0], choice.names[0], at)


def draw_gain(choice: RunChoice, sheet: Sheet) -> None:
    """Draws the in-context gain of the runs."""
    view = trajectory_view(*choice.runs)
    draw_parts(view.parts[view.on_slide :], choice.names, sheet)
    for name, run in zip(choice.names, choice.runs, strict=True):
        st.caption(f"{plain(name)}: {phase_change(run)}")


def draw_text(choice: RunChoice, sheet: Sheet) -> None:
    """Draws, folded, what the runs have learned of text; of runs that read none, a button that chooses others."""
    has_gain = not any(np.isnan(run.icl).all() for run in choice.runs)
    has_passage = any(run.passages for run in choice.runs)
    if has_gain:
        folded("In-context gain", "training_gain", partial(draw_gain, choice, sheet), in_address=True)
    if has_passage:
        inside = partial(passage, choice, moment(choice.runs), sheet)
        holds = ("training_text", "training_reader")
        folded("A passage over training", "training_passage", inside, in_address=True, holds=holds)
    if not has_gain and not has_passage:
        st.button(
            "Show two runs on text: in-context gain, and a passage over training",
            key="on text",
            on_click=choose_runs,
            args=ON_TEXT,
            icon=":material/menu_book:",
        )


def draw_own() -> None:
    """Draws the folder of one's own runs, and other models to train."""
    draw_folder()
    draw_recipes(folder)


require_frame("pages/training.py")
draw_field()
since_s, sheet = time.monotonic(), Sheet()
with errors_shown():
    folder = run_folder()
    found = available()
run_at, control_at, train_at = st.columns([3, 3, 4], vertical_alignment="bottom")
choice = choose(found, run_at, control_at)
with train_at:
    draw_train(folder)
draw = partial(draw_runs, [each.name for each in choice.sources], sheet)
if (grows := is_trained_elsewhere(choice.sources)) or under_way(slots(folder), trainings()):
    live(slots(folder), draw, since_s, by=trainings(), always=grows)
else:
    draw()
if choice.is_measured:
    draw_text(choice, sheet)
folded("Your own runs", "training_own", draw_own, in_address=True, holds=(FOLDER,))
first, control = choice.sources[0].series, choice.sources[1].series if len(choice.sources) > 1 else None
request = MeasureTrajectory(series=first, control=control)
notes = trajectory_view(*choice.runs).notes if choice.is_measured else ()
draw_actions(Origin("Training", [request], {}, " and ".join(choice.names), notes), sheet)

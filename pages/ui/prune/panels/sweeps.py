"""Sweeps below the figure of Prune, measured on request: the curves of other tasks and shot counts, and heads and FFNs
pruned together."""

from functools import partial

import streamlit as st

from engine.importance.rankings_of import OF_MANY_TASKS
from engine.requests import Sweep
from pages.ui.controls.first_views import first_tasks
from pages.ui.controls.many_tasks import SHOTS_HELP, TASKS_HELP, local_tasks, several
from pages.ui.downloads.origin import of_model
from pages.ui.page.defaults import ORDER, SHOT_COUNTS
from pages.ui.prune.experiment import Experiment
from pages.ui.prune.state import PruneState
from pages.ui.sections.section import Section, draw_section

TENTHS, QUARTERS = ",".join(map(str, range(0, 101, 10))), "0,25,50,75,100"
SHOWS = "Accuracy by level, a curve for each task and shot count, and how far each can be pruned."
GRID_SHOWS = "Accuracy by heads and FFNs pruned at the same time."


def draw_other_tasks(state: PruneState) -> Section:
    """Draws the choice of tasks and shot counts, and their curves; returns the section."""
    x = state.x
    every, counts = local_tasks(x.data_dir), [str(count) for count in SHOT_COUNTS]
    tasks_at, shots_at = st.columns([3, 1])
    box = partial(tasks_at.multiselect, "Tasks", every, filter_mode="contains", help=TASKS_HELP)
    tasks = several("prune_other_tasks", every, box, first_tasks(every, x.target.spec.is_demo))
    pills = partial(shots_at.pills, "Examples in the prompt", counts, selection_mode="multi", help=SHOTS_HELP)
    shots = several("prune_other_shots", counts, pills, [str(x.task.shots)])
    levels = ("0", TENTHS) if state.axis == "ffns" else (TENTHS, "0")
    return _draw(state, _sweep(x, tasks or every[:1], shots or counts[:1], *levels), "Other tasks", SHOWS)


def draw_grid(state: PruneState) -> Section:
    """Draws heads and FFNs pruned together; returns the section."""
    x = state.x
    wanted = _sweep(x, [x.task.name], [str(x.task.shots)], QUARTERS, QUARTERS)
    return _draw(state, wanted, "Heads and FFNs together", GRID_SHOWS)


def _sweep(x: Experiment, tasks: list[str], shots: list[str], heads: str, ffns: str) -> Sweep:
    order = x.pruning.ranking.name
    return Sweep(
        **of_model(x.target), task_data=x.data_dir, tasks=",".join(tasks), shots=",".join(shots), head_levels=heads,
        ffn_levels=ffns, order=order if order in OF_MANY_TASKS else ORDER, labels=x.task.labels, limit=x.limit,
        out="sweep.csv",
    )  # fmt: skip


def _draw(state: PruneState, wanted: Sweep, title: str, shows: str) -> Section:
    section = Section(title, wanted, state.x.target, shows, starts="on request")
    draw_section("prune", section, state.sheet, state.since_s)
    return section

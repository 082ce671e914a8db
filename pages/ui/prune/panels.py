"""The folded panels of Prune in their order, and what the screen hands to its downloads."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from engine.importance.estimates import gradients
from engine.importance.orders import OF_MANY_TASKS
from engine.measurement import Measurement
from engine.models.masks import Mask
from engine.requests import MeasureSpeed, Request, Sweep
from engine.views.confidence import confidence_view
from engine.views.questions import choice_frame
from engine.views.view import Part
from pages.ui.controls.controls import folded
from pages.ui.controls.first_views import first_tasks
from pages.ui.controls.many_tasks import SHOTS_HELP, TASKS_HELP, local_tasks, several
from pages.ui.downloads.origin import Origin, about, of_model, tasks_in_words
from pages.ui.page.defaults import LEVELS, ORDER, SHOT_COUNTS
from pages.ui.page.tables import to_csv
from pages.ui.page.work import live
from pages.ui.prune import second_model
from pages.ui.prune.estimates import pruned_in_words
from pages.ui.prune.experiment import Experiment, curve, request
from pages.ui.prune.exports import SLOT, draw_export
from pages.ui.prune.questions import draw_questions
from pages.ui.prune.state import PruneState
from pages.ui.prune.tables import MAP, UNRANKED, component_frame, map_part
from pages.ui.sections.section import Section, draw_section, draw_view

TENTHS, QUARTERS = ",".join(map(str, range(0, 101, 10))), "0,25,50,75,100"
CURVES_SHOW = "Accuracy by level, a curve for each task and shot count, and how far each can be pruned."
GRID_SHOWS = "Accuracy by heads and FFNs pruned at the same time."
SPEED_SHOWS = "Tokens a second of a prompt and after it, full and pruned in turn, and the memory of weights and cache."


def draw_panels(state: PruneState) -> Origin:
    """Draws the panels, adds what the screen says to its sheet, and returns the source of its numbers."""
    sheet, second = state.sheet, state.second_model
    of_second = None if second is None else (second.second, second.answers.pruned)
    opened = [
        _panel("Other tasks and shots", "prune_others", partial(_draw_other_tasks, state)),
        _panel("Heads and FFNs together", "prune_grid", partial(_draw_grid, state)),
    ]
    if not state.x.validation.greedy:
        _panel("Does it still know when it's right?", "prune_confidence", partial(_draw_confidence, state))
    _panel("The questions", "prune_questions", partial(draw_questions, state.x, state.answers, of_second))
    opened.append(_panel("What pruning saves", "prune_speed", partial(_draw_speed, state)))
    export = partial(live, [SLOT], partial(draw_export, state), state.since_s)
    _panel("Export this model", "prune_export", export)
    sheet.add_unseen(MAP, partial(_map, state))
    sheet.tables["Questions and choices"] = lambda: to_csv(
        choice_frame(state.stored_answers.full, state.stored_answers.pruned, of_second)
    )
    shown, of = state.standing, _origin(state)
    says = [shown.finding or f"**{shown.value}** {shown.delta}", *shown.lines, *shown.details]
    if second is not None:
        of = second_model.with_second_model(of, state.x, second)
        both = second_model.pair(state)
        sheet.tables["Two models"] = pd.DataFrame([] if both is None else second_model.rows(state, both))
        says += [] if both is None else second_model.lines(state, both)
    sheet.says[:0] = says
    sections = [section for section in opened if section is not None]
    measurements = {**of.measurements, **{section.title: section.work.of for section in sections}}
    return replace(of, requests=[*of.requests, *(each.request for each in sections)], measurements=measurements)


def _map(state: PruneState) -> Part:
    mask = state.mask or state.x.pruning.typed.alone
    return map_part(component_frame(state.x.shape, state.coloring, mask, state.induction_heads), state.coloring.titles)


def _panel(title: str, key: str, draw: Callable[[], Section | None]) -> Section | None:
    """Draws a folded panel; returns the section in it, if it is open and has one."""
    return folded(title, key, draw, in_address=True)


def _draw_other_tasks(state: PruneState) -> Section:
    """Draws the choice of tasks and shot counts, and their curves."""
    x = state.x
    every, counts = local_tasks(x.data_dir), [str(count) for count in SHOT_COUNTS]
    tasks_at, shots_at = st.columns([3, 1])
    box = partial(tasks_at.multiselect, "Tasks", every, filter_mode="contains", help=TASKS_HELP)
    tasks = several("prune_other_tasks", every, box, first_tasks(every, x.target.spec.is_demo))
    pills = partial(shots_at.pills, "Examples (shots)", counts, selection_mode="multi", help=SHOTS_HELP)
    shots = several("prune_other_shots", counts, pills, [str(x.task.shots)])
    levels = ("0", TENTHS) if state.axis == "ffns" else (TENTHS, "0")
    return _draw(state, "Other tasks", _sweep(x, tasks or every[:1], shots or counts[:1], *levels), CURVES_SHOW)


def _draw_grid(state: PruneState) -> Section:
    """Draws heads and FFNs pruned together."""
    task = state.x.task
    wanted = _sweep(state.x, [task.name], [str(task.shots)], QUARTERS, QUARTERS)
    return _draw(state, "Heads and FFNs together", wanted, GRID_SHOWS)


def _draw_confidence(state: PruneState) -> None:
    """Draws how sure the model is of its answers and whether it is right, once all questions are answered."""
    full, pruned, mask = state.answers.full, state.answers.pruned, state.mask
    if full is None or pruned is None or mask is None or not state.x.is_complete(state.answers):
        st.caption("Follows once all questions are answered.")
        return
    levels = {level: answers for level, (_, answers) in state.curve.items()}
    view = confidence_view(full, None if mask.is_full else pruned, levels, LEVELS[state.axis])
    draw_view(view, "prune confidence", state.sheet)


def _draw_speed(state: PruneState) -> Section | None:
    """Draws the speed and the memory of the pruned model, if the mask is known."""
    if state.mask is None:
        st.caption(UNRANKED)
        return None
    wanted = MeasureSpeed(**of_model(state.x.target), mask=state.mask.text())
    return _draw(state, "Speed and memory", wanted, SPEED_SHOWS)


def _sweep(x: Experiment, tasks: list[str], shots: list[str], heads: str, ffns: str) -> Sweep:
    order = x.pruning.ranking.name
    return Sweep(
        **of_model(x.target), task_data=x.data_dir, tasks=",".join(tasks), shots=",".join(shots), head_levels=heads,
        ffn_levels=ffns, order=order if order in OF_MANY_TASKS else ORDER, labels=x.task.labels, limit=x.limit,
        out="sweep.csv",
    )  # fmt: skip


def _draw(state: PruneState, title: str, wanted: Request, shows: str) -> Section:
    section = Section(title, wanted, state.x.target, shows, starts="on request")
    draw_section(section, state.sheet, state.since_s)
    return section


def _origin(state: PruneState) -> Origin:
    """Returns the source of the figure and of its curve: the request, and the measurements."""
    x, mask, known = state.x, state.mask, state.known
    measurements = dict[str, Measurement[Any]]({"Full model": x.answers(Mask.full(x.shape))})
    if mask is not None and not mask.is_full:
        measurements["Pruned model"] = x.answers(mask)
    measurements |= {"Importance": x.shown_evidence, "Curve": curve(x, state.axis, known)}
    if not x.validation.greedy:
        measurements["Estimates"] = gradients(x.target, x.questions)
    of = about(x.target, tasks_in_words([x.task]), f"{x.questions.n:,} questions", pruned_in_words(x, known, mask))
    return Origin("Prune", [request(x)], measurements, of)

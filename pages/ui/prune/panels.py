"""The folded panels of Prune in their order, and what they add to its downloads."""

from dataclasses import replace
from functools import partial

from engine.accuracy.evaluation import Answers
from pages.ui.controls.controls import folded
from pages.ui.downloads.origin import Origin
from pages.ui.page.work import live
from pages.ui.prune import second_model
from pages.ui.prune.origin import origin
from pages.ui.prune.panels import costs, exports, sweeps
from pages.ui.prune.panels.questions import draw_questions
from pages.ui.prune.state import PruneState
from pages.ui.prune.tables import answers_csv


def draw_panels(state: PruneState) -> Origin:
    """Draws the panels, adds what the screen says to its sheet, and returns the source of its numbers."""
    second, sheet = _answers_of_second(state), state.sheet
    others = folded("Other tasks and shots", "prune_others", partial(sweeps.draw_other_tasks, state), in_address=True)
    grid = folded("Heads and FFNs together", "prune_grid", partial(sweeps.draw_grid, state), in_address=True)
    listed = partial(draw_questions, state.x, state.measured, second)
    folded("The questions", "prune_questions", listed, in_address=True)
    saves = folded("What pruning saves", "prune_cost", partial(costs.draw_savings, state), in_address=True)
    export = partial(live, [exports.SLOT], partial(exports.draw_export, state), state.since_s)
    folded("Export this model", "prune_export", export, in_address=True)
    sheet.tables["Questions and choices"] = partial(answers_csv, state.stored, second)
    shown, of = state.standing, origin(state.x, state.known, state.axis)
    says = [shown.finding or f"**{shown.value}** {shown.delta}", *shown.lines, *shown.details]
    if state.second_model is not None:
        both = state.measured, state.second_model.measured, state.second_model.names
        of = second_model.with_second_model(of, state.x, state.second_model)
        sheet.tables["Two models"] = second_model.rows(*both)
        says += second_model.lines(*both)
    sheet.says[:0] = says
    opened = [section for section in (others, grid, saves) if section is not None]
    measurements = {**of.measurements, **{section.title: section.work.of for section in opened}}
    return replace(of, requests=[*of.requests, *(each.request for each in opened)], measurements=measurements)


def _answers_of_second(state: PruneState) -> tuple[str, Answers | None] | None:
    of = state.second_model
    return None if of is None else (of.second, of.measured.pruned)

"""The Prune screen: choose a task and how much to prune, and see the remaining accuracy."""

from dataclasses import replace
from functools import partial
from typing import Any

import streamlit as st

from engine.requests import CompareCriteria
from pages.ui.controls.controls import folded
from pages.ui.controls.study import is_to_set, study
from pages.ui.controls.texts import choose_text
from pages.ui.downloads.footer import closing
from pages.ui.page.address import flag, put_right
from pages.ui.page.presentation import presenting
from pages.ui.page.runtime import require_frame
from pages.ui.page.screens import draw_headline
from pages.ui.page.tables import plain
from pages.ui.page.work import live
from pages.ui.prune import dragging, head_map, parts, second_model
from pages.ui.prune.figure import component_tables
from pages.ui.prune.origin import figure_in_words, origin
from pages.ui.prune.panels import costs, exports, perplexity
from pages.ui.prune.panels.questions import draw_questions
from pages.ui.prune.screen import PruneScreen
from pages.ui.prune.stories import close_when_left, set_controls
from pages.ui.prune.story import finding
from pages.ui.prune.tables import answers_csv
from pages.ui.sections.form import MEASUREMENT, label_of

require_frame("pages/prune.py")
of = study()
setup = of.setup
set_controls(setup)
head_map.apply_edits()
if is_to_set():
    st.rerun()
close_when_left(setup)
screen = PruneScreen(of, postponed=dragging.nothing_drawn_yet())
parts.draw_levels(screen)
screen.whole = False  # the next run is one of the sliders' fragment
shown = screen.shown
assert shown is not None
draw_headline("prune", "" if presenting() else finding(shown, setup))
live(["importance"], partial(parts.draw_importance, shown), screen.since_s)
second = None
if shown.compared is not None:
    second = shown.compared.names[1], shown.compared.answers.pruned
listed = partial(draw_questions, shown.x, shown.measured, second)
folded("The questions", "prune_questions", listed, in_address=True)
savings = partial(costs.draw_savings, shown, screen.since_s)
saves = folded("What pruning saves", "prune_cost", savings, in_address=True)
task, compare = shown.x.task, label_of(CompareCriteria)
asked: dict[str, Any] = {MEASUREMENT: compare, "bench_compare_task": task.name, "bench_compare_shots": task.shots}
st.page_link("pages/bench.py", label="Compare criteria on the bench", icon=":material/timeline:", query_params=asked)
export = partial(live, [exports.SLOT], partial(exports.draw_export, shown), screen.since_s)
folded("Export this model", "prune_export", export, in_address=True)
put_right("prune_perplexity", "Perplexity of a text", flag)
second_at = st.expander("Perplexity of a text", key="prune_perplexity", on_change="rerun", bind="query-params")
text = choose_text("prune", second_at, perplexity.TEXT) or perplexity.chosen_text()
if second_at.open:
    with second_at:
        live([perplexity.SLOT], partial(perplexity.draw_details, shown, text), screen.since_s)
folded("The same as tables", "prune_tables", partial(component_tables, shown))
sheet = screen.sheet
sheet.tables["Questions and choices"] = partial(answers_csv, shown.stored, second)
if saves and (saved := costs.stored_speed(shown)) is not None:
    sheet.tables["What pruning saves"] = saved.frame()
found = shown.measured
shows = origin(shown.x, shown.known, of.axis)
sheet.says = figure_in_words(shown.x, found, shown.known)
if shown.compared is not None:
    answers = shown.compared.answers
    shows = second_model.with_second_model(shows, shown.x, shown.compared)
    sheet.tables["Two models"] = second_model.rows(found, answers, shown.compared.names)
    value, lines = second_model.figure(found, answers, shown.compared.names)
    sheet.says += [f"{shown.compared.names[1]}: {value}", *lines] if value else []
measurements = {**shows.measurements}
if shown.second.full is not None:
    sheet.tables["Perplexity"] = perplexity.table(shown.second)
    measurements["Perplexity"] = perplexity.perplexities(shown, text)
if shown.second.complete:
    sheet.says += perplexity.in_words(shown.second, f"Perplexity of {plain(text.name)}")
closing(replace(shows, measurements=measurements), sheet)
st.session_state["prune drawn"] = True

"""The Prune screen: choose a task and how much to prune, and see the remaining accuracy."""

from dataclasses import replace
from functools import partial

import streamlit as st

from pages.ui.comparison.criteria import CriteriaDownloads
from pages.ui.controls.controls import choose_ranking, choose_task
from pages.ui.controls.sidebar import chosen
from pages.ui.controls.texts import choose_text, chosen_text
from pages.ui.downloads.footer import Table, closing
from pages.ui.page.address import flag, put_right
from pages.ui.page.runtime import errors_shown, require_frame
from pages.ui.page.tables import for_file
from pages.ui.page.work import live
from pages.ui.prune import beside, dragging, parts
from pages.ui.prune.figure import component_tables
from pages.ui.prune.origin import origin
from pages.ui.prune.panels import costs, criteria, exports, perplexity, speeds
from pages.ui.prune.panels.questions import draw_questions
from pages.ui.prune.screen import PruneScreen
from pages.ui.prune.stories import set_controls
from pages.ui.prune.tables import answers_csv

require_frame("pages/prune.py")
setup = chosen()
set_controls(setup)
with st.container(key="prune_controls"):  # hidden on a slide
    task_at, ranking_at = st.columns([57, 15])
with errors_shown():
    task, limit, width = choose_task("prune", task_at, setup.data_dir)
ranking = choose_ranking("prune", ranking_at)
screen = PruneScreen(setup, task, limit, width, ranking, postponed=dragging.nothing_drawn_yet())
parts.draw_levels(screen)
screen.whole = False  # the next run is one of the sliders' fragment
shown = screen.shown
assert shown is not None
live(["importance"], partial(parts.draw_importance, shown), screen.since_s)
second = None
if shown.beside is not None:
    second = shown.beside.names[1], shown.beside.answers(shown.x.n_taken(shown.measured)).pruned
put_right("prune_questions", "The questions", flag)
questions_at = st.expander("The questions", key="prune_questions", on_change="rerun", bind="query-params")
if questions_at.open:
    with questions_at:
        draw_questions(shown.x, shown.measured, second)
put_right("prune_cost", "What pruning saves", flag)
cost_at = st.expander("What pruning saves", key="prune_cost", on_change="rerun", bind="query-params")
if cost_at.open:
    with cost_at:
        live([costs.SLOT], partial(costs.draw_costs, shown), screen.since_s)
        live([speeds.SLOT], partial(speeds.draw_speed, shown), screen.since_s)
put_right("prune_compare", "Compare criteria", flag)
compare_at = st.expander("Compare criteria", key="prune_compare", on_change="rerun", bind="query-params")
compared, comparison = CriteriaDownloads(), None
if compare_at.open:
    comparison = criteria.draw_criteria(screen, setup, compare_at, compared)
put_right("prune_export", "Export this model", flag)
export_at = st.expander("Export this model", key="prune_export", on_change="rerun", bind="query-params")
if export_at.open:
    with export_at:
        live([exports.SLOT], partial(exports.draw_export, shown), screen.since_s)
second_at = st.expander("Perplexity of a text", key="prune_perplexity", on_change="rerun", bind="query-params")
text = choose_text("prune", second_at, perplexity.TEXT) or chosen_text("prune", perplexity.TEXT)
if second_at.open:
    with second_at:
        live([perplexity.SLOT], partial(perplexity.draw_details, shown, text), screen.since_s)
table_at = st.expander("The same as tables", key="prune_tables", on_change="rerun")
if table_at.open:
    component_tables(table_at, screen.tables["Heads"], screen.tables["FFNs"])
files: dict[str, Table] = {"Questions and choices": partial(answers_csv, shown.stored, second)}
files |= {name: for_file(table) for name, table in screen.tables.items()}
axis = st.session_state.get("prune_axis") or "heads"
if cost_at.open and (saved := speeds.stored(shown)) is not None:
    files["What pruning saves"] = saved.frame()
if shown.second.full is not None:
    files["Perplexity"] = perplexity.table(shown.second)
shows = origin(shown.x, shown.measured, shown.known, axis)
if shown.beside is not None:
    found = shown.measured
    shows = beside.with_second_model(shows, shown.x, shown.beside, found)
    files["Two models"] = beside.rows(found, shown.beside.answers(shown.x.n_taken(found)), shown.beside.names)
shows = perplexity.with_perplexity(shows, shown, text)
if comparison is not None:
    shows = replace(shows, measurements={**shows.measurements, "Compare criteria": comparison.measurement})
closing(shows, {**files, **compared.tables}, {**screen.pictures, **compared.pictures})
st.session_state["prune drawn"] = True

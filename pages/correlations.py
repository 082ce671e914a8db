"""The Correlations screen: how much the importance rankings of tasks and shot counts agree."""

import time
from dataclasses import replace
from typing import Any

import pandas as pd
import streamlit as st

from engine.questions.requests import CHUNK
from engine.requests import Correlate
from engine.studies.surveys import Survey, shots_in_words, survey
from pages.ui.controls.controls import one_of, settings_menu
from pages.ui.controls.first_views import N_COMPARED
from pages.ui.controls.many_tasks import (
    FirstMeasured,
    choose_tasks,
    demo_view,
    importance_work,
    partly,
    reserve_finding,
    setting_of,
    show_failed,
    so_far,
    start_first_view,
    survey_line,
)
from pages.ui.controls.sidebar import wait_for_model
from pages.ui.controls.study import chosen
from pages.ui.correlations import sections, tables
from pages.ui.correlations.transfer import transfer
from pages.ui.downloads.footer import closing
from pages.ui.downloads.origin import Origin, about, of_grid, of_model, tasks_in_words
from pages.ui.figures.empty import empty_state, reading_state
from pages.ui.figures.sheet import Sheet
from pages.ui.importance.tables import EVEN, GRADIENTS_HELP, PAPERS
from pages.ui.page.defaults import RANKING_QUESTIONS
from pages.ui.page.presentation import presenting
from pages.ui.page.runtime import end_run, require_frame
from pages.ui.page.work import live

require_frame("pages/correlations.py")
TITLES = {EVEN: "Heads by gradient", PAPERS: "Heads by gradient (Bansal et al.)",
          "heads-oracle": "Heads by removal", "ffns": "FFNs"}  # fmt: skip
ORDERS = {"chosen": "as chosen", "similarity": "by similarity"}
HOW = "shares"  # of the aggregate in the file
HALF = 9  # tasks: up to this many, a matrix fits on half of the page's width
WHAT_HELP = (
    f"{GRADIENTS_HELP} Removal and FFNs: accuracy lost when just that one is pruned. With few questions, most tie: "
    "their order then says little."
)
ORDER_HELP = "By similarity: tasks that agree are next to each other (average linkage on 1 − correlation)."
SHOWS = "You will see how far these tasks rank heads alike, and any two rankings head by head."
ONE_TASK = "The rankings of two tasks at {} are compared: choose another task, or measure it."


@st.cache_data(max_entries=8, show_spinner="Comparing the rankings")
def compared(digest: str, _found: Survey) -> pd.DataFrame:
    """Returns every pair of rankings; cached, as permutations of thousands of heads take seconds."""
    return tables.pair_rows(_found, HOW)


setup, finding_at = chosen(), reserve_finding("finding")
row = st.container(horizontal=True, vertical_alignment="bottom", gap="small")
tasks_at, menu = row.container(), settings_menu(row, "correlations")
tasks = choose_tasks("correlations", tasks_at, setup, N_COMPARED, menu)
counts, task_names = sorted({task.shots for task in tasks}), list(dict.fromkeys(task.name for task in tasks))
what = one_of(menu, "Importance", TITLES, sections.WHAT, WHAT_HELP, on_change=sections.chosen_outside)
shown = sections.choose_count(menu, counts)
ordered = one_of(menu, "Order of tasks", ORDERS, "correlations_order", ORDER_HELP)

target = wait_for_model(setup, prunes=True)
since_s, setting = time.monotonic(), setting_of(setup)
work = importance_work(setting, target, tasks, what, f"correlations {what}", TITLES[what])
works, known = [work], [measured := so_far(work)]
is_open = measured.n_known < len(tasks) and what == EVEN and not work.under_way
if is_open and not start_first_view(setup, tasks, works, n=N_COMPARED):  # all of it takes too long
    first = replace(setting, n_ranking=CHUNK)
    works.append(importance_work(first, target, tasks, what, "correlations first", f"{TITLES[what]}, first questions"))
    known.append(so_far(works[-1]))
    start_first_view(setup, tasks, works[1:], n=N_COMPARED)
found = Survey(measured.preview(tasks), measured.failed)
watched = [slot for each in works for slot in each.watched()]


def draw_work() -> None:
    """Draws the progress of what is measured, or the button that measures what is missing."""
    if works[-1].under_way:
        survey_line(works[-1], len(tasks), known[-1], since_s)
        return
    label = f"Measure all {RANKING_QUESTIONS} questions" if measured.begun else "Measure importance"
    first = FirstMeasured(label, "secondary" if measured.begun else "primary")
    survey_line(work, len(tasks), measured, since_s, first)


if work.is_first_read:
    finding_at.markdown("Reading the stored results.")
    with reading_state("matrix", "ranks"):
        live(watched, work.reading_line, since_s)
    end_run()
request = Correlate(
    **of_model(target), **of_grid(tasks), task_data=setup.data_dir, score=what, aggregate=HOW, out="correlations.csv"
)
of = about(target, tasks_in_words(tasks), f"{RANKING_QUESTIONS} train questions each", "the full model")
origin = Origin("Correlations", [request], {TITLES[what]: survey(target, setting, tasks, what)}, of)
if not found.scores or len(found.scores) < 2 and measured.n_known < len(tasks):
    show_failed(found.failed)
    sections.choose_method(menu, what != "ffns", label_visibility="visible")  # so that an address keeps it
    demo = demo_view("correlations", setup, N_COMPARED)
    width: Any = "stretch" if any(each.under_way for each in works) else "content"
    with empty_state("matrix", SHOWS, True, demo), st.container(width=width):
        live(watched, draw_work, since_s)
    closing(origin, Sheet())
    end_run()

live(watched, draw_work, since_s)
show_failed(found.failed)
every = compared(tables.digest(found), found)
scores, pairs = tables.rankings(found), tables.between_tasks(every)
of_counts, noun = pairs[pairs["kind"].eq("shots")], "FFN" if what == "ffns" else "head"
agreement = tables.ScoreAgreement(tables.of_tasks(every, shown), found.at(shown))
names = tables.names_in_order(agreement.pairs, ordered)
if names and works[-1].under_way:  # the matrix has its size from the start
    names = [*dict.fromkeys([*names, *task_names])]
here = [task for task in tasks if task.shots == shown and task in found.scores]
of_all = transfer(sections.COSTS, setup, target, here, what) if names and what in (EVEN, PAPERS) else None
tasks_at, pair_at, shared_at, head_at = sections.places(4, 0 < len(names) <= HALF)
title_at, costs = tasks_at.container(), None if of_all is None or measured.begun else of_all.rows
method = "srcc"
if names or not of_counts.empty:
    method = sections.choose_method(tasks_at, what != "ffns", costs is not None)
agrees = ONE_TASK.format(shots_in_words(shown))
if names:
    column = "srcc" if method == "cost" else method
    agrees = tables.ties_in_words(agreement, noun) or tables.takeaway(agreement.pairs, column, agreement.n, noun)
elif not of_counts.empty:
    agrees = f"{tables.few_in_words(of_counts, method)} {agrees}"
sheet = Sheet(tables={"Pairs of rankings": tables.csv_rows(every)}, says=[" ".join([*partly(measured, tasks), agrees])])
measure = sections.measure_of("within" if method == "cost" else method, pairs)
opens_with = [] if of_all is None or costs is None else [tables.label(name, shown) for name in of_all.costliest]
head = st.session_state.get(sections.HEAD, "")
pair = ("", "")
if len(found.scores) > 1:
    of_tasks = tables.labels(task_names, counts)
    pair = sections.draw_pair(pair_at, TITLES[what], of_tasks, pairs, scores, noun, opens_with, head, sheet)
said = agrees
if names:
    if method == "cost" and of_all is not None and costs is not None:
        title_at.subheader(sections.COSTS, help=sections.COSTS_HELP)
        said = sections.draw_costs(tasks_at, of_all, costs, pair, sheet)
        sheet.says.insert(0, said)
    else:
        title_at.subheader(measure.title, help=sections.TASKS_HELP)
        sections.draw_tasks(tasks_at, agreement, names, measure, pair, agrees, sheet)
    if not presenting():  # a slide is one screen, and this is below it
        sections.draw_shared(shared_at, head_at, agreement, head, sheet)
    if of_all is not None:
        if costs is None:
            sections.draw_costs_work(tasks_at, of_all, since_s)
        origin = replace(origin, measurements={**origin.measurements, sections.COSTS: of_all.work.of})
finding_at.markdown(" ".join([*partly(measured, tasks), said]))
if not of_counts.empty:
    sections.draw_counts(of_counts, pair, measure, sheet)
closing(origin, sheet)

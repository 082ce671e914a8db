"""The Correlations screen: how much the importance rankings of tasks and shot counts agree."""

import time
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from engine.requests import Correlate
from engine.studies.surveys import Survey, shots_in_words, survey
from pages.ui.controls.controls import one_of, settings_popover
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
from pages.ui.controls.sidebar import chosen, wait_for_model
from pages.ui.correlations import sections, tables, transfer
from pages.ui.downloads.footer import closing
from pages.ui.downloads.origin import Origin, about, of_grid, of_model, tasks_in_words
from pages.ui.figures.empty import empty_state, reading_state
from pages.ui.figures.sheet import Sheet
from pages.ui.importance.divisors import EVEN, GRADIENTS_HELP, PAPERS, draw_line
from pages.ui.page.address import rename_choice
from pages.ui.page.defaults import RANKING_QUESTIONS
from pages.ui.page.runtime import end_run, require_frame
from pages.ui.page.work import live

require_frame("pages/correlations.py")
TITLES = {EVEN: "Heads by gradient", PAPERS: "Heads by gradient (Bansal et al.)",
          "heads-oracle": "Heads by removal", "ffns": "FFNs"}  # fmt: skip
METHODS = {"srcc": "Spearman", "overlap": "top-30% overlap", "as_published": "of llm-interpret"}
ORDERS = {"chosen": "as chosen", "similarity": "by similarity"}
HOW = "shares"  # of the aggregate in the file
SCORES = {EVEN: "gradient", PAPERS: "Bansal et al.", "heads-oracle": "removal", "ffns": "removal"}
BESIDE = 9  # labels: up to this many, a matrix fits next to the two rankings
WHAT_HELP = (
    f"{GRADIENTS_HELP} Removal and FFNs: accuracy lost when just that one is pruned. With few questions, most tie: "
    "their order then says little."
)
METHOD_HELP = (
    "Spearman: rank correlation of the scores. Top-30% overlap: of the most important 30% of one ranking, the share "
    "that is among those of the other. Of llm-interpret: what the paper's code prints, for comparison only."
)
ORDER_HELP = "By similarity: tasks that agree are next to each other (average linkage on 1 − correlation)."
SETTINGS_HELP = "Coefficient and order of the tasks."
SHOWS = "You will see how far these tasks rank heads alike, and any two rankings head by head."
ONE_TASK = "The rankings of two tasks at {} are compared: choose another task, or measure it."


@st.cache_data(max_entries=8, show_spinner="Comparing the rankings")
def compared(digest: str, _found: Survey) -> pd.DataFrame:
    """Returns every pair of rankings; cached, as permutations of thousands of heads take seconds."""
    return tables.pair_rows(_found, HOW)


setup, finding_at = chosen(), reserve_finding("finding")
tasks = choose_tasks("correlations", st.container(), setup)
counts, task_names = sorted({task.shots for task in tasks}), list(dict.fromkeys(task.name for task in tasks))
row = st.container(horizontal=True, vertical_alignment="bottom", gap="small")  # wraps where narrow
older = {"Heads by one divisor": EVEN, "Heads as published": PAPERS, "Heads by Bansal et al.": PAPERS}
older |= {"Heads by oracle": "heads-oracle", "Heads by removal (oracle)": "heads-oracle"}
rename_choice(sections.WHAT, {before: TITLES[score] for before, score in older.items()})
what = one_of(row, "Importance", TITLES, sections.WHAT, WHAT_HELP, on_change=sections.chosen_outside)
shown = sections.choose_count(row, counts)
more_at = settings_popover(row, SETTINGS_HELP)
rename_choice("correlations_method", {"as published": METHODS["as_published"]})
method = one_of(more_at, "Coefficient", METHODS, "correlations_method", METHOD_HELP)
rename_choice("correlations_order", {"by name": ORDERS["chosen"]})
ordered = one_of(more_at, "Order", ORDERS, "correlations_order", ORDER_HELP)

target = wait_for_model(setup, prunes=True)
since_s, setting = time.monotonic(), setting_of(setup)
drawn = TITLES if len(task_names) <= sections.FEW else [what]  # a few tasks by every score that is stored
works = {each: importance_work(setting, target, tasks, each, f"correlations {each}", TITLES[each]) for each in drawn}
known = {each: so_far(of_score) for each, of_score in works.items()}
surveys = {each: Survey(one.preview(tasks), one.failed) for each, one in known.items()}
work, measured, found = works[what], known[what], surveys[what]
watched = [slot for each in works.values() for slot in each.watched()]
if measured.n_known < len(tasks) and what == EVEN:
    start_first_view(setup, tasks, [work])
line = partial(survey_line, work, len(tasks), measured, since_s, FirstMeasured("Measure importance", "primary"))
if reading := [each for each in works.values() if each.is_first_read]:
    finding_at.markdown("Reading the stored results.")
    with reading_state(*(("intervals", "ranks") if len(task_names) <= sections.FEW else ("matrix",))):
        live(watched, reading[0].reading_line, since_s)
    end_run()
request = Correlate(
    **of_model(target), **of_grid(tasks), task_data=setup.data_dir, score=what, aggregate=HOW, out="correlations.csv"
)
of = about(target, tasks_in_words(tasks), f"{RANKING_QUESTIONS} train questions each", "the full model")
origin = Origin("Correlations", [request], {TITLES[what]: survey(target, setting, tasks, what)}, of)
if not found.scores or len(found.scores) < 2 and measured.n_known < len(tasks):
    show_failed(found.failed)
    demo = demo_view("correlations", setup)
    width: Any = "stretch" if work.under_way else "content"
    with empty_state("matrix", SHOWS, True, demo), st.container(width=width):
        live(watched, line, since_s)
    closing(origin, Sheet())
    end_run()

live(watched, line, since_s)
show_failed(found.failed)
every = {each: compared(tables.digest(one), one) for each, one in surveys.items() if one.scores}
scores, pairs = tables.rankings(found), tables.between_tasks(every[what])
of_counts = pairs[pairs["kind"].eq("shots")]
by_score = {
    each: tables.ScoreAgreement(TITLES[each], SCORES[each], of_tasks, surveys[each].at(shown))
    for each, rows in every.items()
    if len(of_tasks := tables.of_tasks(rows, shown))
}
of_tasks = by_score[what].pairs if what in by_score else pairs[:0]
names = tables.names_in_order(of_tasks, ordered)
if method == "as_published":
    st.warning(tables.PUBLISHED, icon=":material/history_edu:")
noun = "FFN" if what == "ffns" else "Head"
said = ONE_TASK.format(shots_in_words(shown))
if names:
    across = tables.across_in_words(by_score, what) if method == "srcc" else ""
    said = across or tables.takeaway(of_tasks, method, by_score[what].n, noun, SCORES[what])
elif not of_counts.empty:
    said = f"{tables.few_in_words(of_counts, method)} {said}"
said = " ".join([*partly(measured, tasks), said])
finding_at.markdown(said)
rows = pd.concat([tables.csv_rows(one).assign(score=each) for each, one in every.items()])
sheet = Sheet(tables={"Pairs of rankings": rows}, says=[said])
sheet.says += draw_line(what, target, replace(setting, aggregate=HOW), found.scores)
tasks_at, pair_at = st.columns(2, gap="large") if 0 < len(names) <= BESIDE else (st.container(), st.container())
measure = sections.measure_of(method, pairs)
pair = ("", "")
if len(found.scores) > 1:
    pair = sections.draw_pair(pair_at, TITLES[what], tables.labels(task_names, counts), pairs, scores, noun, sheet)
if names:
    sections.draw_tasks(tasks_at, sections.TaskPairs(by_score, what, names, measure, shown), pair, said, sheet)
    if what != "ffns":
        is_gradient = what in (EVEN, PAPERS)
        sections.draw_link(tasks_at, transfer.stored_in_words(setup, target, tasks, shown, what) if is_gradient else "")
if not of_counts.empty:
    sections.draw_counts(of_counts, pair, measure, sheet)
closing(origin, sheet)

"""The Importance screen: which heads and FFNs a model needs, for every task and shot count."""

import time
from dataclasses import replace
from functools import partial
from typing import Any

import streamlit as st

from engine.importance.rankings import agreement
from engine.measurement import Measurement
from engine.requests import Correlate, ScoreImportance
from engine.studies.surveys import Survey, in_words, survey, together
from engine.timing.observed_timings import together_s
from pages.ui.comparison.second import second_model, with_second
from pages.ui.controls.controls import one_listed, one_of
from pages.ui.controls.heads import MOST, open_heads
from pages.ui.controls.many_tasks import (
    FEW_COUNTS,
    choose_tasks,
    importance_work,
    setting_of,
    show_failed,
    so_far,
    survey_line,
)
from pages.ui.controls.sidebar import chosen, wait_for_model
from pages.ui.downloads.footer import closing
from pages.ui.downloads.origin import Origin, about, of_grid, of_model, of_task, tasks_in_words
from pages.ui.figures.sheet import Sheet
from pages.ui.importance import charts, tables
from pages.ui.importance.beside import FirstImportance
from pages.ui.importance.beside import draw as draw_second
from pages.ui.importance.divisors import draw_line
from pages.ui.importance.tables import ORACLE, ORACLE_HEADS
from pages.ui.page.defaults import IN_SHORT, SAMPLE
from pages.ui.page.defaults import RANKING_QUESTIONS as N
from pages.ui.page.runtime import require_frame
from pages.ui.page.tables import for_file, magnitude, written
from pages.ui.page.work import Work, cost_in_words, live

require_frame("pages/importance.py")
SHORT = {"heads": "Gradient", "heads-one-divisor": "One divisor", "gate": "Gate", ORACLE: "Oracle"}
COMPARED = ("heads", "gate", ORACLE)
SCALES = {"own": "each its own", "common": "one for all"}
MEANS = {"scores": "of scores", "ranks": "of ranks"}
WHAT_HELP = (
    "Gradient: Bansal et al.'s, |z · dLoss/dz| summed over positions, the last layer divided by the answer's tokens "
    "alone. One divisor: the same, all layers divided by all positions. Gate: mean |dLoss/dgate|, Michel et al. "
    "Oracle: accuracy lost when just that head is pruned."
)
MEAN_HELP = "Of scores, a task with large gradients decides; of ranks, all count alike."
SCALE_HELP = "Up to each map's own highest score, or to the highest of all maps."
KINDS = {"heads": "Heads", "ffns": "FFNs"}


def agreement_lines(missing: list[Work[Survey]]) -> None:
    """Draws the progress of the comparison with the oracle, or the button that starts it."""
    help = f"Measures the missing scores: at most {n_heads + 1} evaluations of {N} train questions, and two gradients."
    if any([work.line() for work in missing]) or not missing:
        return
    label = f"Compare with the oracle{cost_in_words(together_s([work.takes_s() for work in missing]), 0.0)}"

    def start() -> None:
        for work in missing:
            work.restart()

    if st.button(label, icon=":material/balance:", help=help, key="compare", on_click=start):
        st.rerun()


setup = chosen()
tasks = choose_tasks("importance", st.container(), setup, FEW_COUNTS, few=True)
what_at, scale_at, mean_at, front_at = st.columns([30, 19, 17, 17])
what = one_of(what_at, "Head score", SHORT, "importance_what", WHAT_HELP)
scale = one_of(scale_at, "Color range", SCALES, "importance_scale", SCALE_HELP)
how = one_of(mean_at, "Mean", MEANS, "importance_mean", MEAN_HELP)
labels = {in_words(task): task for task in tasks}
help = "Its gradients are compared with the oracle below."
front = labels[one_listed(front_at, "Highlighted task", list(labels), "importance_front", help=help)]

target = wait_for_model(setup)
since_s, setting, n_heads = time.monotonic(), setting_of(setup), target.shape.n_heads_total
too_many = f"{n_heads:,} heads: the oracle takes {N} questions for each, and is offered up to {ORACLE_HEADS} heads."
found: dict[str, Survey] = {}
sheet = Sheet()
for kind, at in zip(KINDS, st.columns(2, gap="large"), strict=True):
    with at:
        if kind == "heads" and what == ORACLE and n_heads > ORACLE_HEADS:
            found[kind] = Survey()
            st.info(too_many, icon=":material/info:")
            continue
        by = what if kind == "heads" else kind
        work = importance_work(setting, target, tasks, by, f"importance {kind}", KINDS[kind])
        found[kind] = so_far(work)
        live(work.watched(), partial(survey_line, work, len(tasks), found[kind], since_s), since_s)
show_failed({**found["heads"].failed, **found["ffns"].failed})
if scores := found["heads"].scores:
    rows = tables.head_rows(scores)
    mean = tables.aggregate_rows(scores, together(replace(setting, aggregate=how), scores))
    sheet.tables |= {"Head importance": for_file(rows), "Mean head importance": for_file(mean)}
    sheet.says.append(words := tables.heads_in_words(mean, len(scores), how))
    st.markdown(words)
    sheet.says += draw_line(what, target, replace(setting, aggregate=how), scores)
    help = "Layer 0, next to the tokens, is the top row of each map."
    st.subheader(f"Heads by task :small[heads {IN_SHORT['heads']}]", help=help)
    shown = tables.shown_maps(list(scores), front, n_heads)
    if len(shown) < len(scores):
        some = f"Of {len(scores)} maps with {n_heads:,} heads each, too many to draw at once, these are"
        st.caption(f"{some} the {len(shown)} from the highlighted task on. The mean and the downloads hold all.")
        rows = tables.head_rows({task: scores[task] for task in shown})
    drawn = charts.score_maps(rows, charts.TITLES[what], scale == "common")
    sheet.draw("Heads by task", drawn, "importance_maps", words)
    map_at, top_at = st.columns([7, 5], gap="large")
    map_at.subheader(f"Mean {MEANS[how]}", help=f"Over all {len(scores)} maps, as one ranking for all tasks.")
    drawn = charts.aggregate_map(mean, f"Mean {MEANS[how]}", len(scores))
    sheet.draw("Mean of heads", drawn, "importance_mean_map", words, map_at)
    top_at.subheader("Most important", help="Rank 1 is the most important: pruning removes it last.")
    best = written(tables.best_first(mean, len(scores)), Mean=partial(magnitude, digits=3))
    top_at.dataframe(best, hide_index=True, height=330, alt=words)
    open_heads(mean.nsmallest(MOST, "rank")["name"].tolist(), top_at)
if scores := found["ffns"].scores:
    rows = tables.ffn_rows(scores)
    sheet.tables["FFN importance"] = for_file(rows)
    help = f"Accuracy lost without each; one of {N} questions is {100 / N:.1f} points."
    st.subheader(f"FFNs by task :small[feed-forward networks, one a layer, {IN_SHORT['ffns']}]", help=help)
    sheet.says.append(words := tables.ffns_in_words(rows))
    st.markdown(words)
    sheet.draw("FFNs by task", charts.ffn_map(rows), "importance_ffns", words)

beside, second = dict[str, Measurement[Any]](), second_model(setup)
if second is not None:
    first = FirstImportance(replace(setting, aggregate=how), target, tasks, front, what, found)
    beside = draw_second(first, second, sheet, since_s)

st.subheader(f"Gradient against oracle: {in_words(front)}", help="SRCC: Spearman's rank correlation over the heads.")
if n_heads > ORACLE_HEADS:
    st.caption(too_many)
else:
    named = {by: charts.TITLES[by] for by in COMPARED}
    three = {by: importance_work(setting, target, [front], by, f"agreement {by}", name) for by, name in named.items()}
    known = {by: so_far(work).scores.get(front) for by, work in three.items()}
    missing = [work for by, work in three.items() if known[by] is None]
    slots = [slot for work in three.values() for slot in work.watched()]
    live(slots, partial(agreement_lines, missing), since_s)
    if not missing:
        both = {by: found.scores for by, found in known.items() if found is not None}
        rows, agreed = tables.scatter_rows(both), agreement(both)
        sheet.tables["Gradient and oracle"] = rows
        for by, at in zip(("heads", "gate"), st.columns(2, gap="large"), strict=True):
            name = f"{charts.TITLES[by]} and oracle"
            at.markdown(words := tables.agreement_in_words(agreed, by, ORACLE))
            drawn = charts.agreement_scatter(rows, by)
            sheet.draw(name, drawn, f"importance agreement {by}", f"{name}: {words}", at)
model = dict[str, Any](of_model(target), task_data=setup.data_dir, score=what)
requests = [
    ScoreImportance(**model, **of_task(front), limit=N, sample=SAMPLE, out="heads.csv"),
    Correlate(**model, **of_grid(tasks), aggregate=how, out="all-tasks.csv"),
]
measurements = {KINDS[kind]: survey(target, setting, tasks, what if kind == "heads" else kind) for kind in KINDS}
of = about(target, tasks_in_words(tasks), f"{N} train questions each", "nothing pruned")
closing(with_second(Origin("Importance", requests, measurements, of, sheet.says), second, beside), sheet)

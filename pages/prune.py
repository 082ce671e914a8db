"""The Prune screen: choose a task and how much to prune, and see what is left of the accuracy."""

import time
from dataclasses import replace
from functools import partial

import streamlit as st

from engine.jobs import Snapshot
from engine.models.masks import parse_mask
from engine.questions.requests import TaskSpec
from engine.questions.tasks import task_info
from pages.ui.prune import costs, dragging, experiment, neighbours
from pages.ui.prune import parts as prune_parts
from pages.ui.prune import tables as frames
from pages.ui.prune.figure import component_tables, downloads
from pages.ui.shared.controls import choose_idle, choose_ranking, choose_task, type_mask
from pages.ui.shared.drag_slider import draw_field, draw_slider
from pages.ui.shared.runtime import errors_shown, jobs, require_frame, store
from pages.ui.shared.sidebar import chosen, identity, identity_slot
from pages.ui.shared.work import live, wait_for

require_frame("pages/prune.py")
HELP = {"heads": "A pruned head gives 0 to its layer's output projection.", "ffns": "A pruned FFN adds nothing."}


def ask_questions(slot: str, task: TaskSpec, priority: int, again: bool = False) -> Snapshot:
    """The job that renders the questions of a task, finished at once where they are stored."""
    run = partial(experiment.prepare, task, setup.data_dir, store())
    submitted = jobs().submit(slot, f"{task} {setup.data_dir}", run, priority, again)
    return jobs().join(slot, dragging.AT_ONCE_S) or submitted


def look(heads: int, ffns: int, typed_text: str) -> dragging.Shown:
    """What is known at these levels, in percent; what is not is being measured, unless a slider is in the hand."""
    identity(setup.spec)
    model = wait_for(identity_slot(setup.spec), "Reading the model's files", partial(identity, setup.spec, again=True))
    with errors_shown():
        typed, info = parse_mask(typed_text, model.shape), task_info(task.name)
    ask_questions("questions", task, 0)
    judged = wait_for("questions", "Preparing the questions", partial(ask_questions, "questions", task, 0, again=True))
    train = ask_questions("train questions", replace(task, split="train"), 1).value
    x = experiment.Experiment(
        setup.spec, setup.bos, setup.data_dir, model, judged, train, limit, ranking, 10 * heads, 10 * ffns, typed, width
    )  # fmt: skip
    if st.session_state.get("prune all of") == replace(x, width=0).key:
        x = replace(x, width=0)
    known = experiment.recall_known(x, store())
    mask = x.mask(known)
    stored = experiment.recall_measured(x, mask, store())
    if x.settled(stored):
        jobs().drop("accuracy")
    elif not dragging.moving() and not postponed:
        dragging.measure(x, mask)
        dragging.await_first_figure()
    return dragging.Shown(x, info.title, known, mask, stored, *dragging.latest_estimates(), postponed)


@st.fragment
def draw_levels() -> None:
    """The sliders and what follows them. While one moves this alone runs, and nothing is read or measured for it."""
    global shown
    places = st.columns([4, 4, 3], gap="medium")
    labels = zip(prune_parts.AXES.items(), places, strict=False)
    fields = [draw_field(at, f"prune_{axis}", label, with_texts=True) for (axis, label), at in labels]
    typed_text = type_mask("prune", places[2])
    if not whole and (shown is None or not dragging.moving()):
        st.rerun()  # something is set: the whole page has to know
    figure_at, curve_at = st.columns([4, 7], gap="large")
    try:
        if whole:
            shown = look(*(field.percent for field in fields), typed_text)
        if dragging.moving():
            dragging.let_go_of(shown.x)
        with figure_at:  # before all else: whatever the browser draws, the figure would wait behind it
            draw_result = partial(prune_parts.draw_result, shown)
            live(["accuracy", "train questions"], draw_result, since_s, dragging.FIGURE_S, always=shown.postponed)
        if whole and not shown.postponed:
            shown.estimates, shown.waits = dragging.look_ahead(shown.x, shown.known)
    finally:  # the sliders are there while the rest is waited for
        for axis, field in zip(dragging.AXES, fields, strict=True):
            draw_slider(field, HELP[axis], True, {} if shown is None else shown.texts(axis))
    with curve_at:  # apart from the figure: a chart takes long to build, and the worker would wait for it
        chart_at, idle = st.container(), choose_idle("prune")
        if whole:
            shown.idle = dragging.idle_work(shown, since_s) if idle else neighbours.stop()
        slots, goes_on = ["curve", "gradients", neighbours.SLOT], shown.idle is not None and shown.idle.wanted
        with chart_at:
            draw_curve = partial(prune_parts.draw_curve, shown, pictures)
            live([*slots, *shown.waits], draw_curve, since_s, always=goes_on)
    tables.update(prune_parts.draw_components(shown, pictures))


setup = chosen()
task_at, ranking_at = st.columns([57, 15])
with errors_shown():
    task, limit, width = choose_task("prune", task_at, setup.data_dir)
ranking = choose_ranking("prune", ranking_at)
since_s, pictures, tables = time.monotonic(), {}, {}
shown: dragging.Shown = None  # type: ignore[assignment]
whole, postponed = True, dragging.nothing_drawn_yet()
draw_levels()
whole = False  # the next time, it is the sliders' fragment that runs
live(["importance"], partial(prune_parts.draw_importance, shown), since_s)
cost_at = st.expander("What pruning saves", key="prune_cost", on_change="rerun", bind="query-params")
if cost_at.open:
    with cost_at:
        live([costs.SLOT], partial(costs.draw_costs, shown), since_s)
table_at = st.expander("The same as tables", key="prune_tables", on_change="rerun")
if table_at.open:
    component_tables(table_at, tables["Heads"], tables["FFNs"])
st.code(experiment.command(shown.x, shown.job()[1]), language="shell", wrap_lines=True)
files = {"Questions and choices": partial(frames.answers_csv, shown.stored)}
downloads(files | {name: partial(frames.to_csv, frame) for name, frame in tables.items()}, pictures)
st.session_state["prune drawn"] = True

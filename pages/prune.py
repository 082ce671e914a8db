"""The Prune screen: choose a task and how much to prune, and see what is left of the accuracy."""

import time
from dataclasses import replace
from functools import partial

import streamlit as st

from engine.jobs import Snapshot
from engine.masks import parse_mask
from engine.requests import TaskSpec
from engine.tasks import task_info
from pages.ui import charts, experiment, frames
from pages.ui.controls import choose_level, choose_ranking, choose_task, type_mask
from pages.ui.figures import accuracy_figure, component_tables, downloads
from pages.ui.frame import errors_shown, jobs, models, require_frame, store
from pages.ui.live import live, progress_line, unfinished_line, wait_for
from pages.ui.sidebar import chosen, identity, identity_slot

require_frame("pages/prune.py")
AT_ONCE_S = 0.2  # what is stored shows within the same run
AXES = {"heads": "Attention heads pruned", "ffns": "FFNs pruned"}
HELP = {"heads": "A pruned head gives 0 to its layer's output projection.", "ffns": "A pruned FFN adds nothing."}


def ask_questions(slot: str, task: TaskSpec, priority: int, again: bool = False) -> Snapshot:
    """The job that renders the questions of a task, finished at once where they are stored."""
    run = partial(experiment.prepare, task, setup.data_dir, store())
    submitted = jobs().submit(slot, f"{task} {setup.data_dir}", run, priority, again)
    return jobs().join(slot, AT_ONCE_S) or submitted


setup = chosen()
task_at, ranking_at = st.columns([11, 3])
levels = st.columns([4, 4, 3], gap="medium")
with errors_shown():
    task, limit = choose_task("prune", task_at, setup.data_dir)
ranking = choose_ranking("prune", ranking_at)
heads, ffns = (choose_level("prune", at, axis, AXES[axis], HELP[axis]) for axis, at in zip(AXES, levels, strict=False))
typed_text = type_mask("prune", levels[2])

identity(setup.spec)
model = wait_for(identity_slot(setup.spec), "Reading the model's files", partial(identity, setup.spec, again=True))
with errors_shown():
    typed, info = parse_mask(typed_text, model.shape), task_info(task.name)
ask_questions("questions", task, 0)
judged = wait_for("questions", "Preparing the questions", partial(ask_questions, "questions", task, 0, again=True))
train = ask_questions("train questions", replace(task, split="train"), 1).value
x = experiment.Experiment(
    setup.spec, setup.bos, setup.data_dir, model, judged, train, limit, ranking, heads, ffns, typed
)  # fmt: skip
since_s = time.monotonic()
known = experiment.recall_known(x, store())
mask = x.mask(known)
stored = experiment.recall_measured(x, mask, store())
measure = partial(jobs().submit, "accuracy", x.key, partial(experiment.measure, x, models(), store()))
if stored.complete(x.selection.n):
    jobs().drop("accuracy")
else:
    measure()
    jobs().join("accuracy", AT_ONCE_S)


def result() -> tuple[Snapshot | None, experiment.Measured]:
    """This experiment's job, if it has one, and the answers so far."""
    job = jobs().snapshot("accuracy")
    job = job if job is not None and job.key == x.key else None
    return job, job.value if job is not None and job.value is not None else stored


def draw_result() -> None:
    """The figure, redrawn while it is measured."""
    job, measured = result()
    accuracy_figure(info.title, measured, x.selection.n, frames.mask_in_words(x, mask))
    if job is not None:
        progress_line("accuracy", job, "Accuracy", partial(measure, again=True))
    elif not stored.complete(x.selection.n):
        st.caption("Another tab has taken over the measuring. Change any control to go on here.")


def draw_curve() -> None:
    """Accuracy over the levels of one axis, and the job that measures them all."""
    _, measured = result()
    axis = st.segmented_control(
        "Curve over", list(AXES), format_func=AXES.get, default="heads", key="prune_axis", required=True,
        help="Which of the two levels runs along the chart; the other stays where it is.",
    )  # fmt: skip
    points, now = frames.curve_points(x, axis, known, store()), frames.now_point(x, axis, measured, mask)
    chart = charts.accuracy_curve(points, now, frames.full_accuracy(measured), judged.chance, AXES[axis])
    pictures["Curve"] = chart
    st.altair_chart(chart, key="prune_curve", alt=frames.points_in_words(points, AXES[axis]))
    key = x.curve_key(axis)
    run = partial(experiment.measure_curve, x, axis, models(), store())
    start = partial(jobs().submit, "curve", key, run, priority=1)
    if unfinished_line("curve", key, "Curve", start):
        return
    if len(points) < len(experiment.LEVELS_PERMILLE) and st.button(
        "Measure the curve", icon=":material/timeline:", help="Every tenth of this level, in the background."
    ):
        start()
        st.rerun()


def draw_importance() -> None:
    """The job that scores what is not scored yet."""
    run = partial(experiment.measure_importance, x, models(), store())
    start = partial(jobs().submit, "importance", x.base_key, run, priority=1)
    if unfinished_line("importance", x.base_key, "Importance", start):
        return
    if (known.heads is None or known.ffns is None) and st.button(
        "Measure importance", icon=":material/insights:", help="Heads by gradient, FFNs by leaving each out once."
    ):
        start()
        st.rerun()


pictures = {}
figure_at, curve_at = st.columns([4, 7], gap="large")
with figure_at:
    live(["accuracy", "train questions"], draw_result, since_s)
with curve_at:  # apart from the figure: a chart takes long to build, and the worker would wait for it
    live(["curve"], draw_curve, since_s)
heads_frame, ffns_frame = frames.head_frame(x, known, mask), frames.ffn_frame(x, known, mask)
pictures["Heads"] = charts.head_map(heads_frame)
pictures["FFNs"] = charts.ffn_bars(ffns_frame)
map_at, bars_at = st.columns([7, 4], gap="large")
with map_at:
    st.subheader(
        "Attention heads",
        help="Layer 0 is next to the tokens. A cross marks a pruned head.",
    )
    st.altair_chart(pictures["Heads"], key="prune_map", alt=frames.components_in_words(heads_frame, "heads"))
    st.caption(frames.components_in_words(heads_frame, "heads"))
with bars_at:
    st.subheader("FFNs", help="Accuracy lost on the train questions without this FFN. A cross marks a pruned one.")
    st.altair_chart(pictures["FFNs"], key="prune_bars", alt=frames.components_in_words(ffns_frame, "FFNs"))
    st.caption(frames.components_in_words(ffns_frame, "FFNs"))
live(["importance"], draw_importance, since_s)
tables = st.expander("The same as tables", key="prune_tables", on_change="rerun")
if tables.open:
    component_tables(tables, heads_frame, ffns_frame)
st.code(experiment.command(x), language="shell", wrap_lines=True)
files = {"Questions and choices": partial(frames.answers_csv, stored)}
files |= {"Heads": partial(frames.to_csv, heads_frame), "FFNs": partial(frames.to_csv, ffns_frame)}
downloads(files, pictures)

"""The parts of the Prune screen that follow its sliders: figure, curve, map and bars, and what is left to measure."""

from dataclasses import replace
from functools import partial

import altair as alt
import pandas as pd
import streamlit as st

from pages.ui.prune import dragging, estimates, experiment
from pages.ui.prune import tables as frames
from pages.ui.prune.dragging import Shown
from pages.ui.prune.experiment import Axis
from pages.ui.prune.figure import accuracy_figure, draw_chart, estimate_figure
from pages.ui.shared import charts
from pages.ui.shared.runtime import jobs, models, store
from pages.ui.shared.work import progress_line, unfinished_line

AXES: dict[Axis, str] = {"heads": "Attention heads pruned", "ffns": "FFNs pruned"}


def draw_result(shown: Shown) -> None:
    """The figure, redrawn while it is measured, or what is known of where the hand is."""
    if axes := dragging.moving():
        x = shown.at_hand()
        line = shown.estimates.line(x, axes[0])
        estimate_figure(shown.title, line, x.level(axes[0]), frames.mask_in_words(x, x.mask(shown.known)))
        return
    if shown.postponed and shown.drawn:  # a timer's run: the browser has drawn the page
        st.rerun()
    shown.drawn = True
    dragging.await_last_answers(shown.x)
    (job, measured), x = shown.job(), shown.x
    is_full = shown.mask is not None and shown.mask.is_full
    accuracy_figure(shown.title, measured, x.selection.n, frames.mask_in_words(x, shown.mask), is_full)
    if job is not None:
        progress_line("accuracy", job, "Accuracy", partial(dragging.measure, x, shown.mask, again=True))
    elif not x.settled(shown.stored) and not shown.postponed:
        st.caption("Another tab has taken over the measuring. Change any control to go on here.")
    if x.settled(measured) and x.n_taken(measured) < x.selection.n:
        draw_stopped(x, measured)


def draw_stopped(x: experiment.Experiment, measured: experiment.Measured) -> None:
    """Says that the chosen width is reached, and offers to go on."""
    st.caption(f"Stopped after {x.n_taken(measured):,} of {x.selection.n:,} questions: the interval is within "
               f"± {x.width} points.")  # fmt: skip
    if st.button(f"Measure all {x.selection.n:,}", icon=":material/play_arrow:", help="At this level alone."):
        st.session_state["prune all of"] = replace(x, width=0).key
        st.rerun()


def draw_curve(shown: Shown, pictures: dict[str, alt.LayerChart]) -> None:
    """Accuracy over the levels of one axis, measured and estimated, and the job that measures them all."""
    (_, measured), x, moving = shown.job(), shown.at_hand(), dragging.moving()
    axis = st.segmented_control(
        "Curve over", list(AXES), format_func=AXES.__getitem__, default="heads", key="prune_axis", required=True,
        help="Which of the two levels runs along the chart; the other stays where it is.",
    )  # fmt: skip
    if shown.idle is not None and not moving:
        shown.idle.look_in()
    points, line, hand = shown.curve(axis), shown.estimates.line(x, axis), None
    now = frames.now_point(x, axis, measured, shown.mask)
    if moving:
        points = points if x.curve_key(axis) == shown.x.curve_key(axis) else points[:0]
        now = points[points["level"] == x.level(axis) / 1000]
        if now.empty:
            along = shown.estimates.line(x, moving[0])
            hand = estimates.hand_frame(along, x.level(moving[0]), x.level(axis))
    chart = charts.accuracy_curve(
        points, now, frames.full_accuracy(measured), x.judged.chance, AXES[axis], estimates.line_frame(line), hand
    )  # fmt: skip
    pictures["Curve"] = chart
    draw_chart(chart, "prune_curve", frames.points_in_words(points, AXES[axis]))
    st.caption(estimates.in_words(shown.x, shown.estimates, line, x.level(axis)))
    if unfinished_line(
        "gradients", dragging.gradients_key(x), "Estimates", partial(dragging.measure_gradients, shown.x)
    ):  # fmt: skip
        return
    if shown.idle is not None and (words := shown.idle.in_words()):
        st.caption(words)
    key = shown.x.curve_key(axis)
    run = partial(experiment.measure_curve, shown.x, axis, models(), store())
    start = partial(jobs().submit, "curve", key, run, priority=1)
    if unfinished_line("curve", key, "Curve", start):
        return
    if len(points) < len(experiment.LEVELS_PERMILLE) and st.button(
        "Measure the curve", icon=":material/timeline:", help="Every tenth of this level, in the background."
    ):
        start()
        st.rerun()


def draw_components(shown: Shown, pictures: dict[str, alt.LayerChart]) -> dict[str, pd.DataFrame]:
    """The map of heads and the bars of FFNs, with what is pruned where the hand is; gives their frames."""
    x = shown.at_hand()
    mask = x.mask(shown.known) if dragging.moving() else shown.mask
    heads, ffns = frames.head_frame(x, shown.known, mask), frames.ffn_frame(x, shown.known, mask)
    pictures["Heads"], pictures["FFNs"] = charts.head_map(heads), charts.ffn_bars(ffns)
    map_at, bars_at = st.columns([7, 4], gap="large")
    with map_at:
        st.subheader("Attention heads", help="Layer 0 is next to the tokens. A cross marks a pruned head.")
        words = frames.components_in_words(heads, "heads")
        draw_chart(pictures["Heads"], "prune_map", words)
        st.caption(words)
    with bars_at:
        st.subheader("FFNs", help="Accuracy lost on the train questions without this FFN. A cross marks a pruned one.")
        words = frames.components_in_words(ffns, "FFNs")
        draw_chart(pictures["FFNs"], "prune_bars", words)
        st.caption(words)
    return {"Heads": heads, "FFNs": ffns}


def draw_importance(shown: Shown) -> None:
    """The job that scores what is not scored yet."""
    x, known = shown.x, shown.known
    run = partial(experiment.measure_importance, x, models(), store())
    start = partial(jobs().submit, "importance", x.base_key, run, priority=1)
    if unfinished_line("importance", x.base_key, "Importance", start):
        return
    if (known.heads is None or known.ffns is None) and st.button(
        "Measure importance", icon=":material/insights:", help="Heads by gradient, FFNs by leaving each out once."
    ):
        start()
        st.rerun()

"""The parts of the Prune screen that follow its slider, at rest, and the measurements still missing."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import streamlit as st

from engine.accuracy.evaluation import accuracy
from engine.models.masks import Mask
from engine.questions.tasks import OWN_SUFFIXES
from engine.views.accuracy import published_in_words
from engine.views.estimates import describe_preview
from engine.views.questions import example_words
from pages.ui.controls.coloring import choose_coloring
from pages.ui.controls.first_views import first_tasks
from pages.ui.controls.many_tasks import local_tasks
from pages.ui.controls.study_bar import draw_pruned
from pages.ui.controls.task import draw_fault, draw_remarks
from pages.ui.page.defaults import AXES, LEVELS
from pages.ui.page.marks import counts, mark
from pages.ui.page.tables import plain, whole_percent
from pages.ui.page.work import Work
from pages.ui.prune import charts, estimates, head_map, orders, schedule, stories, tables
from pages.ui.prune.estimates import estimates_work, gradients_work
from pages.ui.prune.experiment import AnswersSoFar, Experiment, accuracy_work, forecast
from pages.ui.prune.figure import draw_standing
from pages.ui.prune.orders import ranking_work
from pages.ui.prune.second_model import with_points_of_second
from pages.ui.prune.state import PruneState
from pages.ui.prune.stories import curve_works

COLORING = "importance"  # a slot
CLICK = "Click one to prune or restore it. The last column: the FFN of the layer."
OUTLINED = "Outlined: induction heads. "
RANKED = "prune ranked"  # in the session: the last experiment that was drawn again as its job had ranked
NONE_RIGHT = "None is right: does `gold` count from 0, and does each choice continue its context?"
NONE_WRITTEN = "None is right: is each answer just what follows the question, in the same case?"
MOST_LINKS = 4  # to heads, side by side
N_OTHERS = 2  # tasks to try in place of one that the model does not do
MAP_HELP = (
    "Layer 0 is next to the tokens. A click prunes or restores, with Shift all heads of the layer; so do arrow keys "
    "and Enter. “Prune these as well” under Settings has the clicked ones. Heads and FFNs are shaded by their top."
)


def draw_figure(state: PruneState) -> None:
    """Draws the accuracy, again while it is measured, and what is to be said of its questions."""
    schedule.await_last_answers(state)
    measured, x = state.answers, state.x
    if state.mask is None and measured.mask is not None and is_first_draw_since_ranked(x.key):
        st.rerun()  # map and badge are of this mask too, and are not drawn here
    published, mask = published_in_words(x.target, x.task), state.mask or measured.mask
    draw_standing(state.title, state.standing, [published] if published else [])
    answers = measured.full if mask is not None and mask.is_full else measured.pruned
    progress = "measured" if x.is_complete(measured) else "measuring"
    mark("figure", progress, questions=len(answers or ()), of=x.questions.n, **counts(mask))
    _draw_remarks(state)
    if (job := (work := accuracy_work(x, state.mask)).now()) is not None:
        work.line()
        draw_fault(job.details)
    elif orders.awaits_rows(x, state.known):
        st.caption("Preparing the train questions …")
    orders.draw_long_order(x, state.known, state.axis)


def is_first_draw_since_ranked(key: str) -> bool:
    """Returns whether an experiment, by its key, is drawn for the first time since its job has ranked."""
    last, st.session_state[RANKED] = st.session_state.get(RANKED), key
    return last != key


def _draw_remarks(state: PruneState) -> None:
    """Draws what is to be said of the questions, and of a task that the model does not do."""
    x, full = state.x, state.answers.full
    if x.task.name.endswith(OWN_SUFFIXES) and x.train is not None:
        asked = f"{len(x.validation.questions):,} of your rows are asked"
        st.caption(f"{asked}, {len(x.train.questions):,} others are for examples and the order.")
        if x.has_all(full) and full is not None and not full.correct.any():
            st.markdown(NONE_WRITTEN if x.validation.greedy else NONE_RIGHT)
    elif x.has_all(full) and full is not None and accuracy(full).ci_low <= x.validation.chance:
        others = [name for name in local_tasks(x.data_dir) if name != x.task.name]
        tried = " or ".join(map(plain, first_tasks(others, x.target.spec.is_demo, N_OTHERS)))
        right = f"{whole_percent(accuracy(full).acc)}, chance {whole_percent(x.validation.chance)}"
        st.markdown(f":orange[{right}: this model does not do this task; try {tried}]")
    draw_remarks(x.validation)
    if kept := x.validation.labels_kept:
        st.caption(f"{whole_percent(kept)} of the examples keep their true answer: too few answers differ.")


def draw_badge(state: PruneState) -> None:
    """Draws what is pruned, as a badge."""
    draw_pruned(st.container(), state.x.shape, state.mask)


def draw_question(state: PruneState) -> None:
    """Draws one of the questions."""
    with st.container():
        draw_example(state.x, state.answers)


def draw_example(x: Experiment, measured: AnswersSoFar) -> None:
    """Draws the first question that pruning loses, or the first one."""
    full, pruned = measured.full, measured.pruned
    lost: list[int] = []
    if full is not None and pruned is not None:
        n = min(len(full), len(pruned))
        lost = np.flatnonzero(full.correct[:n] & ~pruned.correct[:n]).tolist()
    place = lost[0] if lost else 0
    [question] = x.questions.at(x.questions.order[place : place + 1])
    st.markdown(example_words(x.task, place, question, bool(lost), full, pruned))


def draw_curve(state: PruneState) -> None:
    """Draws accuracy over the levels, measured and estimated, and the jobs that measure what is missing."""
    x, axis = state.x, state.axis
    draw_curve_of(state, x.pruning.level(axis), tables.now_point(x, axis, state.answers, state.mask))
    estimating, found = gradients_work(x), estimates_work(x, axis, state.known).job_value
    if any(ranking_work(x, each).line() for each in AXES) or estimating.line():
        return
    is_missing = found is not None and not found.has_gradients
    if is_missing and state.is_complete and estimating.now() is None:
        about = "A backward pass for each choice: then the figure follows while a slider moves, as an estimate."
        estimating.offer("Measure estimates", "show_chart", about)
    for work in curve_works(state):
        work.line()


def draw_curve_of(state: PruneState, level: int, now: pd.DataFrame, hollow: pd.DataFrame = charts.NONE) -> None:
    """Draws the curve at a level; `now` is the measured point there, `hollow` an estimate in its place."""
    x, axis, points = state.x, state.axis, state.points
    line, starting_from = state.estimates, tables.starting_from(x, axis)
    words = tables.points_in_words(points, LEVELS[axis]) + (f" The curve is{starting_from}." if starting_from else "")
    guessed = tables.guesses_in_words(x, axis, points)
    if state.second_model is not None:
        points, now = with_points_of_second(state, points, now)
        words += f" {state.second_model.second}: {tables.points_in_words(state.second_model.points, LEVELS[axis])}"
    full, dashed = tables.full_accuracy(x, state.answers), (estimates.line_frame(line), hollow)
    first_loss = stories.marked_level(x, state.curve)
    title, chance = LEVELS[axis] + starting_from, x.validation.chance
    drawn = charts.accuracy_curve(points, now, full, chance, title, dashed, state.around.frames, first_loss)
    state.sheet.draw("Curve", drawn, "prune_curve", words)
    if guessed:
        st.caption(guessed)
    if preview := describe_preview(line, level):
        st.caption(preview[0], help=preview[1])
    n_dashed = sum(each.shown for each in line.estimated.values())
    mark("curve", "estimated" if line.estimated else "measured", levels=len(points), dashed=n_dashed)


def draw_map(state: PruneState) -> None:
    """Draws the map of heads and FFNs."""
    draw_map_of(state, state.mask)


def draw_map_of(state: PruneState, mask: Mask | None) -> None:
    """Draws the map under a mask."""
    x, coloring, shown = state.x, state.coloring, mask or state.x.pruning.typed.alone
    frame = tables.component_frame(x.shape, coloring, shown, state.induction_heads)
    head_map.click_on(x.shape, x.by_levels(state.known))
    words = tables.UNRANKED if mask is None else tables.components_in_words(x.shape, frame, mask, coloring.titles)
    outlined = OUTLINED if state.induction_heads else ""
    st.subheader(tables.MAP, help=MAP_HELP)
    head_map.draw_map(frame, coloring, f"{words} {outlined}".strip(), shown.layers_dropped)
    choose_coloring(st.container())
    st.caption(f"{outlined}{CLICK}")
    kept = np.array(x.pruning.typed.alone.heads).ravel()
    if x.pruning.typed.text():  # those that were clicked or typed
        _draw_links([name for name, stays in zip(x.shape.head_names, kept, strict=True) if not stays])


def _draw_links(heads: Sequence[str]) -> None:
    """Draws links from the first few of these heads to the Heads screen."""
    with st.container(horizontal=True, gap="small"):
        for name in heads[:MOST_LINKS]:
            label, icon = f"Open {name} on Heads", ":material/pageview:"
            st.page_link("pages/heads.py", label=label, icon=icon, query_params={"head": name})


def draw_coloring(state: PruneState) -> None:
    """Draws the job that measures the missing scores of the map."""
    x, coloring = state.x, state.coloring
    work = Work(COLORING, coloring.titles[0], coloring.measures, 1, takes=forecast(x), about=x.task.title)
    is_missing = coloring.heads is None or coloring.ffns is None and coloring.titles[1]
    if not work.line() and is_missing:
        work.offer(f"Measure {coloring.titles[0].lower()}", "insights", "In the background. Finished work is kept.")

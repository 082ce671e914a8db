"""The sections of the Correlations screen: matrices that can be clicked, two rankings in detail, shot counts; drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from engine.importance.rankings import n_top
from engine.studies.surveys import shots_in_words
from pages.ui.correlations import charts, tables
from pages.ui.figures.charts import Picture
from pages.ui.figures.drawing import draw_chart
from pages.ui.figures.sheet import Sheet
from pages.ui.page.address import one_among, put_right
from pages.ui.page.streamlit_internals import DeltaGenerator

SHOWN_HELP = "Examples in the prompt of each question (shots), in the matrices of tasks."
TASKS_HELP = (
    "The aggregate is over these tasks, so each agrees with it in part because it is in it. Random: one random order. "
    "A dash: undefined."
)
OVERLAP_HELP = "Of the most important 30% of one ranking, the share that is among those of the other. By chance {:.2f}."
SIDES, VIEWS, TURNS = ("correlations_a", "correlations_b"), ("tasks", "overlap", "counts"), "correlations_turns"


def choice(key: str, options: Sequence[Any], draw: "partial[Any]", **more: Any) -> Any:
    """Returns the choice of a control whose options depend on others; one that no longer exists is forgotten."""
    if st.session_state.get(key) not in options:
        st.session_state.pop(key, None)
    put_right(key, draw.args[0], one_among(map(draw.keywords.get("format_func", str), options)))
    return draw(options=options, key=key, bind="query-params", **more)


def choose_count(where: DeltaGenerator, counts: Sequence[int]) -> int:
    """Draws the choice of the matrices' shot count, the largest by default; nothing if there is only one."""
    key, label, largest = "correlations_shown", "Matrix at", counts[-1]
    if len(counts) == 1:
        put_right(key, label, one_among([shots_in_words(largest)]))
        return largest
    look: dict[str, Any] = {"default": largest, "format_func": shots_in_words, "required": True, "help": SHOWN_HELP}
    return choice(key, counts, partial(where.segmented_control, label, **look))


def draw_pair(
    at: DeltaGenerator,
    labels: Sequence[str],
    pairs: pd.DataFrame,
    scores: Mapping[str, np.ndarray],
    noun: str,
    sheet: Sheet,
) -> tuple[str, str]:
    """Draws the choice of two rankings and their scatter; returns their labels."""
    title = f"Compare two rankings (one dot per {tables.NOUNS[noun]})"
    at.subheader(title, help="Click a cell of any matrix, or choose them here.")
    sides_at, scatter_at = at.columns([5, 7], gap="large")
    more: dict[str, Any] = {"on_change": _chosen_outside, "help": "Task and shots."}
    first = choice(SIDES[0], labels, partial(sides_at.selectbox, "Ranking"), **more)
    second = choice(SIDES[1], [*labels[1:], labels[0]], partial(sides_at.selectbox, "and ranking"), **more)
    if missing := [side for side in (first, second) if side not in scores]:
        sides_at.caption(f"Not measured yet: {'; '.join(missing)}.")
        return first, second
    sides_at.markdown(said := tables.pair_in_words(pairs, scores, first, second))
    scatter = charts.rank_scatter(tables.rank_rows(scores[first], scores[second]), first, second, noun)
    sheet.draw("Two rankings", scatter, "correlations_pair", f"{first}; {second}. {said}", scatter_at)
    return first, second


@dataclass(frozen=True)
class TaskPairs:
    """Every two tasks at one shot count, and how they are compared."""

    rows: pd.DataFrame  # one row per pair
    names: Sequence[str]  # of the tasks, in order
    method: str  # of the correlation
    shots: int  # the shot count
    n: int  # components in each ranking
    own_scale: bool  # colors are scaled to the data


def draw_tasks(
    tasks_at: DeltaGenerator, overlap_at: DeltaGenerator, of: TaskPairs, pair: tuple[str, str], sheet: Sheet
) -> None:
    """Draws the matrices of tasks: the coefficient and the overlap."""
    tasks_at.subheader(tables.label(charts.MEASURES[of.method].title, of.shots), help=TASKS_HELP)
    overlap_at.subheader(tables.label("Top-30% overlap", of.shots), help=OVERLAP_HELP.format(n_top(of.n) / of.n))
    for view, at, column in (("tasks", tasks_at, of.method), ("overlap", overlap_at, "overlap")):
        cells = tables.cells(of.rows, column)
        drawn = charts.matrix(cells, of.names, pair, scaled(charts.MEASURES[column], cells, of.own_scale))
        _clickable(view, at, drawn, tables.takeaway(of.rows, column, of.n))
        sheet.pictures[view.capitalize()] = drawn


def draw_counts(
    at: DeltaGenerator, of_counts: pd.DataFrame, pair: tuple[str, str], method: str, own_scale: bool, sheet: Sheet
) -> None:
    """Draws the matrices of shot counts: their mean over tasks, and each task's."""
    cross = tables.count_cells(of_counts, method)
    sides = [str(count) for count in sorted({*cross["shots_a"], *cross["shots_b"]})]
    measure = scaled(charts.MEASURES[method], cross, own_scale)
    at.subheader("Across shot counts", help="A task's rankings with different numbers of examples in the prompt.")
    at.markdown(says := tables.few_in_words(of_counts, method))
    mean_at, each_at = at.columns([3, 8], gap="medium")
    mean = charts.mean_matrix(tables.mean_cells(cross), sides, measure)
    sheet.draw("Mean of tasks", mean, "correlations_counts", says, mean_at)
    each = charts.small_matrices(cross, sorted(set(cross["at"])), sides, pair, measure)
    _clickable("counts", each_at, each, says)
    sheet.pictures["Shot counts"] = each


def scaled(measure: charts.Measure, cells: pd.DataFrame, own_scale: bool) -> charts.Measure:
    """Returns the measure with colors scaled to the data, or over the full range."""
    return measure.within(cells) if own_scale else measure


def _chosen_outside(view: str | None = None) -> None:
    """Clears the other matrices' clicks by changing their keys."""
    turns = st.session_state.get(TURNS, {})
    st.session_state[TURNS] = {each: turns.get(each, 0) + (each != view) for each in VIEWS}


def _clickable(view: str, at: DeltaGenerator, matrix: Picture, words: str) -> None:
    """Draws a matrix; a click in it chooses the two rankings."""
    own = f"correlations {view} {st.session_state.get(TURNS, {}).get(view, 0)}"

    def clicked() -> None:
        if points := st.session_state[own]["selection"].get("pair"):
            st.session_state[SIDES[0]], st.session_state[SIDES[1]] = points[0]["first"], points[0]["second"]
            _chosen_outside(view)

    draw_chart(matrix, own, words, at, on_select=clicked, selection_mode="pair")

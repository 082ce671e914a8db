"""The sections of the Correlations screen: matrices that can be clicked, two rankings in detail, shot counts; drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from engine.studies.surveys import shots_in_words
from pages.ui.correlations import charts, tables
from pages.ui.figures.charts import Picture
from pages.ui.figures.drawing import draw_chart, draw_table
from pages.ui.figures.sheet import Sheet
from pages.ui.page.address import one_among, put_right
from pages.ui.page.streamlit_internals import DeltaGenerator

SHOWN_HELP = "Examples in the prompt of each question (shots), in the matrices of tasks."
FEW = 3  # tasks: a matrix of no more has three cells
TASKS_HELP = (
    "Every two tasks once. Up to three tasks: a dot for every two, with its 95% interval. Hollow dot: the mean over "
    "layers of the rank correlation of one layer's heads. Of unrelated rankings, 95% are within ± the dashed line."
)
PAIR_HELP = (
    "One dot per {0}. Click two tasks on the left, or choose two here. On the diagonal, both rank a {0} alike. Left of "
    "one dashed line are the top 30% of the first ranking, under the other line those of the second."
)
APART_HELP = "Accuracy lost when just that one is pruned. Ties: another loses as much on this task."
TRANSFER = {"sweeps_what": "Transfer"}
WHAT = "correlations_what"
SIDES, VIEWS, TURNS = ("correlations_a", "correlations_b"), ("tasks", "counts"), "correlations_turns"


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
    title: str,
    labels: Sequence[str],
    pairs: pd.DataFrame,
    scores: Mapping[str, np.ndarray],
    noun: str,
    sheet: Sheet,
) -> tuple[str, str]:
    """Draws the choice of two rankings by the score of this title, and their scatter; returns their labels."""
    at.subheader(f"{title}: two rankings", help=PAIR_HELP.format(tables.NOUNS[noun]))
    first_at, second_at = at.columns(2)
    more: dict[str, Any] = {"on_change": chosen_outside, "help": "Task and shots."}
    first = choice(SIDES[0], labels, partial(first_at.selectbox, "Ranking"), **more)
    others = [label for label in [*labels[1:], labels[0]] if label != first]
    second = choice(SIDES[1], others, partial(second_at.selectbox, "and ranking"), **more)
    if missing := [side for side in (first, second) if side not in scores]:
        at.caption(f"Not measured yet: {'; '.join(missing)}.")
        return first, second
    said = tables.pair_in_words(pairs, scores, first, second)
    at.container(key="finding-pair").markdown(said)  # two lines high, so that the chart stays where it is
    if tables.mostly_tied(scores[first], scores[second]):
        _draw_apart(at, tables.apart_rows(scores[first], scores[second]), (first, second), noun)
        return first, second
    scatter = charts.rank_scatter(tables.rank_rows(scores[first], scores[second]), first, second, noun)
    sheet.draw("Two rankings", scatter, "correlations_pair", f"{first}; {second}. {said}", at)
    return first, second


def _draw_apart(at: DeltaGenerator, rows: pd.DataFrame, pair: tuple[str, str], noun: str) -> None:
    """Draws the components that do not tie on both tasks; a scatter would be of ties."""
    if rows.empty:
        at.caption(f"Every {noun} ties with another." if noun == "FFN" else "Every head ties with another.")
        return
    at.markdown(f"**{noun}s told apart by one of the tasks**: points lost without each", help=APART_HELP)
    right = partial(st.column_config.TextColumn, alignment="right")
    titles = {"name": noun, "a": right(pair[0]), "b": right(pair[1])}
    draw_table(rows, titles, f"{noun}s told apart by one of the tasks", at, height="content")


@dataclass(frozen=True)
class TaskPairs:
    """Every two tasks at one shot count, and how they are compared."""

    by_score: Mapping[str, tables.ScoreAgreement]
    what: str  # the chosen score
    names: Sequence[str]  # of the tasks, in order
    measure: charts.Measure  # of their agreement
    shots: int  # the shot count


def draw_tasks(at: DeltaGenerator, of: TaskPairs, pair: tuple[str, str], words: str, sheet: Sheet) -> None:
    """Draws the matrix of tasks, or for few of them each pair with its interval, and the other scores in words."""
    column = of.measure.column
    at.subheader(tables.label(of.measure.title, of.shots), help=TASKS_HELP)
    if len(of.names) <= FEW:
        cells = tables.cells_by_score({of.what: of.by_score[of.what]}, of.what, column)
        drawn = charts.intervals(cells, pair, charts.MEASURES[column].within(cells["value"]))
    else:
        drawn = charts.matrix(tables.cells(of.by_score[of.what].pairs, column, of.names), of.names, pair, of.measure)
    _clickable("tasks", at, drawn, words)
    if len(of.names) <= FEW and (others := tables.others_in_words(of.by_score, of.what, column)):
        at.caption(others)
    sheet.pictures["Tasks"] = drawn


def draw_link(at: DeltaGenerator, costs: str) -> None:
    """Draws what it `costs` to prune a task by the order of another, if known, and where to see that."""
    if costs:
        at.markdown(f"**Does it matter?** {costs}")
    label, icon = "Prune by another task's order", ":material/timeline:"
    help = "Sweeps: each task pruned by the order of another."
    at.page_link("pages/sweeps.py", label=label, icon=icon, help=help, query_params=TRANSFER)


def draw_counts(of_counts: pd.DataFrame, pair: tuple[str, str], measure: charts.Measure, sheet: Sheet) -> None:
    """Draws the matrices of shot counts: their mean over tasks, and each task's."""
    cross = tables.count_cells(of_counts, measure.column)
    sides = [str(count) for count in sorted({*cross["shots_a"], *cross["shots_b"]})]
    st.subheader("Across shot counts", help="A task's rankings with different numbers of examples in the prompt.")
    st.markdown(says := tables.few_in_words(of_counts, measure.column))
    mean_at, each_at = st.columns([3, 8], gap="medium")
    mean = charts.mean_matrix(tables.mean_cells(cross), sides, measure)
    sheet.draw("Mean of tasks", mean, "correlations_counts", says, mean_at)
    each = charts.small_matrices(cross, sorted(set(cross["at"])), sides, pair, measure)
    _clickable("counts", each_at, each, says)
    sheet.pictures["Shot counts"] = each


def measure_of(method: str, pairs: pd.DataFrame) -> charts.Measure:
    """Returns the measure of all matrices, with one range of colors."""
    return charts.MEASURES[method].within(pairs[method])


def chosen_outside(view: str | None = None) -> None:
    """Clears the other matrices' clicks by changing their keys."""
    turns = st.session_state.get(TURNS, {})
    st.session_state[TURNS] = {each: turns.get(each, 0) + (each != view) for each in VIEWS}


def _clickable(view: str, at: DeltaGenerator, matrix: Picture, words: str) -> None:
    """Draws a matrix; a click in it chooses the two rankings."""
    own = f"correlations {view} {st.session_state.get(TURNS, {}).get(view, 0)}"

    def clicked() -> None:
        if points := st.session_state[own]["selection"].get("pair"):
            # the first is later in the order of tasks: on the axes, as in a matrix, upwards
            st.session_state[SIDES[1]], st.session_state[SIDES[0]] = points[0]["first"], points[0]["second"]
            if "score" in points[0]:
                st.session_state[WHAT] = points[0]["score"]
            chosen_outside(view)

    draw_chart(matrix, own, words, at, on_select=clicked, selection_mode="pair")

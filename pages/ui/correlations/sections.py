"""The sections of the Correlations screen: matrices that can be clicked, two rankings in detail, shot counts; drawn."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from engine.questions.requests import TaskSpec
from engine.studies.statements import SMALL_LOSS
from engine.studies.surveys import shots_in_words
from engine.views.pictures import Picture
from pages.ui.controls.heads import open_heads
from pages.ui.correlations import charts, tables
from pages.ui.correlations.transfer import Transfer
from pages.ui.figures.drawing import draw_chart
from pages.ui.figures.sheet import Sheet
from pages.ui.figures.transfer import transfer_in_words, transfer_map
from pages.ui.page.address import one_among, put_right
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.tables import plain, whole_percent
from pages.ui.page.widget_writes import follow_default
from pages.ui.page.work import live

SHOWN_HELP = "Examples in the prompt of each question (shots), in the matrices of tasks."
TASKS_HELP = "Every two tasks. Hover for the 95% interval; click a cell to see both rankings."
METHODS = {"cost": "Points lost", "within": "Within a layer", "srcc": "All layers", "overlap": "Top 30%"}
METHOD_HELP = (
    "Points lost: what pruning a task by the ranking of another costs, once it is measured. Within a layer: Spearman's "
    "rank correlation of one layer's heads, its mean over layers. All layers: that of all scores, which depth alone "
    "can make high. Top 30%: of the most important 30% of one ranking, the share that is among those of the other."
)
SHARED_HELP = (
    "How many of these tasks have a head among the top 30%. A clicked head is named in the two rankings, and "
    "its page opens from here."
)
PAIR_HELP = (
    "One dot per {0}. Click a cell on the left, or choose two rankings here. On the diagonal, both rank a {0} alike. "
    "Left of one dashed line are the top 30% of the first ranking, under the other line those of the second. Named are "
    "the three farthest from the diagonal."
)
COSTS, COSTS_MAP = "Pruned by another task's order", "correlations transfer map"
COSTS_HELP = (
    "Accuracy of each task when heads are pruned by the ranking of another, against its own ranking: whether the "
    "agreement is enough. Click a cell to see both rankings. In the background; stored results are kept."
)
WHAT, HEAD, METHOD = "correlations_what", "correlations_head", "correlations_method"
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


def places(n: int, is_half: bool) -> list[DeltaGenerator]:
    """Draws the places of `n` sections, one below the other, or two in a row."""
    with st.container(key="correlations_sections"):
        if not is_half:
            return [st.container() for _ in range(n)]
        return [at for _ in range(0, n, 2) for at in st.columns(2, gap="large")]


def choose_method(where: DeltaGenerator, has_layers: bool, has_costs: bool = False, **look: Any) -> str:
    """Draws the choice of what the matrix shows: costs, if they are known, or a coefficient; without that within a
    layer, unless a layer has several components."""
    is_there = {"cost": has_costs, "within": has_layers}
    options = [name for name in METHODS if is_there.get(name, True)]
    follow_default(METHOD, options[0])
    look = {"default": options[0], "format_func": METHODS.__getitem__, "label_visibility": "collapsed"} | look
    draw = partial(where.segmented_control, "Coefficient", required=True, help=METHOD_HELP, **look)
    return choice(METHOD, options, draw)


def draw_pair(
    at: DeltaGenerator,
    title: str,
    labels: Sequence[str],
    pairs: pd.DataFrame,
    scores: Mapping[str, np.ndarray],
    noun: str,
    opens_with: Sequence[str],
    head: str,
    sheet: Sheet,
) -> tuple[str, str]:
    """Draws the choice of two rankings by the score of this title, those of `opens_with` first, and their scatter with
    this head marked; returns their labels."""
    at.subheader(f"{title}: two rankings", help=PAIR_HELP.format(noun))
    first_at, second_at = at.columns(2)
    more: dict[str, Any] = {"on_change": chosen_outside, "label_visibility": "collapsed"}
    ordered = [*dict.fromkeys([*opens_with, *labels])]
    follow_default(SIDES[0], ordered[0])  # until the costliest order is read, it is another one
    first = choice(SIDES[0], labels, partial(first_at.selectbox, "Ranking"), index=labels.index(ordered[0]), **more)
    others = [label for label in [*labels[1:], labels[0]] if label != first]
    index = others.index(ordered[1]) if first == ordered[0] else 0
    if first == ordered[0]:
        follow_default(SIDES[1], ordered[1])
    second = choice(SIDES[1], others, partial(second_at.selectbox, "and ranking"), index=index, **more)
    if missing := [side for side in (first, second) if side not in scores]:
        at.caption(f"Not measured yet: {'; '.join(missing)}.")
        return first, second
    said = tables.pair_in_words(pairs, scores, first, second)
    at.container(key="finding-pair").markdown(said)  # two lines high, so that the chart stays where it is
    ranks = tables.rank_rows(scores[first], scores[second])
    scatter = charts.rank_scatter(ranks, first, second, noun, head)
    sheet.draw("Two rankings", scatter, "correlations_pair", f"{first}; {second}. {said}", at)
    return first, second


def draw_tasks(
    at: DeltaGenerator,
    of: tables.ScoreAgreement,
    names: Sequence[str],
    measure: charts.Measure,
    pair: tuple[str, str],
    words: str,
    sheet: Sheet,
) -> None:
    """Draws the matrix of tasks, in the order of `names`."""
    drawn = charts.matrix(tables.cells(of.pairs, measure.column, names), names, pair, measure)
    _clickable("tasks", at, drawn, words)
    sheet.pictures["Tasks"] = drawn


def draw_shared(
    at: DeltaGenerator, chosen_at: DeltaGenerator, of: tables.ScoreAgreement, chosen: str, sheet: Sheet
) -> None:
    """Draws the number of tasks that need each head, if it is defined, and there what can be done with the chosen
    one."""
    rows, n_tasks = tables.shared_rows(of.scores), len(of.scores)
    if rows.empty:
        return
    words = tables.shared_in_words(rows, n_tasks)
    at.subheader("Tasks that need each head", help=SHARED_HELP)
    at.caption(words)
    drawn = charts.shared_map(rows, n_tasks, chosen)

    def clicked() -> None:
        if points := st.session_state[own]["selection"].get("head"):
            st.session_state[HEAD] = f"L{points[0]['layer']}H{points[0]['head']}"

    own = "correlations shared"
    draw_chart(drawn, own, words, at, on_select=clicked, selection_mode="head")
    sheet.pictures["Shared heads"] = drawn
    sheet.add("Shared heads", rows)
    if (row := rows[rows["name"].eq(chosen)]).empty:
        return
    chosen_at.subheader(chosen)
    chosen_at.markdown(f"In the top 30% of: {plain(row['tasks'].iloc[0])}")
    open_heads([chosen], chosen_at)


def draw_costs(at: DeltaGenerator, of: Transfer, rows: pd.DataFrame, pair: Sequence[str], sheet: Sheet) -> str:
    """Draws what it costs to prune each task by the order of another, the cell of the chosen `pair` of labels with a
    ring; returns the finding."""
    level = of.permille / 1000
    names = {tables.label(task.name, task.shots): name for name, task in of.named.items()}

    def clicked() -> None:
        if two := clicked_order(st.session_state[COSTS_MAP]["selection"].get("order"), of.named):
            st.session_state[SIDES[0]], st.session_state[SIDES[1]] = two
            chosen_outside()

    at.caption(
        f"{whole_percent(level)} pruned; negative: gained. Gray: under {SMALL_LOSS} points. *: 95% intervals apart."
    )
    words, drawn = transfer_in_words(rows, level), transfer_map(rows, [names.get(label, "") for label in pair])
    sheet.draw(COSTS, drawn, COSTS_MAP, words, at, on_select=clicked, selection_mode="order")
    sheet.tables[COSTS] = rows
    return words


def draw_costs_work(at: DeltaGenerator, of: Transfer, since_s: float) -> None:
    """Draws the progress of the costs, or the button that measures them."""

    def draw() -> None:
        if not of.work.line() and of.work.is_read:
            label = f"Prune {whole_percent(of.permille / 1000)} by each of {of.n_tasks} rankings"
            of.work.offer(label, "timeline", COSTS_HELP, 0.0, by_size=True)

    with at:
        live(of.work.watched(), draw, since_s)


def draw_counts(of_counts: pd.DataFrame, pair: tuple[str, str], measure: charts.Measure, sheet: Sheet) -> None:
    """Draws the matrices of shot counts: their mean over tasks, and each task's."""
    cross = tables.count_cells(of_counts, measure.column)
    sides = [str(count) for count in sorted({*cross["shots_a"], *cross["shots_b"]})]
    st.subheader(
        f"Across shot counts :small[{measure.title.lower()}]",
        help="A task's rankings with different numbers of examples in the prompt.",
    )
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


def clicked_pair(points: Sequence[Mapping[str, Any]] | None) -> tuple[str, str] | None:
    """Returns the labels of the two rankings of a clicked cell, the later one in the order of tasks first; None for a
    click elsewhere on the chart, such as on the diagonal."""
    point = points[0] if points else {}
    return (point["first"], point["second"]) if {"first", "second"} <= point.keys() else None


def clicked_order(points: Sequence[Mapping[str, Any]] | None, named: Mapping[str, TaskSpec]) -> list[str] | None:
    """Returns the labels of the two rankings of a clicked cell on the map of costs, the judged task's first; None for
    a task's own order, or a click elsewhere. `named`: tasks by their names on the map."""
    point = points[0] if points else {}
    two = [tables.label(of.name, of.shots) for side in ("task", "source") if (of := named.get(point.get(side, "")))]
    return two if len({*two}) == 2 else None


def _clickable(view: str, at: DeltaGenerator, matrix: Picture, words: str) -> None:
    """Draws a matrix; a click in it chooses the two rankings."""
    own = f"correlations {view} {st.session_state.get(TURNS, {}).get(view, 0)}"

    def clicked() -> None:
        if two := clicked_pair(st.session_state[own]["selection"].get("pair")):
            st.session_state[SIDES[1]], st.session_state[SIDES[0]] = two
            chosen_outside(view)

    draw_chart(matrix, own, words, at, on_select=clicked, selection_mode="pair")

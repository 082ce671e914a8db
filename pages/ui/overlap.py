"""Induction against importance: how much of the heads' induction capacity is left as a task's ranking prunes them."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import streamlit as st

from engine.checkpoints import Identity
from engine.importance import Scores
from engine.induction import InductionScores
from engine.jobs import Progress
from engine.loading import Models
from engine.pruning import Ranking, compute_orders, recall_orders
from engine.rankings import order
from engine.requests import TaskSpec
from engine.tasks import list_tasks
from pages.ui import effects, head_charts, head_frames
from pages.ui.experiment import RANKING_QUESTIONS
from pages.ui.frame import errors_shown, models, store
from pages.ui.frames import to_csv
from pages.ui.live import known_or_measured, live, unfinished_line
from pages.ui.sidebar import Setup

BOTH = ("prefix_matching", "copying")
RANKING = Ranking(n_questions=RANKING_QUESTIONS)


def importance_of(
    setup: Setup, model: Identity, tasks: list[TaskSpec], compute: bool, holder: Models, results: Any
) -> Iterator[Progress]:
    """Job: head importance by task name, Scores; of what is stored alone where `compute` is False."""
    found: dict[str, Scores] = {}
    for number, task in enumerate(tasks):
        about = (setup.spec, task, RANKING, setup.bos, setup.data_dir, results)
        orders = None if compute else recall_orders(model, *about, ffns_too=False)
        for step in compute_orders(holder, *about, ffns_too=False) if compute else ():
            orders = step.value
            done = number + (step.done / step.total if step.total else 0)
            yield Progress(round(100 * done), 100 * len(tasks), message=f"importance of {task.name}")
        if orders is not None and orders.evidence.heads is not None:
            found[task.name] = orders.evidence.heads
        yield Progress(100 * (number + 1), 100 * len(tasks), dict(found))


def capacity(found: InductionScores, score: str) -> np.ndarray:
    """(L, H), from 0: prefix matching as it is; copying as the share r, of which Olsson's score is 4 r - 1."""
    scores = found.mean[score]
    return (scores + 1) / 4 if score == "copying" and (scores < 0).any() else scores


def draw(
    setup: Setup, model: Identity, found: InductionScores, heads: pd.DataFrame, since_s: float
) -> tuple[dict[str, alt.LayerChart], dict[str, Callable[[], bytes]]]:
    """Draws the section; gives its charts and tables for the downloads."""
    st.header("What importance keeps of it", divider="gray")
    with errors_shown():
        available = [
            status.info.name for status in list_tasks(setup.data_dir) if status.available and status.where != "hub"
        ]
    task_at, shots_at, button_at = st.columns([5, 3, 4], vertical_alignment="bottom")
    name = task_at.selectbox("Task in front", available, key="induction_task", bind="query-params",
                             help="Its line is drawn thick; all others thin.")  # fmt: skip
    shots = shots_at.segmented_control("Solved examples", [0, 1, 5], default=5, key="induction_shots", required=True,
                                       bind="query-params", help="In the questions behind the importance.")  # fmt: skip
    tasks = [TaskSpec(task, int(shots)) for task in available]
    key = f"{setup} {model.digest} {shots}"
    run = partial(importance_of, setup, model, tasks, holder=models(), results=store())
    found_so_far, every = known_or_measured("importance of all", key, run)
    scores: dict[str, Scores] = {}
    for value in found_so_far:
        scores |= value
    if len(scores) < len(tasks):
        button_at.button(f"Measure importance of all {len(tasks)} tasks", icon=":material/insights:", on_click=every,
                         help="Head importance by gradient, in the background; what is stored is kept.")  # fmt: skip
    line = partial(unfinished_line, "importance of all", key, "Importance of every task", every)
    live(["importance of all, stored", "importance of all"], line, since_s)
    st.caption(f"Importance is there for {len(scores)} of {len(tasks)} tasks.")
    orders = {task: order(found_scores.scores) for task, found_scores in scores.items()}
    mean = None
    if len(scores) > 1:  # each task's scores on one scale, as their sizes differ
        mean = np.mean([one.scores / max(float(one.scores.sum()), 1e-30) for one in scores.values()], axis=0)
    pictures, tables = {}, {}
    for score, at in zip(BOTH, st.columns(2, gap="large"), strict=True):
        lines = head_frames.retained_lines(capacity(found, score), orders, name, None if mean is None else order(mean))
        title = f"{head_charts.TITLES[score]} left"
        pictures[title] = head_charts.retained_chart(lines, score)
        tables[title] = partial(to_csv, lines)
        with at:
            st.subheader(title, help="Share of the total over all heads, the least important pruned first. Copying "
                         "counts as a share, from 0 to 1. The band holds 95 % of random orders.")  # fmt: skip
            st.altair_chart(pictures[title], key=f"left {score}", alt=f"{title} against heads pruned")
    if scores:
        rankings = {task: one.scores for task, one in scores.items()} | ({} if mean is None else {"aggregate": mean})
        rows = head_frames.overlap_rows(heads, rankings)
        tables["Importance and induction"] = partial(to_csv, rows)
        st.dataframe(rows, hide_index=True, height=min(400, 40 + 35 * len(rows)), column_config=_columns(),
                     alt="Rank correlation of importance with induction, by task")  # fmt: skip
    return pictures, tables | effects.draw(setup, model, TaskSpec(name, int(shots)), heads)


def _columns() -> dict[str, Any]:
    number = partial(st.column_config.NumberColumn, format="%.2f")
    return {
        "ranking": st.column_config.TextColumn("Importance of"),
        "kept": st.column_config.NumberColumn("Induction heads kept", help="Of the best by prefix matching, so many "
                                              "are among the 30 % most important."),
        "of": st.column_config.NumberColumn("of the best"),
        "prefix_matching_srcc": number("SRCC with prefix matching", help="Spearman's rank correlation over all heads."),
        "prefix_matching_p": st.column_config.NumberColumn("p", format="%.3f"),
        "copying_srcc": number("SRCC with copying"),
        "copying_p": st.column_config.NumberColumn("p ", format="%.3f"),
    }  # fmt: skip

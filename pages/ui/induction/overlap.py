"""Induction against importance: how much of the heads' induction capacity is left as a task's ranking prunes them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import streamlit as st

from engine.heads.induction import InductionScores
from engine.importance.rankings import aggregate, order
from engine.models.checkpoints import Identity
from engine.questions.requests import TaskSpec
from engine.studies.surveys import grid
from pages.ui.induction import charts as head_charts
from pages.ui.induction import effects
from pages.ui.induction import tables as head_frames
from pages.ui.prune.tables import to_csv
from pages.ui.shared.many_tasks import importance_so_far, local_tasks, setting_of, show_failed
from pages.ui.shared.sidebar import Setup
from pages.ui.shared.work import live, unfinished_line, watched

BOTH = ("prefix_matching", "copying")


def capacity(found: InductionScores, score: str) -> np.ndarray:
    """(L, H), from 0: prefix matching as it is; copying as the share r, of which Olsson's score is 4 r - 1."""
    scores = found.mean[score]
    return (scores + 1) / 4 if score == "copying" and (scores < 0).any() else scores


def draw(
    setup: Setup, model: Identity, found: InductionScores, heads: pd.DataFrame, since_s: float
) -> tuple[dict[str, alt.LayerChart], dict[str, Callable[[], bytes]]]:
    """Draws the section; gives its charts and tables for the downloads."""
    st.header("What importance keeps of it", divider="gray")
    available = local_tasks(setup.data_dir)
    task_at, shots_at, button_at = st.columns([5, 3, 4], vertical_alignment="bottom")
    name = task_at.selectbox("Task in front", available, key="induction_task", bind="query-params",
                             help="Its line is drawn thick; all others thin.")  # fmt: skip
    shots = shots_at.segmented_control("Solved examples", [0, 1, 5], default=5, key="induction_shots", required=True,
                                       bind="query-params", help="In the questions behind the importance.")  # fmt: skip
    tasks = grid(available, [int(shots)])
    setting = setting_of(setup, aggregate="ranks")  # the sizes of the tasks' scores differ
    measured, key, every = importance_so_far(setting, model.digest, tasks, "heads", "importance of all")
    scores = measured.at(int(shots))
    if len(scores) < len(tasks):
        button_at.button(f"Measure importance of all {len(tasks)} tasks", icon=":material/insights:", on_click=every,
                         help="Head importance by gradient, in the background; what is stored is kept.")  # fmt: skip
    line = partial(unfinished_line, "importance of all", key, "Importance of every task", every)
    live(watched("importance of all"), line, since_s)
    st.caption(f"Importance is there for {len(scores)} of {len(tasks)} tasks.")
    show_failed(measured.failed)
    orders = {task: order(one) for task, one in scores.items()}
    mean = aggregate(scores, setting.aggregate) if len(scores) > 1 else None
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
        rankings = scores | ({} if mean is None else {"aggregate": mean})
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

"""Induction against importance: how much induction capacity remains as a task's order prunes the heads."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from engine.heads.induction import InductionScores
from engine.importance.rankings import aggregate, order
from engine.measurement import Measurement
from engine.models.session import Target
from engine.questions.requests import TaskSpec
from engine.studies.surveys import Survey, grid, survey
from pages.ui.controls.controls import choose_shots, one_listed
from pages.ui.controls.many_tasks import importance_work, local_tasks, mark_known, setting_of, show_failed, so_far
from pages.ui.controls.sidebar import Setup
from pages.ui.figures.sheet import Sheet
from pages.ui.induction import charts, effects, together
from pages.ui.induction.tables import copying_share, overlap_rows, retained_lines
from pages.ui.page.defaults import SHOTS
from pages.ui.page.tables import number, written
from pages.ui.page.work import live

LEFT_HELP = (
    "Share of the total over all heads, the least important pruned first. Copying counts as a share, from 0 to 1. The "
    "band holds 95% of random orders."
)
KEPT_HELP = "How many of the best by prefix matching are among the 30% most important."
BOTH = ("prefix_matching", "copying")


def capacity(found: InductionScores, score: str) -> np.ndarray:
    """Returns (L, H), from 0: prefix matching as it is; copying as a share."""
    return copying_share(found.mean[score]) if score == "copying" else found.mean[score]


def importance_of(setup: Setup, target: Target) -> Measurement[Survey]:
    """Returns the measurement of the importance that the section shows."""
    tasks = grid(local_tasks(setup.data_dir), [st.session_state.get("induction_shots") or SHOTS])
    return survey(target, setting_of(setup, aggregate="ranks"), tasks, "heads")


def draw(
    setup: Setup, target: Target, found: InductionScores, heads: pd.DataFrame, since_s: float, sheet: Sheet
) -> None:
    """Draws the section."""
    st.header("How much induction survives pruning", divider="gray")
    available = local_tasks(setup.data_dir)
    task_at, shots_at, button_at = st.columns([5, 3, 4], vertical_alignment="bottom")
    about = "Its line is drawn thick; all others thin."
    name = one_listed(task_at, "Highlighted task", available, "induction_task", help=about)
    shots = choose_shots(shots_at, "induction_shots", "In the prompts of the importance's questions.")
    tasks = grid(available, [shots])
    setting = setting_of(setup, aggregate="ranks")  # the sizes of the tasks' scores differ
    work = importance_work(setting, target, tasks, "heads", "importance of all", "Importance of every task")
    measured = so_far(work)
    scores = measured.at(shots)
    if len(scores) < len(tasks):
        words = f"Measure all {len(tasks)} tasks"
        help = "Head importance by gradient, in the background; finished work is kept."
        with button_at:
            work.offer(words, "insights", help)
    live(work.watched(), work.line, since_s)
    st.caption(f"Importance: {len(scores)} of {len(tasks)} tasks measured")
    mark_known(work, len(scores), len(tasks))
    show_failed(measured.failed)
    orders = {task: order(one) for task, one in scores.items()}
    mean = aggregate(scores, setting.aggregate) if len(scores) > 1 else None
    for score, at in zip(BOTH, st.columns(2, gap="large"), strict=True):
        lines = retained_lines(capacity(found, score), orders, name, None if mean is None else order(mean))
        title = f"{charts.TITLES[score]} left"
        sheet.tables[title] = lines
        with at:
            st.subheader(title, help=LEFT_HELP)
            drawn = charts.retained_chart(lines, score)
            sheet.draw(title, drawn, f"left {score}", f"{title} against heads pruned")
    if scores:
        rows = overlap_rows(heads, scores | ({} if mean is None else {"aggregate": mean}))
        sheet.tables["Importance and induction"] = rows
        words, height = "Rank correlation of importance with induction, by task", min(400, 40 + 35 * len(rows))
        srcc = dict.fromkeys(("prefix_matching_srcc", "copying_srcc"), partial(number, sign=True))
        shown = written(rows, **srcc, **dict.fromkeys(("prefix_matching_p", "copying_p"), partial(number, digits=3)))
        st.dataframe(shown, hide_index=True, height=height, column_config=_columns(), alt=words)
    effects.draw(setup, target, TaskSpec(name, shots), heads, sheet)
    together.draw(setup, target, TaskSpec(name, shots), sheet)


def _columns() -> dict[str, Any]:
    column, about = st.column_config.NumberColumn, "Spearman's rank correlation over all heads."
    return {
        "ranking": st.column_config.TextColumn("Importance of"),
        "kept": st.column_config.NumberColumn("Induction heads kept", help=KEPT_HELP),
        "of": st.column_config.NumberColumn("of the best"),
        "prefix_matching_srcc": column("SRCC with prefix matching", help=about),
        "prefix_matching_p": column("p"),
        "copying_srcc": column("SRCC with copying", help=about),
        "copying_p": column("p "),
    }

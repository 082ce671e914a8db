"""Induction against importance: how much induction capacity remains as a task's order prunes the heads."""

from functools import partial

import numpy as np
import pandas as pd
import streamlit as st

from engine.heads.induction import InductionScores
from engine.importance.rankings import aggregate, order
from engine.measurement import Measurement
from engine.models.session import Target
from engine.questions.requests import TaskSpec
from engine.studies.surveys import Survey, grid, survey
from pages.ui.controls.many_tasks import importance_work, local_tasks, mark_known, setting_of, show_failed, so_far
from pages.ui.controls.study import Setup
from pages.ui.figures.drawing import draw_table
from pages.ui.figures.sheet import Sheet
from pages.ui.induction import charts
from pages.ui.induction.tables import overlap_rows, retained_lines
from pages.ui.page.defaults import SHOTS
from pages.ui.page.tables import number, p_value
from pages.ui.page.work import live

LEFT_HELP = (
    "Share of the total over all heads, the least important pruned first. Copying counts as a share, from 0 to 1. The "
    "band holds 95% of random orders."
)
MEASURE_HELP = "Head importance by gradient, in the background; finished work is kept."
SRCC_HELP = "Spearman's rank correlation over all heads."
KEPT_HELP = "How many of the best by prefix matching are among the 30% most important."
MOST_ROWS = 10  # of a table that does not scroll
BOTH = ("prefix_matching", "copying")


def capacity(found: InductionScores, score: str) -> np.ndarray:
    """Returns (L, H), from 0: prefix matching as it is; copying as a share."""
    return found.copying_share if score == "copying" else found.mean[score]


def importance_of(setup: Setup, target: Target) -> Measurement[Survey]:
    """Returns the measurement of the importance that the section shows."""
    return survey(target, setting_of(setup, aggregate="ranks"), _tasks(setup), "heads")


def _tasks(setup: Setup) -> tuple[TaskSpec, ...]:
    return tuple(grid(local_tasks(setup.data_dir), [SHOTS]))


def draw(
    setup: Setup, target: Target, task: str, found: InductionScores, heads: pd.DataFrame, since_s: float, sheet: Sheet
) -> None:
    """Draws the section; the line of the `task` is thick."""
    tasks = _tasks(setup)
    setting = setting_of(setup, aggregate="ranks")  # the sizes of the tasks' scores differ
    work = importance_work(setting, target, tasks, "heads", "importance of all", "Importance of every task")
    measured = so_far(work)
    scores = measured.at(SHOTS)
    with st.container(horizontal=True, vertical_alignment="center"):
        known = f"Importance with {SHOTS} examples: {len(scores)} of {len(tasks)} tasks measured"
        st.caption(known, width="content")
        if len(scores) < len(tasks):
            work.offer(f"Measure all {len(tasks)} tasks", "insights", MEASURE_HELP)
    live(work.watched(), work.line, since_s)
    mark_known(work, len(scores), len(tasks))
    show_failed(measured.failed)
    orders = {name: order(one) for name, one in scores.items()}
    mean = aggregate(scores, setting.aggregate) if len(scores) > 1 else None
    for score, at in zip(BOTH, st.columns(2, gap="large"), strict=True):
        lines = retained_lines(capacity(found, score), orders, task, None if mean is None else order(mean))
        title = f"{charts.TITLES[score]} left"
        sheet.tables[title] = lines
        with at:
            st.markdown(f"**{title}**", help=LEFT_HELP)
            drawn = charts.retained_chart(lines, score)
            sheet.draw(title, drawn, f"left {score}", f"{title} against heads pruned")
    if scores:
        rows = overlap_rows(heads, scores | ({} if mean is None else {"aggregate": mean}))
        sheet.tables["Importance and induction"] = rows
        _draw_agreement(rows)


def _draw_agreement(rows: pd.DataFrame) -> None:
    """Draws the agreement of each task's importance with induction as a table."""
    shown = rows.assign(kept=[f"{row.kept} of {row.of}" for row in rows.itertuples()])
    column = st.column_config.NumberColumn
    titles = {
        "ranking": st.column_config.TextColumn("Importance of"),
        "kept": st.column_config.TextColumn("Best kept", help=KEPT_HELP),
        "prefix_matching_srcc": column("Correlation with matching", help=SRCC_HELP),
        "prefix_matching_p": column("p"),
        "copying_srcc": column("with copying", help=SRCC_HELP),
        "copying_p": column("p "),
    }
    words = {f"{score}_srcc": partial(number, sign=True) for score in BOTH} | {f"{score}_p": p_value for score in BOTH}
    about, height = (
        "Rank correlation of importance with induction, by task",
        400 if len(rows) > MOST_ROWS else "content",
    )
    draw_table(shown, titles, about, formats=words, height=height)

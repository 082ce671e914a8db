"""The effect of the paper's divisor of the last layer on the most important heads, against one divisor for all
layers."""

from collections.abc import Mapping

import numpy as np
import streamlit as st

from engine.heads.induction import induction
from engine.importance.importance import Scores
from engine.importance.rankings import n_top, top_overlap
from engine.models.session import Target
from engine.questions.requests import TaskSpec
from engine.studies.surveys import StudySettings, together
from pages.ui.page.runtime import session

PAPERS, EVEN = "heads", "heads-one-divisor"


def draw_line(what: str, target: Target, setting: StudySettings, scores: Mapping[TaskSpec, Scores]) -> list[str]:
    """Draws and returns the line, if the head score `what` has such a divisor; prefix matching is only read."""
    if what not in (PAPERS, EVEN):
        return []
    found = induction(target).stored(session())
    said = in_words(scores, setting, None if found is None else found.mean["prefix_matching"])
    st.caption(said)
    return [said]


def in_words(scores: Mapping[TaskSpec, Scores], setting: StudySettings, prefix: np.ndarray | None) -> str:
    """Describes how many of the most important heads are in the last layer by either divisor, in the mean over tasks;
    and, given `prefix` matching (L, H), how many are among the same number of its highest."""
    both = [scores, {task: each.with_other_divisor() for task, each in scores.items()}]
    means = {mean.what: mean.scores for mean in (together(setting, each) for each in both)}
    n, n_before = n_top(means[PAPERS].size), means[PAPERS][:-1].size
    last = {
        what: int((np.argsort(-mean, axis=None, kind="stable")[:n] >= n_before).sum()) for what, mean in means.items()
    }
    times = np.mean([each.last_layer_times for each in scores.values()])
    said = f"By the paper's divisor the last layer counts {times:.0f} times as much as by one for all; of the {n} most "
    said += f"important heads {last[PAPERS]} are its (one divisor: {last[EVEN]})"
    if prefix is not None:
        shared = {what: round(n * top_overlap(mean, prefix)) for what, mean in means.items()}
        said += f", and {shared[PAPERS]} are among the {n} of highest prefix matching (one divisor: {shared[EVEN]})"
    return said + "."

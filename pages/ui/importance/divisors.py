"""The gradient score's divisors: one for all layers, and the paper's, which gives the last layer more weight."""

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
NAMES = {EVEN: "Gradient", PAPERS: "Gradient (Bansal et al.)"}
GRADIENTS_HELP = (
    "Gradient: |z · dLoss/dz| summed over positions, all layers divided by all positions; the default order of Prune. "
    "Bansal et al.: as in their paper (2023), the last layer divided by the answer's tokens alone; the order "
    "“importance” of Prune."
)
HELP = (
    "Bansal et al. divide the last layer's scores by the number of answer tokens, those of all other layers by all "
    "positions. “Gradient” divides all layers by all positions."
)


def draw_line(what: str, target: Target, setting: StudySettings, scores: Mapping[TaskSpec, Scores]) -> list[str]:
    """Draws and returns the line, if the head score `what` has the paper's; prefix matching is only read."""
    if what != PAPERS:
        return []
    found = induction(target).stored(session())
    said = in_words(scores, setting)
    matching = "" if found is None else prefix_in_words(scores, setting, found.mean["prefix_matching"])
    st.caption(said, help=f"{HELP} {matching}".strip())
    return [said, *filter(None, [matching])]


def in_words(scores: Mapping[TaskSpec, Scores], setting: StudySettings) -> str:
    """Describes how many of the most important heads are in the last layer by either divisor, in the mean over
    tasks."""
    means = _means(scores, setting)
    n, n_before = n_top(means[PAPERS].size), means[PAPERS][:-1].size
    last = {
        what: int((np.argsort(-mean, axis=None, kind="stable")[:n] >= n_before).sum()) for what, mean in means.items()
    }
    times = np.mean([each.last_layer_times for each in scores.values()])
    said = f"Bansal et al. weight the last layer {times:.0f}x: {last[PAPERS]} of the top {n} heads are in it"
    return f"{said} (Gradient: {last[EVEN]})."


def prefix_in_words(scores: Mapping[TaskSpec, Scores], setting: StudySettings, prefix: np.ndarray) -> str:
    """Describes how many of the most important heads are among the same number of highest `prefix` matching (L, H), by
    either divisor."""
    means = _means(scores, setting)
    n = n_top(means[PAPERS].size)
    shared = {what: round(n * top_overlap(mean, prefix)) for what, mean in means.items()}
    return (
        f"Of the top {n} heads, {shared[PAPERS]} are among the {n} of highest prefix matching "
        f"(Gradient: {shared[EVEN]})."
    )


def _means(scores: Mapping[TaskSpec, Scores], setting: StudySettings) -> dict[str, np.ndarray]:
    """Returns the mean over tasks by either divisor."""
    both = [scores, {task: each.with_other_divisor() for task, each in scores.items()}]
    return {mean.what: mean.scores for mean in (together(setting, each) for each in both)}

"""The switch that colors a map of heads and FFNs: by what each costs alone, by an estimate, or by induction."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from engine.heads.induction import induction
from engine.importance.criteria import CRITERIA
from engine.importance.importance import ORACLES, Scores
from engine.importance.rankings_of import PARTS, Ranking, evidence
from engine.importance.rules import Evidence
from engine.measurement import Measurement
from engine.models.session import Target
from engine.questions.requests import Requests, TaskSpec
from pages.ui.controls.controls import one_of
from pages.ui.page.reads import stored_once
from pages.ui.page.runtime import session
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.tables import magnitude, percent

COST, ESTIMATE, INDUCTION = "cost", "estimate", "induction"
COLORINGS = {ESTIMATE: "Estimate", COST: "Measured cost", INDUCTION: "Induction"}
HELP = (
    "Estimate: the score that the pruning order goes by. Measured cost: accuracy lost without this head or FFN alone, "
    "on train questions. Induction: prefix matching, the attention to what followed a token's earlier copy."
)
ACCURACY_LOST = "Accuracy lost without it"  # the one score that is a share


@dataclass(frozen=True)
class Coloring:
    """The scores that color a map, None if they are not measured.

    `titles`: of the scores of heads and of FFNs
    `heads`, `ffns`: the scores
    `measures`: what measures them
    """

    titles: tuple[str, str]
    heads: Scores | None
    ffns: Scores | None
    measures: Measurement[Any]

    def form(self, of: int) -> Callable[[float], str]:
        """Returns how a score is written: of heads (0) or of FFNs (1)."""
        return percent if self.titles[of] == ACCURACY_LOST else magnitude


def choose_coloring(where: DeltaGenerator) -> str:
    """Draws the switch."""
    look: dict[str, Any] = {"label_visibility": "collapsed", "width": "content"}
    return one_of(where, "Color by", COLORINGS, "colors", HELP, **look)


def chosen_coloring() -> str:
    """Returns what the switch is set to, before it is drawn."""
    return st.session_state.get("colors") or ESTIMATE


def read_coloring(
    name: str, target: Target, task: TaskSpec, ranking: Ranking, data_dir: str | None, train: Requests | None
) -> Coloring:
    """Returns the stored scores of one of `COLORINGS`. `ranking`: the pruning order; `train`: the rendered train
    questions, without which nothing of the task is read."""
    if name == INDUCTION:
        scores = induction(target)
        found = stored_once(scores)
        matching = None if found is None else np.nan_to_num(found.mean["prefix_matching"])
        heads = None if matching is None else Scores("prefix matching", 0, matching)
        return Coloring(("Prefix matching", ""), heads, None, scores)
    by = Ranking("oracle", n_questions=ranking.n_questions) if name == COST else ranking
    of = evidence(target, task, by, PARTS, 0, data_dir, train)
    known = (None if train is None else of.so_far(session())) or Evidence()
    label = CRITERIA[by.criterion].label
    heads, ffns = (ACCURACY_LOST if by.what(part) in ORACLES else label for part in PARTS)
    return Coloring((heads, ffns), known.heads, known.ffns, of)

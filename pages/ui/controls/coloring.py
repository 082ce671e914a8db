"""The switch that colors a map of heads and FFNs: by what each costs alone, by an estimate, or by induction. Prune and
Heads have the same; a color that was chosen on one is that of the other."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from engine.heads.induction import induction
from engine.importance.criteria import MEASURED_BY
from engine.importance.orders import PARTS, Ranking, evidence
from engine.importance.rules import Evidence
from engine.importance.scores import ORACLES, Scores
from engine.measurement import Measurement
from engine.models.session import Target
from engine.questions.rendering import RenderedQuestions, TaskSpec
from pages.ui.controls.controls import one_of
from pages.ui.page.defaults import RANKING_QUESTIONS
from pages.ui.page.reads import stored_cached
from pages.ui.page.runtime import session
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.tables import magnitude, number
from pages.ui.page.widget_writes import follow_default

COST, ESTIMATE, INDUCTION = "cost", "estimate", "induction"
COLORINGS = {COST: "Measured cost", ESTIMATE: "Estimate", INDUCTION: "Induction"}
COLOR, CHOSEN = "colors", "colors chosen"  # query parameter; in the session: the color that the user chose
LOST = "Points lost without it"
HELP = (
    f"Measured cost: points of accuracy lost without this head or FFN alone, on {RANKING_QUESTIONS} train questions. "
    "Heads that can replace one another cost little alone. Estimate: the score that the pruning order goes by. "
    "Induction: prefix matching, the attention to what followed a token's earlier copy. Heads and FFNs are each shaded "
    "by their own largest score, by its square root."
)


@dataclass(frozen=True)
class Coloring:
    """The scores that color a map, None if they are not measured.

    `titles`: of the scores of heads and of FFNs
    `heads`, `ffns`: the scores; accuracies lost are in points
    `measures`: what measures them
    """

    titles: tuple[str, str]
    heads: Scores | None
    ffns: Scores | None
    measures: Measurement[Any]

    def form(self, of: int) -> Callable[[float], str]:
        """Returns how a score is written: of heads (0) or of FFNs (1)."""
        return partial(number, digits=1) if self.titles[of] == LOST else magnitude


def choose_coloring(where: DeltaGenerator, first: str = ESTIMATE) -> str:
    """Draws the switch, set to `first` unless another color is chosen."""
    chosen_coloring(first)
    color = one_of(
        where, "Color by", COLORINGS, COLOR, HELP, default=first, label_visibility="collapsed", width="content"
    )
    if color != first or st.session_state.get(CHOSEN):
        st.session_state[CHOSEN] = color
    return color


def chosen_coloring(first: str = ESTIMATE) -> str:
    """Returns what the switch is set to, before it is drawn: by the user, on this screen or the one before, else
    `first`."""
    follow_default(COLOR, first)
    in_address = {title: name for name, title in COLORINGS.items()}.get(st.query_params.get(COLOR, ""))
    if COLOR not in st.session_state and not in_address and (chosen := st.session_state.get(CHOSEN)):
        st.session_state[COLOR] = chosen
    return st.session_state.get(COLOR) or in_address or first


def ranking_by(color: str, order: Ranking) -> Ranking:
    """Returns the ranking by the scores of COST, or of ESTIMATE: the pruning order."""
    return Ranking("oracle", n_questions=order.n_questions) if color == COST else order


def title_of(what: str) -> str:
    """Returns the title of a score of heads or FFNs, by its name."""
    return LOST if what in ORACLES else MEASURED_BY[what].label


def read_coloring(
    name: str, target: Target, task: TaskSpec, ranking: Ranking, data_dir: str | None, train: RenderedQuestions | None
) -> Coloring:
    """Returns the stored scores of one of `COLORINGS`. `ranking`: the pruning order; `train`: the rendered train
    questions, without which nothing of the task is read."""
    if name == INDUCTION:
        scores = induction(target)
        found = stored_cached(scores)
        matching = None if found is None else np.nan_to_num(found.mean["prefix_matching"])
        heads = None if matching is None else Scores("prefix matching", 0, matching)
        return Coloring(("Prefix matching", ""), heads, None, scores)
    by = ranking_by(name, ranking)
    of = evidence(target, task, by, PARTS, 0, data_dir, train)
    known = (None if train is None else of.so_far(session())) or Evidence()
    heads, ffns = (title_of(by.what(part)) for part in PARTS)
    return Coloring((heads, ffns), _in_points(known.heads), _in_points(known.ffns), of)


def _in_points(found: Scores | None) -> Scores | None:
    return found if found is None or found.what not in ORACLES else replace(found, scores=100 * found.scores)

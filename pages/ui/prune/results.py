"""The stored results of one model at the levels of the screen, read once a run."""

from dataclasses import dataclass
from functools import cached_property

import pandas as pd
import streamlit as st

from engine.importance.orders import Axis
from engine.importance.rules import Evidence
from engine.models.masks import Mask
from pages.ui.page.runtime import session
from pages.ui.prune.experiment import (
    LEVELS_PERMILLE,
    AnswersSoFar,
    Curve,
    Experiment,
    accuracies,
    accuracy_work,
    curve,
    curve_work,
)
from pages.ui.prune.tables import curve_points

VISITED = "prune levels visited"  # in the session: of the last curve, its key and the levels that its slider was at


@dataclass(frozen=True, kw_only=True)
class Results:
    """What is stored of one model.

    `x`: the settings
    `axis`: whose levels run along the curve
    `known`: the scores of the pruning order
    `mask`: what the levels and the typed mask prune; None before the order is known
    `stored_answers`, `stored_curve`: what is stored of the answers, and of the levels of the curve
    `second`: the name of the model, if it is the second one
    """

    x: Experiment
    axis: Axis
    known: Evidence
    mask: Mask | None
    stored_answers: AnswersSoFar
    stored_curve: Curve
    second: str = ""

    @property
    def answers(self) -> AnswersSoFar:
        """Returns the answers so far: of the job that measures them, if there is one."""
        return accuracy_work(self.x, self.mask, self.second).job_value or self.stored_answers

    @property
    def curve(self) -> Curve:
        """Returns the levels measured so far: those stored, and those of the job that measures them."""
        return {**self.stored_curve, **(curve_work(self.x, self.axis, self.known, self.second).job_value or {})}

    @property
    def points(self) -> pd.DataFrame:
        """Returns these levels, one row each."""
        curve = self.curve
        return self._stored_points if len(curve) == len(self.stored_curve) else curve_points(curve)

    @cached_property
    def _stored_points(self) -> pd.DataFrame:
        return curve_points(self.stored_curve)


def read_results(x: Experiment, axis: Axis, second: str = "") -> dict[str, object]:
    """Returns the fields of `Results`, as they are stored now."""
    known = x.known(session())
    mask = x.mask(known)
    stored = accuracies(x, mask, second).so_far(session()) or AnswersSoFar()
    levels = curve(x, axis, known, _visited(x, axis)).so_far(session()) or {}
    of = {"x": x, "axis": axis, "known": known, "mask": mask, "second": second}
    return {**of, "stored_answers": stored, "stored_curve": levels}


def _visited(x: Experiment, axis: Axis) -> list[int]:
    """Returns every tenth level, and those at which the slider was while this curve was drawn."""
    key, before = f"{x.task} {x.pruning.ranking} {axis}", st.session_state.get(VISITED, ("", ()))
    levels = {*LEVELS_PERMILLE, *(before[1] if before[0] == key else ()), x.pruning.level(axis)}
    st.session_state[VISITED] = key, levels
    return sorted(levels)

"""The stored results of an experiment, as found by one run of the Prune screen."""

import pandas as pd
import streamlit as st

from engine.importance.rankings_of import Axis
from pages.ui.page.runtime import session, store
from pages.ui.prune import dragging
from pages.ui.prune.experiment import LEVELS_PERMILLE, AnswersSoFar, Experiment, accuracies, curve
from pages.ui.prune.tables import curve_points

VISITED = "prune levels visited"  # in the session: levels of the slider, by curve


class Found:
    """The stored results of an experiment `x`: the `known` scores of its order, its `mask` if they suffice, and the
    answers. `second`: the name of the model, if it is the second one."""

    def __init__(self, x: Experiment, second: str = "") -> None:
        self.x, self.known = x, x.known(session())
        self.mask = x.mask(self.known)
        self.stored = accuracies(x, self.mask, second).so_far(session()) or AnswersSoFar()
        self._points: dict[Axis, tuple[int, pd.DataFrame]] = {}

    def curve(self, axis: Axis) -> pd.DataFrame:
        """Returns the measured levels of the axis, of every 10% and where the slider was; nothing is read while a
        slider moves."""
        puts = store().n_puts
        if axis not in self._points or (self._points[axis][0] != puts and not dragging.moving()):
            visited = st.session_state.setdefault(VISITED, {}).setdefault(self.x.curve_key(axis), set())
            visited.add(self.x.pruning.level(axis))
            levels = sorted({*LEVELS_PERMILLE, *visited})
            self._points[axis] = puts, curve_points(curve(self.x, axis, self.known, levels).so_far(session()) or {})
        return self._points[axis][1]

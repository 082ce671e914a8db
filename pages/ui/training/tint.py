"""A passage tinted by the change in training: a component that holds the losses of all snapshots, so that the tint
follows the slider in the browser."""

from pathlib import Path
from typing import Any

import numpy as np

from pages.ui.page.components import component_of
from pages.ui.training.charts import MOMENT
from pages.ui.training.runs import DrawnRun
from pages.ui.training.tables import ends_of, in_tokens

HTML = """
<div class="reading">
  <div class="legend"><span class="low"></span><span class="bar"></span><span class="high"></span>
    <span class="what"></span></div>
  <div class="text" role="group" tabindex="0"></div>
  <div class="note" role="status"></div>
</div>
"""
_COMPONENT = component_of("training_tint", HTML, Path(__file__).parent, "tint")
VIEWS = {"change": "end − start", "since": "moment − start", "loss": "loss at the moment"}
FULL_NATS = {"change": 2.0, "since": 2.0, "loss": 6.0}  # where a tint is in full colour


def draw_tint(run: DrawnRun, passage: str, view: str) -> None:
    """Draws the passage as one run reads it: `view` is one of VIEWS; start and end are the window's, or the run's."""
    x = run.trajectory
    read, (first, last) = x.passages[passage], ends_of(run)
    losses = [[None if np.isnan(value) else round(float(value), 2) for value in row] for row in read.losses]
    start, end = in_tokens(float(x.tokens[first])), in_tokens(float(x.tokens[last]))
    data: dict[str, Any] = {"field": MOMENT, "tokens": x.tokens.tolist(), "pieces": list(read.pieces), "losses": losses}
    data |= {"first": first, "last": last, "view": view, "full": FULL_NATS[view], "start": start, "end": end}
    _COMPONENT(key="training tint", data=data)

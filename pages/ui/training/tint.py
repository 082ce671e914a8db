"""A passage tinted by the change of its losses: a component that holds those of all snapshots, so that the tint follows
the slider in the browser."""

from pathlib import Path
from typing import Any

import numpy as np

from engine.training.trajectory import Trajectory
from pages.ui.page.components import component_of
from pages.ui.training.charts import MOMENT

HTML = """
<div class="reading">
  <div class="legend">
    <span class="low"></span><span class="bar worse"></span><span class="high"></span><span class="what"></span>
  </div>
  <div class="text" role="group" tabindex="0"></div>
  <div class="note" role="status"></div>
</div>
"""
_COMPONENT = component_of("training_tint", HTML, Path(__file__).parent, "tint")
FULL_NATS = 2.0  # of change, from which a tint is in full color


def draw_tint(run: Trajectory, passage: str, since: int) -> None:
    """Draws the passage as the run reads it: the change of the losses since this snapshot."""
    read = run.passages[passage]
    losses = [[None if np.isnan(value) else round(float(value), 2) for value in row] for row in read.losses]
    data: dict[str, Any] = {"field": MOMENT, "tokens": run.tokens.tolist(), "pieces": list(read.pieces)}
    _COMPONENT(key="training tint", data=data | {"losses": losses, "since": since, "full": FULL_NATS})

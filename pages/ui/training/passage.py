"""The passage of the Training screen, tinted by the change of its tokens' losses since induction heads form."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from engine.training.phase_change import heads_form
from engine.training.trajectory import Trajectory
from engine.views.pictures import Picture
from engine.views.text_picture import text_picture
from engine.views.view import Column, Part
from pages.ui.controls.controls import one_listed
from pages.ui.figures.sheet import Sheet
from pages.ui.page.components import component_of
from pages.ui.page.tables import visible
from pages.ui.training.charts import MOMENT
from pages.ui.training.choosing import RunChoice

FIRST_PASSAGE = "Privet Drive, twice"
HTML = """
<div class="reading">
  <div class="legend">
    <span class="low"></span><span class="bar worse"></span><span class="high"></span><span class="what"></span>
  </div>
  <div class="text" role="group" tabindex="0"></div>
  <div class="note" role="status"></div>
</div>
"""
_COMPONENT = component_of("training_passage", HTML, Path(__file__).parent, "passage")
FULL_NATS = 2.0  # of change, from which a tint is in full color


def passage(choice: RunChoice, at: float, sheet: Sheet) -> None:
    """Draws a passage as one of the runs that have any reads it."""
    readers = {name: run for name, run in zip(choice.names, choice.runs, strict=True) if run.passages}
    st.caption("The change of each token's loss since just before induction heads form.")
    text_at, run_at = st.columns(2)
    run = readers[one_listed(run_at, "Read by", list(readers), "training_reader")]
    names = list(run.passages)
    first = names.index(FIRST_PASSAGE) if FIRST_PASSAGE in names else 0
    name = one_listed(text_at, "Text", names, "training_text", index=first)
    rises = [rise for each in choice.runs if (rise := heads_form(each)) is not None]
    since = int(np.abs(run.tokens - (rises[0].start if rises else 0)).argmin())
    draw_tint(run, name, since)
    sheet.pictures[f"Passage, {run.name}"] = partial(_picture, run, name, since, int(np.abs(run.tokens - at).argmin()))


def _picture(run: Trajectory, name: str, since: int, at: int) -> Picture:
    read = run.passages[name]
    losses = zip(read.losses[since], read.losses[at], read.losses[at] - read.losses[since], strict=True)
    rows = [
        {"piece": piece, "token": visible(piece), "before": before, "after": after, "change": change}
        for piece, (before, after, change) in zip(read.pieces, losses, strict=True)
    ]
    columns = {"token": Column("Token"), "before": Column("Loss before, nats", ".2f")}
    columns |= {"after": Column("Loss after, nats", ".2f")}
    return text_picture(Part(name, rows, columns), "change", FULL_NATS, ("predicted better", "predicted worse"))


def draw_tint(run: Trajectory, passage: str, since: int) -> None:
    """Draws the passage as the run reads it: the change of the losses since this snapshot."""
    read = run.passages[passage]
    losses = [[None if np.isnan(value) else round(float(value), 2) for value in row] for row in read.losses]
    data: dict[str, Any] = {"field": MOMENT, "tokens": run.tokens.tolist(), "pieces": list(read.pieces)}
    _COMPONENT(key="training tint", data=data | {"losses": losses, "since": since, "full": FULL_NATS})

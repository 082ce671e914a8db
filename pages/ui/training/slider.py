"""The slider of training: a component that moves the marker of every chart in the browser, and a field for its tokens.

The field is bound to the address; empty, it stands at the first run's phase change. The slider's value at its release
is written into it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from pages.ui.page.address import number_field
from pages.ui.page.components import component_of
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.widget_writes import hold, write
from pages.ui.training.charts import MOMENT, TokenAxis
from pages.ui.training.runs import DrawnRun
from pages.ui.training.tables import at_each

HTML = """
<div class="training">
  <div class="head">
    <button class="play framed" type="button"></button>
    <label for="moment">Training, tokens</label> <output for="moment"></output>
  </div>
  <div class="track"><div class="bands"></div><input id="moment" type="range" min="0" max="1000" step="any"></div>
  <div class="runs"></div>
</div>
"""
_COMPONENT = component_of("training_slider", HTML, Path(__file__).parent, "slider")
KEY, DRAG, SEEN = "training_tokens", "training drag", "training seen"
FIELD_HELP = (
    "Position of the marker, in tokens trained on. On the slider: arrow keys go from snapshot to snapshot, Home and "
    "End to the ends. “Play” steps through all of them."
)
MOST_TOKENS = 10**13
IN_A_ROW = 4  # runs side by side


def draw_field() -> None:
    """Draws the hidden field that charts and text listen to; to be drawn first."""
    st.html(f'<input id="{MOMENT}" type="text" aria-hidden="true" tabindex="-1" hidden>')


def moment(where: DeltaGenerator, runs: Sequence[DrawnRun]) -> float:
    """Draws the field for the tokens; returns its value, or where the first run's in-context score forms fastest."""
    hold(KEY)
    about: dict[str, Any] = {"value": None, "step": None, "help": FIELD_HELP, "placeholder": "phase change"}
    value = number_field(where, "At tokens", (0, MOST_TOKENS), KEY, **about)
    if value is not None:
        return float(value)
    changed = [float(each.trajectory.tokens[each.window.steepest]) for each in runs if each.window]
    return changed[0] if changed else float(runs[0].trajectory.tokens[-1])


def slider(runs: Sequence[DrawnRun], look: TokenAxis, at: float) -> None:
    """Draws the slider at a number of tokens."""
    stops = sorted({float(tokens) for each in runs for tokens in each.trajectory.tokens})
    data: dict[str, Any] = {"field": MOMENT, "stops": stops, "value": at, "seen": st.session_state.get(SEEN, 0)}
    data |= {"low": look.low, "high": look.high, "log": look.log, "columns": IN_A_ROW}
    data["runs"] = [
        {"label": each.label, "title": each.in_full, "tokens": each.trajectory.tokens.tolist(), "said": at_each(each),
         "window": [each.window.start, each.window.end] if each.window else None} for each in runs
    ]  # fmt: skip
    _COMPONENT(key=DRAG, data=data, on_hand_change=_on_release)


def _on_release() -> None:
    """Writes the released value into the field."""
    said: Any = (st.session_state.get(DRAG) or {}).get("hand")
    try:
        tokens, number = min(MOST_TOKENS, max(0, round(float(said["tokens"])))), int(said["number"])
    except (TypeError, KeyError, ValueError, OverflowError):
        return
    st.session_state[SEEN] = number
    write(KEY, tokens)

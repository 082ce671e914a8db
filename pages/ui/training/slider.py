"""The slider of training: a component that moves the marker of every chart in the browser, and a field for its tokens.

Its value at its release is written into the address; without one it stands at the end of the longest run.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from pages.ui.page.address import nearest, unseen_field
from pages.ui.page.components import component_of
from pages.ui.page.widget_writes import write
from pages.ui.training.charts import MOMENT, TokenAxis
from pages.ui.training.runs import SMEARED, DrawnRun
from pages.ui.training.tables import at_each

HTML = """
<div class="training">
  <div class="head">
    <button class="play framed" type="button"></button>
    <label for="moment">Training, tokens</label> <output for="moment"></output>
    <span class="named"></span>
  </div>
  <div class="track"><div class="bands"></div><input id="moment" type="range" min="0" max="1000" step="any"></div>
  <div class="runs"></div>
</div>
"""
_COMPONENT = component_of("training_slider", HTML, Path(__file__).parent, "slider")
KEY, DRAG, SEEN = "training_tokens", "training drag", "training seen"
MOST_TOKENS = 10**13
IN_A_ROW = 4  # runs side by side


def draw_field() -> None:
    """Draws the hidden field that charts and text listen to; to be drawn first."""
    st.html(f'<input id="{MOMENT}" type="text" aria-hidden="true" tabindex="-1" hidden>')


def moment(runs: Sequence[DrawnRun]) -> float:
    """Returns the slider's tokens: those in the address, or the end of the longest run, where “Play” starts over and
    runs with and without a phase change differ most."""
    value = unseen_field("Training, tokens", KEY, lambda text: nearest(text, (0, MOST_TOKENS)))
    return float(value) if value else max(float(run.trajectory.tokens[-1]) for run in runs)


def slider(runs: Sequence[DrawnRun], look: TokenAxis, at: float) -> None:
    """Draws the slider at a number of tokens."""
    stops = sorted({float(tokens) for each in runs for tokens in each.trajectory.tokens})
    data: dict[str, Any] = {"field": MOMENT, "stops": stops, "value": at, "seen": st.session_state.get(SEEN, 0)}
    data |= {"low": look.low, "high": look.high, "log": look.log, "columns": IN_A_ROW}
    data["runs"] = [
        {"label": each.label, "title": each.about, "tokens": each.trajectory.tokens.tolist(), "said": at_each(each),
         "window": [each.window.start, each.window.end] if each.window else None,
         "note": SMEARED if each.is_smeared else ""} for each in runs
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
    write(KEY, str(tokens))

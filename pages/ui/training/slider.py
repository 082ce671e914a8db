"""The slider of training: a component that moves the marker of every chart in the browser, and a field for its tokens.

Its value at its release is written into the address; without one it stands at the end of the longest run.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from engine.training.trajectory import Trajectory
from engine.views.training import last_of
from pages.ui.page.address import nearest, unseen_field
from pages.ui.page.components import component_of
from pages.ui.page.widget_writes import write
from pages.ui.training.charts import MOMENT

HTML = """
<div class="training">
  <button class="play framed" type="button"></button>
  <label for="moment">Tokens</label> <output for="moment"></output>
  <div class="track"><input id="moment" type="range" min="0" max="1000" step="any" aria-label="Training, tokens"></div>
</div>
"""
_COMPONENT = component_of("training_slider", HTML, Path(__file__).parent, "slider")
KEY, DRAG, SEEN = "training_tokens", "training drag", "training seen"
MOST_TOKENS = 10**13


def draw_field() -> None:
    """Draws the hidden fields that charts and text listen to, and that hold the slider's tokens; to be drawn first."""
    st.html(f'<input id="{MOMENT}" type="text" aria-hidden="true" tabindex="-1" hidden>')
    unseen_field("Training, tokens", KEY, lambda text: nearest(text, (0, MOST_TOKENS)))


def moment(runs: Sequence[Trajectory]) -> float:
    """Returns the slider's tokens: those in the address, or the end of the longest run, where the runs differ most and
    “Play” starts over."""
    value = st.session_state.get(KEY)
    return float(value) if value else max((float(each.tokens[-1]) for each in runs), default=0.0)


def slider(runs: Sequence[Trajectory], at: float) -> None:
    """Draws the slider at a number of tokens."""
    stops = sorted({float(tokens) for each in runs for tokens in each.tokens})
    data = {"field": MOMENT, "stops": stops, "value": at, "seen": st.session_state.get(SEEN, 0), "high": last_of(runs)}
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

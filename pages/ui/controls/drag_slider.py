"""A slider that reports while it moves, and shows its level during a drag.

The level is in a number field of Streamlit's, which is bound to the address and hidden by the stylesheet: on its own
it would show the previous level during a drag. When the slider is released or rests, the level is written into that
field, once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from pages.ui.page.address import number_field
from pages.ui.page.components import component_of
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.widget_writes import write

HTML = """
<div class="level">
  <div class="words">
    <label for="range"></label><button class="help quiet" type="button" tabindex="-1">?</button>
    <span class="more"></span>
  </div>
  <div class="tip framed" id="tip" role="tooltip"></div>
  <div class="track">
    <output for="range"></output>
    <input id="range" type="range" min="0" max="100" aria-describedby="tip">
  </div>
  <div class="note"></div>
</div>
"""
_COMPONENT = component_of("drag_slider", HTML, Path(__file__).parent, "drag_slider")
STEP = 5
KEYS_HELP = "Arrow keys move it by 5%, with Shift by 1%."


@dataclass(frozen=True)
class SliderState:
    """Position of a slider, in permille, and whether it still moves: the level is set only at its release."""

    permille: int
    moving: bool


@dataclass(frozen=True)
class Field:
    """A level that is set, in percent, and the container of its slider."""

    key: str
    label: str
    percent: int
    place: DeltaGenerator


def level_field(where: DeltaGenerator, key: str, label: str) -> int:
    """Draws the field itself, into which a released slider is written; returns the level set, in percent."""
    reported = _reported(key)
    if reported and reported["number"] != st.session_state.get(f"{key} seen", 0) and not reported["moving"]:
        write(key, reported["percent"])
        st.session_state[f"{key} seen"] = reported["number"]
    return int(number_field(where, label, (0, 100), key, value=0, step=STEP))


def draw_slider(field: Field, help: str, texts: Mapping[int, str], more: str = "", live: bool = False) -> None:
    """Draws the slider of a field. `texts` describe each level, at once and without a run; `more` stands next to the
    label: what a mask changes, such as "4 heads".

    `live`: the page runs while the slider moves, and `hand` returns its position. Such a slider is the page's main
    control: it is drawn larger, with the texts below it and not next to the level.
    """
    seen = st.session_state.get(f"{field.key} seen", 0)
    data = {
        "label": field.label,
        "help": f"{help} {KEYS_HELP}",
        "value": field.percent,
        "step": STEP,
        "live": live,
        "seen": seen,
        "more": more,
    }
    now = hand(field.key)
    data["hand"] = now.permille // 10 if now.moving else None  # the last reported position, until the release
    data["texts"] = {str(percent): text for percent, text in texts.items()}
    with field.place:
        _COMPONENT(key=f"{field.key} drag", data=data, on_hand_change=lambda: None)


def hand(key: str) -> SliderState:
    """Returns the slider's position now; while it moves, that is not the level set."""
    reported = _reported(key)
    if reported and reported["moving"] and reported["number"] != st.session_state.get(f"{key} seen", 0):
        return SliderState(10 * reported["percent"], True)
    return SliderState(10 * int(st.session_state.get(key) or 0), False)


def _reported(key: str) -> dict[str, Any] | None:
    """Returns the browser's last report, validated: percent, moving, number (one more at each release)."""
    said: Any = (st.session_state.get(f"{key} drag") or {}).get("hand")
    try:
        percent, number, moving = round(float(said["percent"])), int(said["number"]), said["moving"] is True
    except (TypeError, KeyError, ValueError, OverflowError):
        return None
    return {"percent": min(100, max(0, percent)), "moving": moving, "number": number}

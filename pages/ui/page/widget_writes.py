"""Values that the app writes into a widget: a click on a map, or a value from another screen.

A browser that has not drawn such a value yet still reports the previous one with its next request, a timer's run
among them, and Streamlit takes that for the user's. For a moment such a report is recognized by the previous value;
not after the browser's back and forward, which bring such a value back.

The messages of a run are lost if the next run begins before they are sent, as on a busy machine. The browser then draws
the widget with its default and reports that. So a value is sent again by each run until the browser has reported it.
"""

import time
from dataclasses import dataclass
from typing import Any

import streamlit as st

from pages.ui.page.streamlit_internals import is_back_or_forward, is_reported, reported_s

HELD_S = 2.0


@dataclass(frozen=True)
class Written:
    """A written value, until when (`time.monotonic`) it is held, and the values that the browser may still hold."""

    until_s: float
    value: Any
    before: tuple[Any, ...]


def write(key: str, value: Any, held_s: float = HELD_S) -> None:
    """Sets a widget before it is drawn in this run, and holds the value for a moment."""
    state, until_s = st.session_state, time.monotonic() + held_s
    last = state.get(f"{key} written")
    before = (*(last.before if last and time.monotonic() < last.until_s else ()), state.get(key))
    state[f"{key} written"] = Written(until_s, value, tuple(each for each in before if each != value))
    state[key] = value


def follow_default(key: str, default: Any) -> None:
    """Replaces a value that is still the previous default of a widget, such as the tasks of the model before, by its
    `default` now; to be called before it is drawn."""
    state, of = st.session_state, f"{key} default"
    before = state.get(of, default)
    if before != default and state.get(key) == before and not is_back_or_forward():
        write(key, default)
    state[of] = default


def hold(key: str) -> None:
    """Restores a held value, or sends it again; to be called before a widget is drawn that may have been written."""
    last, state = st.session_state.get(f"{key} written"), st.session_state
    if is_back_or_forward():
        state.pop(f"{key} written", None)
    elif last is not None and key in state:
        is_unsent = state[key] == last.value and not is_reported(key)
        if is_unsent or (reported_s() < last.until_s and state[key] in last.before):
            state[key] = last.value

"""Values that the app writes into a widget: a click on a map, or a value from another screen.

A browser that has not drawn such a value yet still reports the previous one with its next request, a timer's run
among them, and Streamlit takes that for the user's. For a moment such a report is recognized by the previous value;
not after the browser's back and forward, which bring such a value back.
"""

import time
from dataclasses import dataclass
from typing import Any

import streamlit as st

from pages.ui.page.streamlit_internals import is_back_or_forward

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
    last = _last(key)
    before = (*(last.before if last else ()), state.get(key))
    state[f"{key} written"] = Written(until_s, value, tuple(each for each in before if each != value))
    state[key] = value


def hold(key: str) -> None:
    """Restores a held value; to be called before a widget is drawn that may have been written."""
    last, state = _last(key), st.session_state
    if is_back_or_forward():
        state.pop(f"{key} written", None)
    elif last is not None and key in state and state[key] != last.value and state[key] in last.before:
        state[key] = last.value


def _last(key: str) -> Written | None:
    last = st.session_state.get(f"{key} written")
    return last if last is not None and time.monotonic() < last.until_s else None

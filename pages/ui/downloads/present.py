"""The button that presents the slides, as a page over the app, and the script that is on every page."""

from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.components.v2 import component

from pages.ui.downloads import slides
from pages.ui.downloads.talk import to_talk
from pages.ui.page.address import base_path
from pages.ui.page.runtime import store
from pages.ui.page.screens import PRESENT
from pages.ui.page.streamlit_internals import PAGE_SCRIPT

HELP = "Shows the slides. Arrow keys step, 1 to 9 open one; Escape ends. Export saves them as one file."
STAGE = "stage"
_COMPONENT = component(
    "headroom_stage", html="<i></i>", js=PAGE_SCRIPT + Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
)
TALK = "talk"  # in the session: the page to show, sent by each run until the browser has opened it
OPENED = "talks opened"  # in the session: how many


@st.fragment
def _draw() -> None:
    kwargs: dict[str, Any] = {"icon": ":material/slideshow:", "type": "tertiary", "help": HELP}
    if slides.are_saved(store()) and st.button("Present", key="present", **kwargs):
        number = st.session_state[OPENED] = st.session_state.get(OPENED, 0) + 1
        talk = to_talk(slides.saved(store())).decode()
        st.session_state[TALK] = {"talk": talk, "number": number, "base": base_path()}
    _COMPONENT(key=STAGE, data=st.session_state.get(TALK, {}), on_remove_change=_remove, on_opened_change=_forget)


def draw_present() -> None:
    """Draws the button in the heading, once there is a slide."""
    with st.session_state[PRESENT]:
        _draw()


def _forget() -> None:
    st.session_state.pop(TALK, None)


def _remove() -> None:
    """Removes the slide that the presenter has removed."""
    said: Any = (st.session_state.get(STAGE) or {}).get("remove") or {}
    slides.remove(said.get("number"), said.get("link"), store())

"""Whether the opening story of Prune plays: once, when Headroom is first opened, until the switch in the sidebar asks
for it again. A mark in the result store of this computer says that it was played.
"""

import streamlit as st

from cache import Store
from pages.ui.page.address import as_written

KEY = "opening/played"  # in the store
ASKED = "opening story asked for"  # in the session, after a click on "Play the story"
PLAYED = "opening story played"  # in the session: how often
OPENED = "opened at"  # in the session: the screen that was opened first, and the parameters of its address
LEARNING = "training asked for"  # in the session: the first of the live trainings, asked for by the opening story


def plays_next(results: Store) -> bool:
    """Returns whether the story plays when Headroom is opened next."""
    return results.get(KEY) is None


def set_plays_next(plays: bool, results: Store) -> None:
    """Sets whether the story plays when Headroom is opened next."""
    if plays:
        results.delete(KEY)
    else:
        results.put(KEY, b"played")


def note_first_screen(title: str) -> None:
    """Notes which screen a session opened first, and with which parameters; later calls change nothing."""
    st.session_state.setdefault(OPENED, (title, as_written()))


def opened_plainly(title: str) -> bool:
    """Returns whether the session opened this screen first, at an address without parameters, which it still has."""
    return st.session_state.get(OPENED) == (title, {}) and not as_written()

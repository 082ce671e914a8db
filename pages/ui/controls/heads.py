"""Links from wherever a head is named to its own page."""

from collections.abc import Sequence

import streamlit as st

from pages.ui.page.presentation import presenting
from pages.ui.page.streamlit_internals import DeltaGenerator

PAGE, KEY = "pages/head.py", "head"  # the page, and the parameter of the address that says which head
MOST = 4  # links beside each other
HELP = "Its own page: its scores, what feeds it, where it looks, what is lost without it."


def open_heads(names: Sequence[str], at: DeltaGenerator | None = None) -> None:
    """Draws a link to the page of each of these heads, of the first few; nothing on a slide."""
    if not names or presenting():
        return
    with (st if at is None else at).container(horizontal=True, gap="small"):
        for name in names[:MOST]:
            more = {"help": HELP, "query_params": {KEY: name}}
            st.page_link(PAGE, label=f"Open {name}", icon=":material/pageview:", **more)

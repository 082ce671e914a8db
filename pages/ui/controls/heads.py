"""From heads on any screen to the Heads screen, and to the text that they look at."""

from collections.abc import Sequence

import streamlit as st

from pages.ui.page.presentation import presenting
from pages.ui.page.widget_writes import write

PAGE, KEY = "pages/heads.py", "head"  # the screen, and the query parameter that names the head
MOST = 4  # links side by side
HELP = "On the Heads screen: what it is, where it looks, what it raises, what it costs."


def open_heads(names: Sequence[str]) -> None:
    """Draws links to the first few of these heads; nothing on a slide."""
    if not names or presenting():
        return
    with st.container(horizontal=True, gap="small"):
        for name in names[:MOST]:
            more = {"help": HELP, "query_params": {KEY: name}}
            st.page_link(PAGE, label=f"Open {name}", icon=":material/pageview:", **more)


def open_heads_in_text(names: Sequence[str]) -> None:
    """Opens the Text screen, shaded by the attention of these heads."""
    query = {"text_head": ",".join(names), "text_shade": "Attention"}
    for key, value in query.items():
        write(key, value)
    st.switch_page("pages/text.py", query_params=query)

"""The earlier heads that feed its keys, as a chart and a table whose rows open their pages."""

from functools import partial

import streamlit as st

from pages.ui.figures.drawing import draw_table
from pages.ui.figures.sheet import Sheet
from pages.ui.head import charts, tables
from pages.ui.head.asking import go_to
from pages.ui.head.measuring import Known, draw_missing
from pages.ui.page.tables import number

NAME = "Heads that feed it"
HELP = (
    "By weights. *K-composition*: |W_Q W_K^T (W_V W_O)^T| / (|W_Q W_K^T| |W_V W_O|), Frobenius norms, and as a "
    "multiple of random matrices (Elhage et al.); from twice on, a head stands out. Norms are folded in; rotary "
    "positions are left out. The download also has each head's part of the QK trace (Olsson et al.)."
)
SHOWN = 40


def section(known: Known, sheet: Sheet) -> None:
    """Draws the section."""
    if not known.asked.head[0]:
        st.caption("None: its layer is the first, and its keys are made of the tokens and positions alone.")
        return
    draw_missing(known, "feeding")
    frame, fed = tables.feeder_rows(known.found), known.found.feeding
    if not len(frame) or fed is None:
        return
    sheet.tables[NAME] = frame
    picture, words = charts.feeders(frame, float(fed.random.mean())), tables.feeders_in_words(frame)
    st.markdown(words, help=HELP)  # above the chart, whose toolbar would cover the tabs
    chart_at, table_at = st.container(key="wraps feeders").columns(2, gap="large")
    with chart_at:
        sheet.draw(NAME, picture, "head feeders", words)
        st.caption("Up and right: looks at the token before, and is read by the keys.")
    with table_at:
        titles = {"head": "Head", "previous_token": "Previous token", "times_random": "Times random"}
        formats = {"previous_token": number, "times_random": partial(number, digits=1)}
        names, key = tuple(frame["head"]), f"head feeders of {known.asked.name}"
        selects = {"key": key, "selection_mode": "single-row", "on_select": partial(_open, key, names)}
        height = 37 + 35 * min(7, len(frame))
        draw_table(frame.head(SHOWN), titles, words, formats=formats, height=height, **selects)
        st.caption("Select a row to open that head.")


def _open(key: str, names: tuple[str, ...]) -> None:
    """Shows the head of the selected row; for callbacks."""
    for row in st.session_state[key]["selection"]["rows"]:
        go_to(names[row])

"""The model's guess after each layer (logit lens), as a grid of layers and tokens; one token over the layers."""

from typing import Any

import streamlit as st

from engine.heads.logit_lens import LogitLens, logit_lens
from engine.measurement import Measurement
from engine.models.masks import Mask
from engine.models.session import Target
from pages.ui.attention import charts, tables
from pages.ui.controls.texts import Chosen
from pages.ui.figures.sheet import Sheet
from pages.ui.page.runtime import session
from pages.ui.page.work import Work

TITLE, GRID, OVER_LAYERS = "The guess after each layer", "Guess after each layer", "Over the layers"
HELP = (
    "Logit lens: the residual stream after each layer, read by the final norm and the unembedding as if no layer "
    "followed. In a cell: the likeliest next token. Color: the probability of the token that really follows."
)
SHOWN = 20  # tokens side by side


def draw_lens(target: Target, text: Chosen, mask: Mask, sheet: Sheet) -> Measurement[LogitLens] | None:
    """Draws the section, and returns what it shows once it is opened."""
    at = st.expander(f"{TITLE} (logit lens)", key="attention_lens", on_change="rerun")
    if not at.open:
        return None
    wanted = logit_lens(target, text.text, mask)
    with at:
        found = wanted.stored(session()) or Work("attention lens", "Logit lens", wanted, while_seen=True).awaited()
        if found is not None:
            _draw(found, sheet)
    return wanted


def _draw(found: LogitLens, sheet: Sheet) -> None:
    rows, words, n = tables.lens_rows(found), tables.lens_in_words(found), len(found.token_ids)
    sheet.tables[GRID] = rows
    sheet.says.append(words)
    st.markdown(words, help=HELP)
    first = 0
    if n > SHOWN:
        about = f"The grid shows {SHOWN} of {n} tokens, from this one on."
        first = st.slider("First token", 0, n - SHOWN, n - SHOWN, key="attention_lens_first", help=about)
    shown = rows[rows["index"].between(first, first + SHOWN - 1)]
    sheet.draw(GRID, charts.lens_grid(shown), "attention_lens_grid", words, on_select="rerun", selection_mode="cell")
    state: Any = st.session_state.get("attention_lens_grid", {})
    points = state.get("selection", {}).get("cell")
    index = points[0]["index"] if points else first + min(SHOWN, n) - 2
    of_token = rows[rows["index"] == index]
    if of_token["next"].iloc[0]:
        of = tables.lens_of_token_in_words(of_token)
        st.markdown(of)
        sheet.draw(OVER_LAYERS, charts.lens_line(of_token), "attention_lens_line", of)

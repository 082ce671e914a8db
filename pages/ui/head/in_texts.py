"""In a built-in text: where the head looks, which tokens it raises there, and the text's losses without it."""

from functools import partial

import numpy as np
import pandas as pd
import streamlit as st

from engine.studies.one_head import READ, built_in
from pages.ui.controls.controls import one_listed
from pages.ui.figures.drawing import draw_table
from pages.ui.figures.sheet import Sheet
from pages.ui.figures.text_picture import text_picture
from pages.ui.figures.token_text import CHANGE, PART_TOKENS, component_data, token_text
from pages.ui.head import tables
from pages.ui.head.measuring import Known, draw_missing
from pages.ui.page.tables import number

COUNT, ON_SCREEN = 12, 8  # rows of a table as a file, and on screen
LOOKS, RAISES, LOSES = "Looked at most", "Raised most", "Text without the head"
LOOKS_HELP = "Pairs of tokens of the largest attention, without the text's first token, where idle heads look."
RAISES_HELP = (
    "By the direct path: what the head writes there, through W_O, the final norm as it was, and the unembedding; the "
    "mean over all tokens taken off. In nats."
)
LOSES_HELP = (
    "Loss of each token without the head less that with it: orange costs more without it, blue less. In full colour "
    "from the fifth largest change on."
)
SIGNS = ("predicted better without it", "predicted worse without it")
WORDS = {"a": "with it", "b": "without", "change": "Change", "better": SIGNS[0], "worse": SIGNS[1]}


def section(known: Known, sheet: Sheet) -> None:
    """Draws the section."""
    found, titles = known.found, list(built_in())
    text_at, words_at = st.columns([2, 5], gap="large", vertical_alignment="bottom")
    about = "Of the texts that come with the app."
    title = one_listed(text_at, "Text", titles, "head_text", index=titles.index(READ), help=about)
    draw_missing(known, "losses")
    if title in found.losses:
        rows = tables.loss_rows(found.losses[title])
        size = np.sort(np.abs(rows["change"]))[::-1]
        full = float(size[min(4, len(size) - 1)]) or 1.0
        tips = ("token:N|Token", "loss:Q|Loss, nats|.2f", "without:Q|without the head|.2f", "change:Q|Change|+.2f")
        sheet.tables[LOSES], sheet.pictures[LOSES] = rows, text_picture(rows, "change", full, SIGNS, *tips)
        words_at.markdown(tables.losses_in_words(rows), help=LOSES_HELP)
        plain, without = found.losses[title]
        n_shown = min(len(plain), PART_TOKENS)
        note = f"The first {n_shown:,} of {len(plain):,} tokens." if n_shown < len(plain) else ""
        data = component_data(plain, without, range(n_shown), [])
        token_text(data, CHANGE, round(full, 2) or full, title, len(plain), note, WORDS)
    if title in found.texts:
        seen = found.texts[title]
        looks_at, raises_at = st.container(key="wraps in texts").columns(2, gap="large")
        looked, raised = tables.looked_rows(seen, COUNT), tables.raised_rows(seen, COUNT)
        sheet.add(LOOKS, looked)
        sheet.add(RAISES, raised)
        with looks_at:
            st.markdown(f"**{LOOKS}**", help=LOOKS_HELP)
            titled = {"before": "After", "from": "from", "to": "looks at", "followed": "then comes"}
            _table(looked, titled)
        with raises_at:
            st.markdown(f"**{RAISES}**", help=RAISES_HELP)
            titled = {"before": "After", "at": "at", "token": "raises", "nats": "Nats"}
            _table(raised, titled | {"came": "then came"}, nats=partial(number, digits=1, sign=True))


def _table(frame: pd.DataFrame, titles: dict[str, str], **words) -> None:  # noqa: ANN003
    shown, widths = frame.head(ON_SCREEN), {"before": 150, "nats": 50}
    config = {name: st.column_config.Column(title, width=widths.get(name, 68)) for name, title in titles.items()}
    draw_table(shown, config, " ".join(titles.values()), formats=words, height="content")

"""Which tokens the head raises wherever it looks at one, by its weights alone."""

import time
from functools import partial

import pandas as pd
import streamlit as st

from engine.heads.circuits import OvTokens, ov_tokens
from engine.studies.one_head import READ
from pages.ui.figures.drawing import draw_table
from pages.ui.figures.sheet import Sheet
from pages.ui.head import tables
from pages.ui.head.measuring import Known, draw_missing
from pages.ui.page.runtime import session
from pages.ui.page.work import Work, live

TYPED, TOKENS = "Tokens of your own", "Tokens of a text"
HELP = (
    "The row of the OV circuit, W_E W_V W_O W_U with the norms folded in: what looking at this token raises and "
    "lowers, whatever is around it. In standard deviations over the vocabulary. Positions, and what other layers "
    "write, are left out."
)
TYPED_HELP = "Any text; each of its tokens is a row. Most words begin with a blank: type ` fox`, not `fox`."
MOST = 200  # characters of the typed text
EXAMPLE = " fox"


def section(known: Known, sheet: Sheet) -> None:
    """Draws the section."""
    typed_at, words_at = st.columns([2, 5], gap="large", vertical_alignment="bottom")
    look = {"placeholder": f"such as “{EXAMPLE}”", "max_chars": MOST, "help": TYPED_HELP}
    typed = typed_at.text_input("Tokens of your own", key="head_token", bind="query-params", **look)
    typed = str(typed or "").replace("\0", "")  # from an address
    if typed.strip():
        own = _of_typed(known, typed)
        if own is not None:
            rows = rows_of(own)
            sheet.add(TYPED, rows)
            _table(rows)
    draw_missing(known, "tokens")
    found = known.found.tokens
    if found is not None:
        rows = rows_of(found)
        words_at.markdown(in_words(found), help=HELP)
        sheet.add(TOKENS, rows)
        _table(rows.sort_values("own_rank", kind="stable", ignore_index=True))


def rows_of(found: OvTokens, count: int = 6) -> pd.DataFrame:
    """Returns one row per token: its own rank among the tokens it raises, and those raised and lowered most."""
    rows = []
    for at, token in enumerate(found.token_ids):
        row = {"token": found.strings[int(token)], "own_rank": int(found.own_rank[at]), "own": float(found.own[at])}
        for side, ids in (("raises", found.raised_ids), ("lowers", found.lowered_ids)):
            row[side] = "  ".join(tables.quote_token(found.strings[int(each)]) for each in ids[at, :count])
        rows.append(row)
    return pd.DataFrame(rows)


def in_words(found: OvTokens) -> str:
    """Describes how many tokens a head raises wherever it looks at them."""
    n = len(found.token_ids)
    some = f"{round(found.copied * n) or 'none'} of the {n} different tokens of “{READ}”"
    return f"By weights alone, **{some}** are among the ten that looking at them raises most."


def _of_typed(known: Known, typed: str) -> OvTokens | None:
    """Returns the result for the typed tokens; while it is measured, the page reports that."""
    since_s = time.monotonic()
    wanted = ov_tokens(known.target, typed, known.asked.head)
    found = wanted.stored(session())
    if found is None:
        work = Work("head typed", "Your tokens", wanted, while_seen=True)
        found = work.value()
        if found is None:
            live([work.slot], work.line, since_s)
    return found


def _table(frame: pd.DataFrame) -> None:
    wide, narrow = (partial(st.column_config.Column, width=width) for width in (320, 90))
    titles = {"token": narrow("Token"), "own_rank": narrow("Rank of itself")}
    titles |= {"raises": wide("Raises most"), "lowers": wide("Lowers most")}
    height = 40 + 35 * min(8, max(1, len(frame)))
    draw_table(frame, titles, "Tokens raised and lowered by weights", height=height)

"""How a screen's results were measured: the stored receipts as text, and the link to the same view."""

from collections.abc import Sequence
from functools import partial
from urllib.parse import urlsplit

import pandas as pd
import streamlit as st

from engine.receipts import Measurements, ReceiptSummary, facts, read_receipts
from pages.ui.downloads.shipped import offer_here
from pages.ui.page.address import base_path, link
from pages.ui.page.runtime import session, store
from pages.ui.page.tables import plain
from pages.ui.page.work import Action, Work, live

SLOT = "receipts"


def draw_measured(measurements: Measurements, of: str) -> None:
    """Draws the receipts of the measurements, if there are any, and the link; `of` changes with the records read."""
    action = Action(f"{of} {store().n_puts}", partial(read_receipts, measurements, session()), reads=True)
    work = Work(SLOT, "Receipts", action, 1, while_seen=True)
    parts = work.value() if measurements else ()
    if parts is None:
        live([SLOT], work.line, 0.0)
    elif parts:
        if (measured := rows(parts)).empty:
            st.markdown("Nothing of this is stored yet: the receipt comes with the first result.")
        else:
            st.dataframe(measured, hide_index=True, alt=f"{len(measured)} parts by name, with when they were measured")
        st.caption("  \n".join(lines(parts)))
        if any(part.n_shipped for part in parts):
            offer_here(measurements, of)
    st.caption("This view as a link, for anyone who has this app open at the same address:")
    st.code(permalink(), language=None, wrap_lines=True)


def permalink() -> str:
    """Returns the address of this view."""
    address = urlsplit(st.context.url or "")
    return f"{address.scheme}://{address.netloc}{base_path()}{link()}"


def rows(parts: Sequence[ReceiptSummary]) -> pd.DataFrame:
    """Returns a row for each part with a record: when (UTC), seconds, its records, and how many of them are shipped."""
    found = [
        (each.name, each.first, each.last, round(each.seconds, 1), each.n, each.n_shipped) for each in parts if each.n
    ]
    return pd.DataFrame(found, columns=["Part", "First measured (UTC)", "Last", "Seconds", "Records", "Shipped"])


def lines(parts: Sequence[ReceiptSummary]) -> list[str]:
    """Returns model, versions and machine, one per line."""
    known = facts(receipt for part in parts for receipt in part.receipts)
    return [plain(f"{name}: {'; '.join(each)}") for name, each in known.items() if each]

"""Normalizes the query parameters of controls before they are drawn: a number out of range becomes the nearest one in
range, an option that does not exist is dropped. One line on the page reports what was changed.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlencode, urlsplit

import streamlit as st

from engine.errors import one_line
from pages.ui.page.streamlit_internals import DeltaGenerator, page_hash, rewrite_param
from pages.ui.page.tables import plain
from pages.ui.page.widget_writes import hold

NOTES = "normalized in the address"  # in the session: the page, and by control its note and its value then
MOST = 1_000_000  # for numbers without an upper bound
SHOWN = 40  # characters of a value that a note repeats
Right = Callable[[str], str | None]  # normalizes a value; None removes it, and the default applies


def number_field(where: DeltaGenerator, label: str, ends: tuple[float, float], key: str, **kwargs: Any) -> Any:
    """Draws a field for a number between two ends, a whole one if these are, bound to the address; returns it."""
    put_right(key, label, lambda text: nearest(text, ends))
    return where.number_input(label, *ends, key=key, bind="query-params", **kwargs)


def unseen_field(label: str, key: str, right: Right) -> str:
    """Returns the address's value of something that a component shows, kept in a hidden field: "" for none. Reports of
    the component are written into it by `widget_writes.write`."""
    put_right(key, label, right)
    with st.container(key=f"hidden {key}"):
        return st.text_input(label, key=key, bind="query-params") or ""


def base_path() -> str:
    """Returns the path below which the app is served, such as "/tools/headroom"; "" at the server's root."""
    path = str(st.get_option("server.baseUrlPath") or "").strip("/")
    return f"/{path}" if path else ""


def screen_path(url: str | None) -> str:
    """Returns the path of the screen at `url` below the app's own, such as "/text"; "/" is the first screen."""
    base, path = base_path(), urlsplit(url or "").path
    return path.removeprefix(base) or "/" if path.startswith(f"{base}/") else "/"  # Streamlit trims a path like /x/head


def link() -> str:
    """Returns the link to this view, below the app's own path, such as "/text?text_text=The+ferry"."""
    kept = {name: [value for value in values if value] for name, values in as_written().items()}
    query = urlencode({name: values for name, values in kept.items() if values}, doseq=True)
    return screen_path(st.context.url) + (f"?{query}" if query else "")


def as_written() -> dict[str, list[str]]:
    """Returns all query parameters: every value of each, in order."""
    return {key: st.query_params.get_all(key) for key in st.query_params}


def current_value(key: str) -> str:
    """Returns the value of a text control before it is drawn: the session's, or else the address's; "" without one."""
    return str(st.session_state.get(key) or st.query_params.get(key) or "")


def flag(text: str) -> str | None:
    """Returns a value that a switch can be set to, or None."""
    return text if text.lower() in ("true", "false") else None


def one_among(options: Iterable[str]) -> Right:
    """Returns the normalization of a choice of one of these options."""
    known = set(options)
    return lambda text: text if text in known else None


def nearest(text: str, ends: tuple[float, float]) -> str | None:
    """Returns the nearest number between two ends, an integer if these are; None if the text is not a number."""
    try:
        value = float(text)
    except ValueError:
        return None
    return None if math.isnan(value) else str(type(ends[0])(min(max(value, ends[0]), ends[1])))


def put_right(key: str, label: str, right: Right) -> None:
    """Normalizes the query parameter of a control, and notes the change; to be called before the control is drawn. Also
    holds what the app has written into the control."""
    hold(key)
    said = rewrite_param(key, lambda values: right(values[-1]) if values[-1] else None)
    text = said[-1] if said else ""
    if text and (corrected := right(text)) != text:
        short = text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
        what = "is left out" if corrected is None else f"is out of range, {corrected} is taken"
        _notes()[key] = f"{label} “{short}” {what}", corrected


def draw_notes(where: DeltaGenerator) -> None:
    """Draws one line on the normalized parameters, until the user changes them."""
    notes, state = _notes(), st.session_state
    for key, (_, value) in list(notes.items()):
        if value is not None and str(state.get(key)) != value:
            del notes[key]
    if notes:
        said = "; ".join(line for line, _ in notes.values())
        where.warning(plain(one_line(f"In the address: {said}.")), icon=":material/link:")


def _notes() -> dict[str, tuple[str, str | None]]:
    """Returns the notes on this page's normalized parameters."""
    drawn = page_hash()
    page, notes = st.session_state.get(NOTES, ("", {}))
    if drawn is not None and page != drawn:
        page, notes = drawn, {}
        st.session_state[NOTES] = page, notes
    return notes

"""What the address says of controls, put right before they are drawn: of a number beyond its range the nearest that is
allowed is taken, an option that does not exist is left out. What was put right is said in one line.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import streamlit as st

from engine.errors import one_line
from pages.ui.page.streamlit_internals import DeltaGenerator, is_back_or_forward, page_hash, rewrite_param
from pages.ui.page.tables import plain
from pages.ui.page.widget_writes import hold, write

NOTES = "put right in the address"  # in the session: the page, and by control what is said of it and its value then
MOST = 1_000_000  # where a number has no upper end of its own
SHOWN = 40  # characters of what an address says
Right = Callable[[str], str | None]  # what is to stand in the address instead; None: nothing, the default is taken


def number_field(where: DeltaGenerator, label: str, ends: tuple[int, int], key: str, **more: Any) -> Any:
    """Draws a field for a whole number between two ends, bound to the address; the number."""
    put_right(key, label, lambda text: nearest(text, ends))
    return where.number_input(label, *ends, key=key, bind="query-params", **more)


def unseen_field(label: str, key: str, right: Right) -> str:
    """What the address says of something that a component shows, as a field that nobody sees: "" for nothing. What the
    component tells is written into it by `written.write`."""
    put_right(key, label, right)
    hold(key)
    with st.container(key=f"hidden {key}"):
        return st.text_input(label, key=key, bind="query-params") or ""


def token_field(key: str, of: str) -> int | None:
    """The token that is locked in the text `of`, by its number in a component; None in a text that has just come."""
    state = st.session_state
    if state.get(f"{key} of", of) != of and not is_back_or_forward():
        write(key, "")
    state[f"{key} of"] = of
    text = unseen_field("Locked token", key, lambda text: nearest(text, (0, MOST)))
    return int(text) if text else None


def as_written() -> dict[str, list[str]]:
    """All that the address says: of each parameter every value, in order."""
    return {key: st.query_params.get_all(key) for key in st.query_params}


def flag(text: str) -> str | None:
    """What a switch can be set to."""
    return text if text.lower() in ("true", "false") else None


def one_among(options: Iterable[str]) -> Right:
    """What a choice of one of these options can be set to."""
    known = set(options)
    return lambda text: text if text in known else None


def nearest(text: str, ends: tuple[int, int]) -> str | None:
    """The whole number between two ends that is nearest to what is written; None where that is no number."""
    try:
        value = float(text)
    except ValueError:
        return None
    return None if math.isnan(value) else str(int(min(max(value, ends[0]), ends[1])))


def put_right(key: str, label: str, right: Right) -> None:
    """Before a control is drawn that is bound to the address: what the address says of it becomes what it can be."""
    said = rewrite_param(key, lambda values: right(values[-1]) if values[-1] else None)
    text = said[-1] if said else ""
    if text and (corrected := right(text)) != text:
        short = text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
        what = "is left out" if corrected is None else f"is out of range, {corrected} is taken"
        _notes()[key] = f"{label} “{short}” {what}", corrected


def put_right_several(key: str, shown: Mapping[str, str], before: Mapping[str, Collection[str]] | None = None) -> None:
    """Before a control for several options is drawn: the address says each as the control shows it.

    An option's own name is understood too, names with commas between them, and how options were shown `before`, as
    older addresses have it; what is no option is left out.
    """
    labels, older = set(shown.values()), before or {}

    def as_shown(said: list[str]) -> list[str] | None:
        if said == [""] or labels.issuperset(said):  # an empty text: none is chosen
            return said
        whole = labels.union(*older.values())
        meant = {part for text in said for part in ([text] if text in whole else text.split(","))}
        return [label for name, label in shown.items() if meant & {name, label, *older.get(name, ())}] or None

    rewrite_param(key, as_shown)


def draw_notes(where: DeltaGenerator) -> None:
    """Draws, in one line, what was put right, for as long as nobody has changed it."""
    notes, state = _notes(), st.session_state
    for key, (_, value) in list(notes.items()):
        if value is not None and str(state.get(key)) != value:
            del notes[key]
    if notes:
        said = "; ".join(line for line, _ in notes.values())
        where.warning(plain(one_line(f"In the address: {said}.")), icon=":material/link:")


def _notes() -> dict[str, tuple[str, str | None]]:
    """What was put right on this page."""
    drawn = page_hash()
    page, notes = st.session_state.get(NOTES, ("", {}))
    if drawn is not None and page != drawn:
        page, notes = drawn, {}
        st.session_state[NOTES] = page, notes
    return notes

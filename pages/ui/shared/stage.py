"""Presentation mode (`?present=1`), light or dark, and the saved views that a presenter steps through."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import streamlit as st
from streamlit.components.v2 import component

from engine.errors import HeadroomError
from pages.ui.shared import views
from pages.ui.shared.runtime import show_error, store
from pages.ui.shared.tables import plain
from pages.ui.shared.views import PRESENT, View

HERE = Path(__file__).parent
HTML = """
<div class="stage">
  <button class="back" type="button" aria-label="The view before">‹</button>
  <span class="place" role="status"></span>
  <button class="next" type="button" aria-label="The next view">›</button>
  <button class="look" type="button" aria-label="Light or dark"></button>
  <button class="leave" type="button">End</button>
</div>
"""
CSS, JS = ((HERE / f"stage.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
_COMPONENT = component("headroom_stage", html=HTML, css=CSS, js=JS)
ROOM = (HERE / "present.css").read_text(encoding="utf-8")
FAULT, CHANGES = "views fault", "views changes"
PRESENT_HELP = "Large type, no sidebar. Arrow keys or a clicker step through the saved views; Escape ends it."
VIEWS_HELP = "Screens with all their controls, to come back to and to present."


def presenting() -> bool:
    """Whether this page is shown as a slide."""
    return bool(st.query_params.get(PRESENT))


def draw_stage() -> None:
    """Draws what belongs to presenting: in the sidebar its buttons, on a slide the presenter's bar."""
    known = views.saved(store())
    data: dict[str, Any] = {"presenting": presenting(), "views": [{"name": v.name, "link": v.link} for v in known]}
    data["here"] = _here()
    if presenting():
        st.html(f"<style>{ROOM}</style>")
        _COMPONENT(key="stage", data=data)
        return
    present_at, views_at, look_at = st.sidebar.columns([19, 17, 11], gap="xsmall", vertical_alignment="center")
    look: dict[str, Any] = {"icon": ":material/slideshow:", "type": "tertiary", "help": PRESENT_HELP}
    present_at.button("Present", key="start presenting", on_click=_present, **look)
    with views_at:
        _draw_views()
    with look_at:
        _COMPONENT(key="stage", data=data)


@st.fragment
def _draw_views() -> None:
    """The saved views: one more, another order, as a file and from one.

    A browser tells the same click, name or file again with whatever it asks for until it has heard of the run after it,
    a timer's run among them. Controls are of one state of the list, and new ones after each change: what is told of
    those before is no longer heard.
    """
    look: dict[str, Any] = {"type": "tertiary", "help": VIEWS_HELP}
    at = st.popover("Views", key="views", on_change="rerun", **look)
    if not at.open:
        return
    known, changes = views.saved(store()), st.session_state.setdefault(CHANGES, 0)
    with at:
        if fault := st.session_state.pop(FAULT, None):
            show_error(fault)
        label, key, told = "Name of this view", f"view_name {changes}", {"on_change": _add, "args": (changes,)}
        st.text_input(label, key=key, max_chars=views.MAX_NAME, placeholder="such as All heads", **told)
        for number in range(len(known)):
            _draw_view(number, known, changes)
        if known:
            file, about = views.written(known), "All of them as one file, to be loaded on another computer."
            st.download_button("Save as a file", file, "views.json", "application/json", on_click="ignore", help=about)
        else:
            st.caption("None yet. Set a screen as you like it, give it a name, and press Enter.")
        more: dict[str, Any] = {"help": "Adds the views of such a file behind these.", "max_upload_size": 1}
        told = {"on_change": _load, "args": (changes,)}
        st.file_uploader("Load a file of views", "json", key=f"views_file {changes}", **told, **more)


def _draw_view(number: int, known: tuple[View, ...], changes: int) -> None:
    view, n = known[number], len(known)
    name_at, *buttons_at = st.columns([8, 1, 1, 1], vertical_alignment="center", gap="xsmall")
    name_at.markdown(f"{number + 1}\u2002{plain(view.name)}", help=plain(view.link[:200]))
    ways = (("↑", "Earlier", -1), ("↓", "Later", 1), ("×", "Forget this view", 0))
    for (sign, help, by), at in zip(ways, buttons_at, strict=True):
        off = (by < 0 and not number) or (by > 0 and number == n - 1)
        look: dict[str, Any] = {"type": "tertiary", "help": help, "disabled": off, "args": (changes, number, view, by)}
        at.button(sign, key=f"view {number} by {by} {changes}", on_click=_change, **look)


def _here() -> str:
    """The link to the page as it is."""
    return views.link_of(urlsplit(st.context.url or "").path, st.query_params.to_dict())


def _present() -> None:
    st.query_params[PRESENT] = "1"


def _add(changes: int) -> None:
    """Saves the page as it is under the name that was typed."""
    if name := st.session_state.get(f"view_name {changes}"):
        _keep(changes, lambda known: (*known, views.checked(View(name, _here()))))


def _change(changes: int, number: int, view: View, by: int) -> None:
    """Moves a view, or deletes it (`by` 0); nothing where another tab has changed the list."""

    def changed(known: tuple[View, ...]) -> tuple[View, ...]:
        if number >= len(known) or known[number] != view:
            return known
        return views.moved(known, number, by) if by else (*known[:number], *known[number + 1 :])

    _keep(changes, changed)


def _load(changes: int) -> None:
    if file := st.session_state.get(f"views_file {changes}"):
        _keep(changes, lambda known: (*known, *views.read(file.getvalue())))


def _keep(changes: int, change: Any) -> None:
    """Keeps the views as `change` makes them of those there are, where the list is as after so many `changes`; its
    error is shown by the next run."""
    if changes != st.session_state.get(CHANGES):
        return  # told a second time
    st.session_state[CHANGES] = changes + 1
    try:
        found = change(views.saved(store()))
        if len(found) > views.MAX_VIEWS:
            raise HeadroomError(f"{len(found)} views are too many; keep up to {views.MAX_VIEWS}")
        views.save(found, store())
    except HeadroomError as error:
        st.session_state[FAULT] = str(error)

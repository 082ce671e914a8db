"""Presentation mode (`?present=1`), light or dark, and the saved views that a presenter steps through."""

from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.components.v2 import component

from pages.ui.page import saved_views as views
from pages.ui.page.address import as_written, base_path, screen_path
from pages.ui.page.runtime import show_error, store
from pages.ui.page.saved_views import PRESENT, SavedView
from pages.ui.page.streamlit_internals import PAGE_SCRIPT, browser_address
from pages.ui.page.tables import plain

HERE = Path(__file__).parent
PRESENT_HELP = "Shows the saved views. Arrow keys step, 1 to 9 open; Escape ends."
COPY_HELP = (
    "Copies the address of this screen with all its controls. One at 127.0.0.1 opens on any computer on which Headroom "
    "runs at the same port."
)
HTML = f"""
<div class="home"><div class="stage">
  <button hidden class="start" type="button" title="{PRESENT_HELP}">Present</button>
  <button hidden class="copy" type="button" title="{COPY_HELP}">Copy link</button>
  <button hidden class="back" type="button" aria-label="The view before">‹</button>
  <span class="place" role="status"></span>
  <button hidden class="next" type="button" aria-label="The next view">›</button>
  <button class="look" type="button" aria-label="Light or dark"></button>
  <button hidden class="leave" type="button">End</button>
  <span class="copied" role="status"></span>
  <span hidden class="more">One slide. For more, save screens under Views.</span>
</div></div>
"""
CSS, JS = ((HERE / f"presentation.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
_COMPONENT = component("headroom_stage", html=HTML, css=CSS, js=PAGE_SCRIPT + JS)
BUTTON = "views button"  # in the session: the number of the button that saves one
FAULT, SAVED = "views fault", "views saved"  # in the session: what the next run says
HEARD = "views heard"  # in the session: the name that was saved last
VIEW_NAME = "view name"  # in the session: the screen drawn last, and the name proposed for a view of it
UNNAMED = "1"  # the value of the parameter for a slide that is not a saved view
VIEWS_HELP = "Saves a screen with all its controls under a name, to return to or to present."


def presenting() -> bool:
    """Returns whether this page is shown as a slide."""
    return bool(st.query_params.get(PRESENT))


def slide_title() -> str:
    """Returns the title that the address gives a slide, the name of its view; "" if it gives none."""
    name = str(st.query_params.get(PRESENT) or "")
    return name if name != UNNAMED and name.isprintable() and len(name) <= views.MAX_NAME else ""


def draw_stage(title: str) -> None:
    """Draws the controls of presenting on the screen of this `title`: in the sidebar its buttons, on a slide the
    presenter's bar."""
    if presenting():
        _draw_bar()
        return
    with st.sidebar:
        _draw_buttons(title)


@st.fragment
def _draw_buttons(title: str) -> None:
    """Draws the saved views and the buttons next to them: in one fragment, as these need the views just saved."""
    views_at, stage_at = st.columns([2, 5], gap="xsmall", vertical_alignment="center")
    with views_at:
        _draw_views(title)
    with stage_at:
        _draw_bar()


def _draw_bar() -> None:
    known = [{"name": view.name, "link": base_path() + view.link} for view in views.saved(store())]
    here = base_path() + _link_of(st.context.url)
    _COMPONENT(key="stage", data={"presenting": presenting(), "views": known, "here": here})


def _draw_views(title: str) -> None:
    """Draws the saved views, and saves another one.

    A browser repeats the same click and name with each of its requests, a timer's run among them, until it has
    received the run after it. So the button is replaced by a new one, with the next number, once it was heard: reports
    of the previous one are ignored. The text field stays: it has the focus.
    """
    look: dict[str, Any] = {"type": "tertiary", "help": VIEWS_HELP}
    at = st.popover("Views", key="views", on_change="rerun", **look)
    typed = views.printable(str(st.session_state.get("view_name") or ""))
    if typed not in ("", st.session_state.get(HEARD)):
        _save(typed)  # sent with a Save button that a run has replaced meanwhile
    if name := st.session_state.pop(SAVED, ""):
        number = max(at for at, view in enumerate(views.saved(store()), start=1) if view.name == name)
        st.toast(f"Saved as slide {number}: {plain(name)}", icon=":material/bookmark_added:")
    if not at.open:
        return
    known = views.saved(store())
    with at:
        if fault := st.session_state.pop(FAULT, None):
            show_error(fault)
        with st.form("name a view", border=False):
            name_at, save_at = st.columns([2, 1], vertical_alignment="bottom")
            screen, named = st.session_state.get(VIEW_NAME, ("", ""))
            name = views.free_name(named if screen == title else title, str(st.session_state.get("model") or ""), known)
            name_at.text_input("Name of this view", key="view_name", max_chars=views.MAX_NAME, placeholder=name)
            number = st.session_state.setdefault(BUTTON, 0)
            action: dict[str, Any] = {"on_click": _add, "args": (number, name)}
            save_at.form_submit_button("Save", key=f"save view {number}", help="Enter does the same.", **action)
        with st.container(key="views_list", gap="xxsmall"):
            for number, view in enumerate(known):
                _draw_view(number, view)
        st.caption(
            "*Present* shows these screens as slides." if known else "Saved screens are the slides of *Present*."
        )
        if known:
            st.button("Present this screen", key="present_this", help="Shows it without saving it.")  # presentation.js


def _draw_view(number: int, view: SavedView) -> None:
    name_at, delete_at = st.columns([10, 1], vertical_alignment="center", gap="xsmall")
    name_at.markdown(f"{number + 1}\u2002[{plain(view.name)}]({base_path()}{view.link})")  # opened by presentation.js
    look: dict[str, Any] = {"type": "tertiary", "help": "Delete this view", "args": (number, view)}
    delete_at.button("×", key=f"delete view {number}", on_click=_delete, **look)


def _link_of(url: str | None) -> str:
    """Returns the link to the page at `url` with its present controls, as saved views have it."""
    return views.link_of(screen_path(url), as_written())


def _add(number: int, name: str) -> None:
    """Saves the page at a click that is not a repeated one: under the typed name, or else under this one, unless it is
    saved, as after Enter and a click."""
    if number != st.session_state[BUTTON]:
        return
    st.session_state[BUTTON] = number + 1
    typed, link = views.printable(str(st.session_state.get("view_name") or "")), _link_here()
    if not typed and (same := [view.name for view in views.saved(store()) if view.link == link]):
        st.session_state[SAVED] = same[-1]
    else:
        _save(typed or name)


def _link_here() -> str:
    return _link_of(browser_address())


def _save(name: str) -> None:
    """Saves the page with its present controls under a name, unless there are too many, which the next run reports."""
    st.session_state[HEARD] = name
    known = views.saved(store())
    if len(known) >= views.MAX_VIEWS:
        st.session_state[FAULT] = f"{len(known)} views are saved, as many as can be; delete one first"
        return
    views.save((*known, SavedView(name, _link_here())), store())
    st.session_state[SAVED] = name
    st.session_state["view_name"] = ""  # not before: a browser that clears it at once may then send Save without it


def _delete(number: int, view: SavedView) -> None:
    """Deletes a view; does nothing if the list has changed since."""
    known = views.saved(store())
    if known[number : number + 1] == (view,):
        views.save((*known[:number], *known[number + 1 :]), store())

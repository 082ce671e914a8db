"""Presentation mode (`?present=1`), light or dark, and the saved views that a presenter steps through."""

from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.components.v2 import component

from engine.errors import HeadroomError
from pages.ui.page import saved_views as views
from pages.ui.page.address import as_written, base_path, screen_path
from pages.ui.page.runtime import show_error, store
from pages.ui.page.saved_views import PRESENT, SavedView
from pages.ui.page.streamlit_internals import PAGE_SCRIPT, browser_address
from pages.ui.page.tables import plain

HERE = Path(__file__).parent
PRESENT_HELP = "Shows the saved views, from this screen if it is one. Arrow keys step, 1 to 9 open; Escape ends."
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
FAULT, SAVED = "views fault", "views saved"  # in the session: what the next run says
HEARD = "views heard"  # in the session: the name that was saved last
PRUNED_BY = "pruned by"  # in the session: the screen that last set the shared mask
VIEW_NAME = "view name"  # in the session: the screen drawn last, and the name proposed for a view of it
WITHOUT_MASK = "view_without_mask"
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
    """Draws the saved views: adds one, reorders, saves them to a file and loads one.

    A browser repeats the same click, name or file with each of its requests, a timer's run among them, until it has
    received the run after it. So a control for a name or a file is replaced by a new one, with the next number, once it
    was heard: reports of the previous one are ignored. The text field itself stays: it has the focus.
    """
    look: dict[str, Any] = {"type": "tertiary", "help": VIEWS_HELP}
    at = st.popover("Views", key="views", on_change="rerun", **look)
    if (typed := st.session_state.get("view_name")) not in (None, "", st.session_state.get(HEARD)):
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
            if mask := _mask_of_another_screen():
                st.caption(f"Saved with {plain(mask if len(mask) <= 40 else mask[:40] + '…')} pruned.")
                st.checkbox("Leave the pruning out", key=WITHOUT_MASK, help="Another screen pruned it.")
            key, action = f"save view {_number('name')}", {"on_click": _add, "args": (_number("name"), name)}
            save_at.form_submit_button("Save", key=key, help="Enter does the same.", **action)
        with st.container(key="views_list", gap="xxsmall"):
            for number, view in enumerate(known):
                _draw_view(number, view, len(known))
        st.caption(
            "*Present* shows these screens as slides." if known else "Saved screens are the slides of *Present*."
        )
        if known:
            st.button("Present this screen", key="present_this", help="Shows it without saving it.")  # presentation.js
            file, about = views.written(known), "All views in one file, for another computer."
            st.download_button("Save as a file", file, "views.json", "application/json", on_click="ignore", help=about)
        more: dict[str, Any] = {"help": "Adds the views in the file after these.", "max_upload_size": 1}
        more |= {"on_change": _load, "args": (_number("file"),)}
        st.file_uploader("Load views from a file", "json", key=f"views_file {_number('file')}", **more)


def _draw_view(number: int, view: SavedView, n: int) -> None:
    name_at, *buttons_at = st.columns([8, 1, 1, 1], vertical_alignment="center", gap="xsmall")
    name_at.markdown(f"{number + 1}\u2002[{plain(view.name)}]({base_path()}{view.link})")  # opened by presentation.js
    ways = (("↑", "Earlier", -1), ("↓", "Later", 1), ("×", "Delete this view", 0))
    for (sign, help, by), at in zip(ways, buttons_at, strict=True):
        off = (by < 0 and not number) or (by > 0 and number == n - 1)
        look: dict[str, Any] = {"type": "tertiary", "help": help, "disabled": off, "args": (number, view, by)}
        at.button(sign, key=f"view {number} by {by}", on_click=_change, **look)


def _link_of(url: str | None, with_mask: bool = True) -> str:
    """Returns the link to the page at `url` with its present controls, as saved views have it."""
    controls = {name: each for name, each in as_written().items() if with_mask or not name.endswith("_mask")}
    return views.link_of(screen_path(url), controls)


def _mask_of_another_screen() -> str:
    """Returns the mask in the address if another screen set it, or else ""."""
    masks = {name.removesuffix("_mask"): each[0] for name, each in as_written().items() if name.endswith("_mask")}
    by = st.session_state.get(PRUNED_BY)
    return next((mask for screen, mask in masks.items() if by not in (None, screen)), "")


def _number(what: str) -> int:
    """Returns the number of the controls for the "name" or the "file"."""
    return st.session_state.setdefault(f"views {what}", 0)


def _add(number: int, name: str) -> None:
    """Saves the page at a click that is not a repeated one: under the typed name, or else under this one, unless it is
    saved, as after Enter and a click."""
    if not _is_new("name", number):
        return
    typed, link = str(st.session_state.get("view_name") or "").strip(), _link_here()
    if not typed and (same := [view.name for view in views.saved(store()) if view.link == link]):
        st.session_state[SAVED] = same[-1]
    else:
        _save(typed or name)


def _link_here() -> str:
    return _link_of(browser_address(), not st.session_state.get(WITHOUT_MASK))


def _save(name: str) -> None:
    """Saves the page with its present controls under a name."""
    st.session_state[HEARD] = name
    link = _link_here()
    if _keep(lambda known: (*known, views.checked(SavedView(name, link)))):
        st.session_state[SAVED] = name
        st.session_state["view_name"] = ""  # not before: a browser that clears it at once may then send Save without it


def _change(number: int, view: SavedView, by: int) -> None:
    """Moves a view, or deletes it (`by` 0); does nothing if the list has changed since."""

    def changed(known: tuple[SavedView, ...]) -> tuple[SavedView, ...]:
        if number >= len(known) or known[number] != view:
            return known
        return views.moved(known, number, by) if by else (*known[:number], *known[number + 1 :])

    _keep(changed)


def _load(number: int) -> None:
    file = st.session_state.get(f"views_file {number}")
    if file and _is_new("file", number):
        _keep(lambda known: (*known, *views.read(file.getvalue())))


def _is_new(what: str, number: int) -> bool:
    """Returns whether this control is heard for the first time; from then on it is not drawn."""
    if number != _number(what):
        return False
    st.session_state[f"views {what}"] = number + 1
    return True


def _keep(change: Any) -> bool:
    """Saves the views as changed by `change`, and returns whether it could; its error is shown by the next run."""
    try:
        found = change(views.saved(store()))
        if len(found) > views.MAX_VIEWS:
            raise HeadroomError(f"{len(found)} views are too many; keep up to {views.MAX_VIEWS}")
        views.save(found, store())
    except HeadroomError as error:
        st.session_state[FAULT] = str(error)
        return False
    return True

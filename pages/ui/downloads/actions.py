"""The buttons of every screen: Export, whose panel has files, command, program and receipts, and Add slide."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import streamlit as st

from engine.requests.base import OnRay
from engine.views import pictures
from pages.ui.downloads import slides
from pages.ui.downloads.exports import ScreenFiles, file_name, to_html, to_notebook, to_zip
from pages.ui.downloads.origin import Origin
from pages.ui.downloads.provenance import draw_measured, permalink
from pages.ui.downloads.shipped import load_ahead
from pages.ui.downloads.slides import Slide
from pages.ui.downloads.talk import to_talk
from pages.ui.figures.sheet import Sheet
from pages.ui.page.address import link
from pages.ui.page.marks import mark
from pages.ui.page.runtime import session, store
from pages.ui.page.screens import ACTIONS
from pages.ui.page.streamlit_internals import keep_download
from pages.ui.page.tables import plain

EXPORT = "export"  # the panel
ADD_HELP = "Adds this screen, as it is now, to the slides of Present: its finding and first charts."
HTML_HELP = "One file that any browser opens from disk, without this app and without a network; its charts are alive."
ZIP_HELP = "Every picture and table, the command, the program, the receipts and the page."
NOTEBOOK_HELP = "The requests behind this screen, their tables, and its charts. Runs wherever Headroom is installed."
TALK_HELP = "All slides as one file that any browser opens without a network. Arrow keys step through them."
SVG, PNG, CSV = ("svg", "image/svg+xml"), ("png", "image/png"), ("csv", "text/csv")
HTML, NOTEBOOK = ("html", "text/html"), ("ipynb", "application/x-ipynb+json")
N_ROWS, N_COLUMNS = 12, 6  # of a table on a slide
ADDED = "slide added"  # in the session: the number of the slide just added


def draw_actions(origin: Origin, sheet: Sheet) -> None:
    """Draws, in the heading, the buttons of a screen whose results have been drawn. Files, receipts and slides are made
    when they are asked for."""
    with st.session_state[ACTIONS]:
        mark("command", "drawn", text=origin.command)
        if sheet.tables or sheet.pictures:  # else nothing on the screen is shipped
            load_ahead(origin.measurements)
        _draw(ScreenFiles(origin, sheet, session(), permalink()), link())


@st.fragment
def _draw(files: ScreenFiles, link: str) -> None:
    """Draws the buttons, in a fragment: nothing else changes when the panel opens or a slide is added."""
    row = st.container(key="title_actions", horizontal=True, gap="small")
    panel = row.popover("Export", key=EXPORT, on_change="rerun", icon=":material/download:", type="tertiary")
    if panel.open:
        with panel, st.container(key="export_panel"):
            _draw_panel(files)
    kwargs: dict[str, Any] = {"icon": ":material/add_to_queue:", "type": "tertiary"}
    found = files.sheet.findings(files.origin.screen)
    if len(found) == 1:
        chosen = [*found] if row.button("Add slide", key="add_slide", help=ADD_HELP, **kwargs) else []
    else:
        with row.popover("Add slide", key="add_slide_of", help=ADD_HELP, **kwargs):
            chosen = [each for each in found if st.button(plain(each), key=f"add_slide {each}", type="tertiary")]
    for title in chosen:
        _add(make_slide(files, title, found[title], link))
    if number := st.session_state.pop(ADDED, None):
        mark("slide", "added", number=number)


def _add(slide: Slide) -> None:
    """Adds a slide; not twice in a row, as a browser may repeat a click."""
    known = slides.saved(store())
    if len(known) >= slides.MOST:
        st.toast(f"There are {len(known)} slides, as many as can be: remove one first, in Present.")
        return
    if slide not in known[-1:]:
        known = (*known, slide)
        slides.save(known, store())
    st.toast(f"Slide {len(known)}: {plain(slide.title)}", icon=":material/slideshow:")
    st.session_state[ADDED] = len(known)
    if len(known) == 1:
        st.rerun()  # draws Present, which is not in this fragment


def make_slide(files: ScreenFiles, title: str, names: Sequence[str], link: str) -> Slide:
    """Returns the slide of some of a screen's charts, or of its first table if it has none."""
    sheet = files.sheet
    of = {name: sheet.picture(name) for name in names}
    specs = pictures.slide_specs(of)
    table = () if specs else sheet.rows(N_ROWS, N_COLUMNS)
    return Slide(title, files.caption, link, tuple(specs), table)


def draw_command(command: str) -> None:
    """Draws the shell command that reads the results shown here."""
    note = "  # text.txt: your own text, saved as a file" if "--text text.txt" in command else ""
    st.code(command + note, language="shell", wrap_lines=True)


def _draw_panel(files: ScreenFiles) -> None:
    origin = files.origin
    _draw_files(files)
    st.markdown("**Command and program**")
    draw_command(origin.command)
    if any(isinstance(request, OnRay) for request in origin.requests):
        st.caption("Add `--ray` to measure it with several GPUs or machines.")
    with st.expander("As Python"):
        st.code(origin.python, language="python")
    st.markdown("**How this was measured**")
    for note in origin.notes:
        st.caption(plain(note))
    draw_measured(origin.measurements, origin.command)


def _draw_files(files: ScreenFiles) -> None:
    """Draws the buttons of the files, each made when its button is clicked: those of the screen, and a row for each of
    its pictures and tables."""
    screen, sheet, talk = files.origin.screen, files.sheet, slides.saved(store())
    with st.container(horizontal=True):
        _button("Page (HTML)", partial(to_html, files), screen, HTML, HTML_HELP)
        _button("Everything (ZIP)", partial(to_zip, files), screen, ("zip", "application/zip"), ZIP_HELP)
        _button("Notebook", partial(to_notebook, files), screen, NOTEBOOK, NOTEBOOK_HELP)
        if talk:
            _button(f"Slides, {len(talk)} (HTML)", partial(to_talk, talk), "slides", HTML, TALK_HELP)
    with st.container(gap="xxsmall"):
        for name in dict.fromkeys([*sheet.pictures, *sheet.tables]):
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                st.markdown(plain(name), width="stretch")
                if name in sheet.pictures:
                    _button("PNG", partial(files.png, name), name, PNG, type="tertiary")
                    _button("SVG", partial(files.svg, name), name, SVG, type="tertiary")
                if name in sheet.tables:
                    _button("CSV", partial(sheet.table, name), name, CSV, type="tertiary")


def _button(
    label: str, make: Callable[[], bytes], name: str, form: tuple[str, str], help: str = "", **kwargs: Any
) -> None:
    ending, mime = form
    file = file_name(name, ending)
    kwargs |= {"key": f"download {file}", "on_click": "ignore", "help": help or None}
    st.download_button(label, lambda: keep_download(make(), mime, file), file, mime, **kwargs)

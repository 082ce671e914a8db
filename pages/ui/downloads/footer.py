"""The footer of every screen: the equivalent command, how it was measured, and its results as files."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import streamlit as st

from engine.requests.base import OnRay
from pages.ui.downloads.exports import ScreenFiles, file_name, to_html, to_zip
from pages.ui.downloads.notebook import TUTORIAL, to_notebook
from pages.ui.downloads.origin import Origin
from pages.ui.downloads.provenance import draw_measured, permalink
from pages.ui.downloads.shipped import draw_shipped
from pages.ui.figures.sheet import Sheet
from pages.ui.page.marks import mark
from pages.ui.page.presentation import VIEW_NAME, presenting
from pages.ui.page.runtime import session
from pages.ui.page.saved_views import MAX_PROPOSED
from pages.ui.page.streamlit_internals import keep_download
from pages.ui.page.tables import plain

COMMAND_HELP = "The shell command that measures the same, or reads the results stored here."
MEASURED_HELP = "When, on which machine, with which versions and how long; and the link to this view."
PYTHON_HELP = "A program that reads the same numbers through the engine."
HTML_HELP = "One file that any browser opens from disk, without this app and without a network; its charts are alive."
ZIP_HELP = "Every picture and table, the command, the program, the receipts and the page."
NOTEBOOK_HELP = "The requests behind this screen, their tables, and its charts. Runs wherever Headroom is installed."
TUTORIAL_HELP = "Finds and removes the heads behind in-context learning in ten cells, with the included model."
NOTEBOOK = ("ipynb", "application/x-ipynb+json")
LEAST_HEADLINE = 24  # characters: fewer are a number, without what it is of
SVG, PNG = ("svg", "image/svg+xml"), ("png", "image/png")


def closing(origin: Origin, sheet: Sheet) -> None:
    """Draws a row of buttons: the command, the receipts, the Python program, and the downloads. A file is made when its
    button is clicked: the screen as a page and as an archive, tables as CSV, pictures as PNG and as SVG."""
    st.session_state[VIEW_NAME] = origin.screen, headline(sheet.says) or origin.view_name
    if presenting() and origin.about:
        st.container(key="about").caption(plain(origin.about))
    with st.container(key="closing"):  # hidden on a slide
        mark("command", "drawn", text=origin.command)  # the browser draws a popover's content once it is open
        if sheet.tables or sheet.pictures:  # else nothing on the screen is shipped
            draw_shipped(origin.measurements, origin.command)
        _draw_buttons(ScreenFiles(origin, sheet, session(), permalink()))


def headline(says: Sequence[str]) -> str:
    """Returns the words in bold of the first sentence, to name a view by its finding; "" if too few or too many."""
    bold = re.search(r"\*\*(.+?)\*\*", says[0]) if says and not says[0].startswith("So far") else None
    words = bold[1].replace("\\", "") if bold else ""
    return words if LEAST_HEADLINE <= len(words) <= MAX_PROPOSED else ""


def draw_command(command: str) -> None:
    """Draws the shell command that reads the results shown here."""
    st.code(command, language="shell", wrap_lines=True)
    if "--text text.txt" in command:
        st.caption("`text.txt` stands for your own text, saved as a file.")


@st.fragment
def _draw_buttons(files: ScreenFiles) -> None:
    """Draws the buttons, in a fragment: the receipts are read when they are opened, and nothing else changes then."""
    origin = files.origin
    with st.container(horizontal=True):
        with st.popover("Command", icon=":material/terminal:", help=COMMAND_HELP):
            draw_command(origin.command)
            if any(isinstance(request, OnRay) for request in origin.requests):
                st.caption("Add `--ray` to measure it with several GPUs or machines.")
        title, icon = "How was this measured?", ":material/receipt_long:"
        measured = st.popover(title, key="measured", on_change="rerun", icon=icon, help=MEASURED_HELP)
        with st.popover("As Python", icon=":material/code:", help=PYTHON_HELP):
            st.code(origin.python, language="python")
        with st.popover("Download", icon=":material/download:"):
            _draw_files(files)
    if measured.open:
        with measured:
            draw_measured(origin.measurements, origin.command)


def _draw_files(files: ScreenFiles) -> None:
    st.markdown("**This screen**")
    _button("This screen (HTML)", partial(to_html, files), files.origin.screen, ("html", "text/html"), HTML_HELP)
    _button("Everything (ZIP)", partial(to_zip, files), files.origin.screen, ("zip", "application/zip"), ZIP_HELP)
    _button("Notebook (IPYNB)", partial(to_notebook, files), files.origin.screen, NOTEBOOK, NOTEBOOK_HELP)
    if files.origin.screen == "Prune":
        _button("Tutorial (IPYNB)", TUTORIAL.read_bytes, "tutorial", NOTEBOOK, TUTORIAL_HELP)
    if files.sheet.tables:
        st.markdown("**Tables**")
    for name in files.sheet.tables:
        _button(f"{name} (CSV)", partial(files.sheet.table, name), name, ("csv", "text/csv"))
    if files.sheet.pictures:
        st.markdown("**Pictures**")
    for name in files.sheet.pictures:
        for make, form, at in zip((files.png, files.svg), (PNG, SVG), st.columns(2), strict=True):
            with at:
                _button(f"{name} ({form[0].upper()})", partial(make, name), name, form)


def _button(label: str, make: Callable[[], bytes], name: str, form: tuple[str, str], help: str = "") -> None:
    ending, mime = form
    file = file_name(name, ending)
    about: dict[str, Any] = {"key": f"download {file}", "on_click": "ignore", "width": "stretch", "help": help or None}
    st.download_button(label, lambda: keep_download(make(), mime, file), file, mime, **about)

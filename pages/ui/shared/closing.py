"""What every screen ends with: the command that measures the same, how it was measured, and all it shows as files."""

from collections.abc import Callable, Mapping
from functools import partial

import pandas as pd
import streamlit as st

from pages.ui.shared import charts
from pages.ui.shared.measured import draw_measured
from pages.ui.shared.origin import Origin
from pages.ui.shared.tables import to_csv

Table = pd.DataFrame | Callable[[], bytes]  # or what makes the bytes of a CSV file
MEASURED_HELP = "When, on which machine, with which versions and how long; and the link to this view."
PYTHON_HELP = "A program that finds the same numbers through the engine."


def closing(origin: Origin, tables: Mapping[str, Table], pictures: Mapping[str, charts.Picture]) -> None:
    """Draws the command, and buttons: the receipts, the Python program, and a button for each file, which is made only
    when clicked: tables as CSV, pictures as PNG and as SVG."""
    draw_command(origin.command)
    _draw_buttons(origin, tables, pictures)


def draw_command(command: str) -> None:
    """Draws the shell command that finds what is shown here."""
    st.code(command, language="shell", wrap_lines=True)


@st.fragment
def _draw_buttons(origin: Origin, tables: Mapping[str, Table], pictures: Mapping[str, charts.Picture]) -> None:
    """What can be opened; a part of its own, as the receipts are read when they are asked for, and nothing else changes
    then."""
    with st.container(horizontal=True):
        title, icon = "How was this measured?", ":material/receipt_long:"
        measured = st.popover(title, key="measured", on_change="rerun", icon=icon, help=MEASURED_HELP)
        with st.popover("As Python", icon=":material/code:", help=PYTHON_HELP):
            st.code(origin.python, language="python")
        with st.popover("Download", icon=":material/download:", help="Everything on this screen, as files."):
            _draw_files(tables, pictures)
    if measured.open:
        with measured:
            draw_measured(origin.reads, origin.command)


def _draw_files(tables: Mapping[str, Table], pictures: Mapping[str, charts.Picture]) -> None:
    for name, table in tables.items():
        make = partial(to_csv, table) if isinstance(table, pd.DataFrame) else table
        _button(f"{name} (CSV)", make, name, "csv", "text/csv")
    for name, picture in pictures.items():
        png, svg = st.columns(2)
        with png:
            _button(f"{name} (PNG)", partial(charts.to_png, picture, name), name, "png", "image/png")
        with svg:
            _button(f"{name} (SVG)", partial(charts.to_svg, picture, name), name, "svg", "image/svg+xml")


def _button(label: str, make: Callable[[], bytes], name: str, ending: str, mime: str) -> None:
    file = f"{name.lower().replace(' ', '-')}.{ending}"
    key, help = f"download {file}", f"Saves {file}."
    st.download_button(label, make, file, mime, key=key, on_click="ignore", width="stretch", help=help)

"""What every screen ends with: the command that measures the same, and all it shows as files."""

from collections.abc import Callable, Mapping
from functools import partial

import pandas as pd
import streamlit as st

from pages.ui.shared import charts
from pages.ui.shared.tables import to_csv

Table = pd.DataFrame | Callable[[], bytes]  # or what makes the bytes of a CSV file


def closing(command: str, tables: Mapping[str, Table], pictures: Mapping[str, charts.Picture]) -> None:
    """Draws the command, one or several lines, and a button for each file, which is made only when clicked: tables as
    CSV, pictures as PNG and as SVG."""
    draw_command(command)
    with st.popover("Download", icon=":material/download:", help="Everything on this screen, as files."):
        for name, table in tables.items():
            make = partial(to_csv, table) if isinstance(table, pd.DataFrame) else table
            _button(f"{name} (CSV)", make, name, "csv", "text/csv")
        for name, picture in pictures.items():
            png, svg = st.columns(2)
            with png:
                _button(f"{name} (PNG)", partial(charts.to_png, picture, name), name, "png", "image/png")
            with svg:
                _button(f"{name} (SVG)", partial(charts.to_svg, picture, name), name, "svg", "image/svg+xml")


def draw_command(command: str) -> None:
    """Draws the shell command that finds what is shown here."""
    st.code(command, language="shell", wrap_lines=True)


def _button(label: str, make: Callable[[], bytes], name: str, ending: str, mime: str) -> None:
    file = f"{name.lower().replace(' ', '-')}.{ending}"
    key, help = f"download {file}", f"Saves {file}."
    st.download_button(label, make, file, mime, key=key, on_click="ignore", width="stretch", help=help)

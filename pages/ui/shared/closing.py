"""What every screen ends with: the command that measures the same, and all it shows as files."""

from collections.abc import Callable, Mapping
from functools import partial

import streamlit as st

from pages.ui.shared import charts


def closing(command: str, tables: Mapping[str, Callable[[], bytes]], pictures: Mapping[str, charts.Picture]) -> None:
    """Draws the command, one or several lines, and the downloads."""
    draw_command(command)
    downloads(tables, pictures)


def draw_command(command: str) -> None:
    """Draws the shell command that finds what is shown here."""
    st.code(command, language="shell", wrap_lines=True)


def downloads(tables: Mapping[str, Callable[[], bytes]], pictures: Mapping[str, charts.Picture]) -> None:
    """One button a file, made only when clicked; each picture as PNG and as SVG."""
    with st.popover("Download", icon=":material/download:", help="Everything on this screen, as files."):
        for name, make in tables.items():
            _button(f"{name} (CSV)", make, name, "csv", "text/csv")
        for name, picture in pictures.items():
            png, svg = st.columns(2)
            with png:
                _button(f"{name} (PNG)", partial(charts.to_png, picture, name), name, "png", "image/png")
            with svg:
                _button(f"{name} (SVG)", partial(charts.to_svg, picture, name), name, "svg", "image/svg+xml")


def _button(label: str, make: Callable[[], bytes], name: str, ending: str, mime: str) -> None:
    file = f"{name.lower().replace(' ', '-')}.{ending}"
    st.download_button(
        label, make, file, mime, key=f"download {file}", on_click="ignore", width="stretch", help=f"Saves {file}."
    )

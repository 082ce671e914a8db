"""The colours that are not the theme's: its own, of text, lines and scales, are set in `.streamlit/config.toml`.

A scale around zero runs from blue (negative) by way of grey to orange (positive), on every screen; what pruning costs
is written as a loss, so that orange is worse and blue is better. Layers go from violet (next to the tokens) to orange.
"""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

CONFIG = Path(__file__).resolve().parents[3] / ".streamlit" / "config.toml"
GREY = "#8a949e"  # edges and rules, to be seen in both themes
UNKNOWN, UNDEFINED = f"{GREY}33", f"{GREY}44"  # cells without a number: not measured, and that have none
LAYERS = ("#7b61d9", "#3c7fd0", "#1e9088", "#7d8a12", "#c8741a")  # no step is lost on white or in the dark
MARK = "#d9480f"  # what is selected, and borders that say something
DARK, LIGHT = "#1b2733", "#ffffff"  # a cross and its edge, to be seen on any cell
QUIET, YES, NO = "#52606d", "#00704f", "#b34700"  # words of the report of a study
GREY_INK = {"light": "#6b7783", "dark": "#8f9ba7"}  # rows of a table that count for nothing


@cache
def light_theme() -> dict[str, Any]:
    """The light theme as it is set: what saved files are drawn in."""
    return theme_of("light")


@cache
def theme_of(kind: str) -> dict[str, Any]:
    """The theme, `light` or `dark`, as it is set."""
    return tomllib.loads(CONFIG.read_text(encoding="utf-8"))["theme"][kind]

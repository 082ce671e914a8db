"""The colours that are not the theme's: its own, of text, lines and scales, are set in `.streamlit/config.toml`.

A scale around zero runs from blue (negative) by way of grey to orange (positive), on every screen; what pruning costs
is written as a loss, so that orange is worse and blue is better. Layers go from violet (next to the tokens) to orange.

Lines and bars have the theme's palette, and one thing has one color on every screen: `palette` gives the scale.
"""

import tomllib
from collections.abc import Sequence
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
PLACES = ("pruned", "now", "full", "second", "estimate", "other", "random", "chance")  # in the theme's palette


def palette(others: Sequence[str] = (), **shows: str) -> list[str]:
    """The domain of a color scale: each series in the place of what it shows (`full="full model"`), the `others` in
    the places that are left, again and again if need be. Blank names hold places that nothing has."""
    assert shows.keys() <= {*PLACES}
    left, found = list(others), []
    while left or len(found) < len(PLACES):
        place, blank = PLACES[len(found) % len(PLACES)], " " * (len(found) + 1)
        is_first_round = len(found) < len(PLACES)
        if place in shows:
            found.append(shows[place] if is_first_round else blank)
        else:
            found.append(left.pop(0) if left else blank)
    return found


@cache
def light_theme() -> dict[str, Any]:
    """The light theme as it is set: what saved files are drawn in."""
    return theme_of("light")


@cache
def theme_of(kind: str) -> dict[str, Any]:
    """The theme, `light` or `dark`, as it is set."""
    return tomllib.loads(CONFIG.read_text(encoding="utf-8"))["theme"][kind]

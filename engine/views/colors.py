"""The colors that are not the theme's: its own, of text, lines and scales, are set in `.streamlit/config.toml`.

A scale around zero runs from blue (negative) through gray to orange (positive), on every screen; what pruning costs
is written as a loss, so that orange is worse and blue is better. Layers go from violet (next to the tokens) to orange.

Lines and bars have the theme's palette, and one thing has one color on every screen: `palette` gives the scale.
"""

import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

CONFIG = Path(__file__).resolve().parents[2] / ".streamlit" / "config.toml"
GREY = "#8a949e"  # edges and rules, visible in both themes
UNKNOWN = f"{GREY}33"  # cells without a number
LAYERS = ("#7b61d9", "#3c7fd0", "#1e9088", "#7d8a12", "#c8741a")  # each step is visible on white and on dark
MARK = "#d9480f"  # selections, and borders that mean something
DARK, LIGHT = "#1b2733", "#ffffff"  # a cross and its edge, visible on any cell
QUIET, YES, NO = "#52606d", "#00704f", "#b34700"  # words of the report of a paper study
PLACES = ("pruned", "now", "full", "second", "estimate", "other", "random", "chance")  # in the theme's palette


def palette(others: Sequence[str] = (), **shows: str) -> list[str]:
    """Returns the domain of a color scale: each series in its role's place (`full="full model"`), the `others` in
    the remaining places, repeated if necessary. Blank names hold unused places."""
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
    """Returns the light theme, which saved files are drawn in."""
    return theme_of("light")


@cache
def theme_of(kind: str) -> dict[str, Any]:
    """Returns the settings of the theme `light` or `dark`."""
    return tomllib.loads(CONFIG.read_text(encoding="utf-8"))["theme"][kind]

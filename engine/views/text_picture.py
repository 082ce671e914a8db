"""A text with its tints as a chart, for files. Its letters have equal widths."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

from engine.views.colors import palette
from engine.views.forms.channels import json_value, tips
from engine.views.pictures import WRITTEN, Picture
from engine.views.view import Part

COLUMNS, LINE_PX, LETTER_PX = 100, 26, 15  # letters on a line; 100 of 15 px are as wide as a file's picture
FULL_OPACITY = 0.5  # of a tint: text on it keeps a contrast of 4.5


def text_picture(part: Part, value: str, full: float, signs: Sequence[str]) -> Picture:
    """The tokens of a part, one row each with its `piece`, tinted by the field `value`: in full color from `full` on,
    named by `signs` (below 0, above 0; or the one name if none is below)."""
    spans = []
    for number, letters, begin, end, line in _typeset([row["piece"] for row in part.rows]):
        row = part.rows[number]
        known = row[value] if row[value] == row[value] else 0.0
        blanks = len(letters) - len(letters.lstrip(" "))  # Vega leaves out blanks at the ends of a text
        tint = {"sign": signs[-1] if known > 0 else signs[0], "strength": min(abs(known) / full, 1.0) * FULL_OPACITY}
        spans.append({**row, **tint, "letters": letters, "x": begin, "x2": end, "line": line, "begins": begin + blanks})
    n_lines = 1 + max((span["line"] for span in spans), default=0)
    across = {"type": "quantitative", "axis": None, "scale": {"domain": [0, COLUMNS], "nice": False}}
    lines = {"domain": [-0.5, n_lines - 0.5], "reverse": True, "nice": False}
    down = {"type": "quantitative", "axis": None, "scale": lines}
    legend = {"orient": "top", "direction": "horizontal", "symbolOpacity": FULL_OPACITY}
    tints: dict[str, Any] = {
        "mark": "rect",
        "transform": [
            {"calculate": "datum.line - 0.42", "as": "top"},
            {"calculate": "datum.line + 0.42", "as": "bottom"},
        ],
        "encoding": {
            "x": across | {"field": "x"},
            "x2": {"field": "x2"},
            "y": down | {"field": "top"},
            "y2": {"field": "bottom"},
            "color": {
                "field": "sign",
                "type": "nominal",
                "title": None,
                "scale": {"domain": list(signs)},
                "legend": legend,
            },
            "opacity": {"field": "strength", "type": "quantitative", "scale": None, "legend": None},
        },
    }
    words: dict[str, Any] = {
        "mark": {"type": "text", "fontSize": LETTER_PX, "font": "monospace", "align": "left", "baseline": "middle"},
        "transform": [{"calculate": "'ink'", "as": "ink"}],
        "encoding": {
            # in the theme's own text color, nearly: the last one of its palette
            "fill": {"field": "ink", "type": "nominal", "legend": None, "scale": {"domain": palette(chance="ink")}},
            "x": across | {"field": "begins"},
            "y": down | {"field": "line"},
            "text": {"field": "letters", "type": "nominal"},
        },
    }
    template = {"data": {"name": "spans"}, "height": LINE_PX * n_lines, "layer": [tints, words], "config": WRITTEN}
    rows = [{name: json_value(each) for name, each in span.items()} for span in spans]
    return Picture(template | {"encoding": {"tooltip": tips(part)}}, {"spans": rows})


def _typeset(pieces: Sequence[str]) -> Iterator[tuple[int, str, int, int, int]]:
    """Yields (token, its letters, from, to, line) of each stretch of a token on one line."""
    line = at = 0
    for token, piece in enumerate(pieces):
        for number, part in enumerate(piece.split("\n")):
            if number:
                line, at = line + 1, 0
            while part:
                room = COLUMNS - at
                if _width(part) > room and at:
                    line, at, part = line + 1, 0, part.lstrip(" ") or " "
                    continue
                fits = len(part) if _width(part) <= room else max(1, room // 2)
                letters, part = part[:fits], part[fits:]
                yield token, letters, at, at + _width(letters), line
                at += _width(letters)


def _width(letters: str) -> int:
    """Returns the width in Latin letters: those of East Asia are twice as wide, combining characters take no room."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in letters)
    return len(letters) + wide - sum(unicodedata.combining(letter) > 0 for letter in letters)

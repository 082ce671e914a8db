"""A text with its tints as a picture, for files: takes a DataFrame, returns a picture. Its letters have equal
widths."""

import unicodedata
from collections.abc import Iterator, Sequence

import altair as alt
import pandas as pd

from pages.ui.figures import charts

COLUMNS, LINE_PX, LETTER_PX = 100, 26, 15  # letters on a line; 100 of 15 px are as wide as a file's picture
FULL_OPACITY = 0.5  # of a tint: text on it keeps a contrast of 4.5


def text_picture(frame: pd.DataFrame, value: str, full: float, signs: Sequence[str], *tooltip: str) -> charts.Picture:
    """Returns the tokens of `frame`, one row each with its `piece`, tinted by the column `value`: in full color from
    `full` on, named by `signs` (below 0, above 0; or the one name if none is below). A tooltip (as for `charts.tips`)
    holds more columns."""
    known = frame[value].fillna(0.0)
    tinted = frame.assign(
        sign=[signs[-1] if each > 0 else signs[0] for each in known],
        strength=(known.abs() / full).clip(upper=1.0) * FULL_OPACITY,
    )
    places = pd.DataFrame(_typeset(frame["piece"].tolist()), columns=["number", "letters", "x", "x2", "line"])
    blanks = [len(letters) - len(letters.lstrip(" ")) for letters in places["letters"].tolist()]
    places = places.assign(begins=places["x"] + blanks)  # Vega leaves out blanks at the ends of a text
    spans = places.merge(tinted.drop(columns="piece").reset_index(drop=True), left_on="number", right_index=True)
    n_lines = int(places["line"].max()) + 1 if len(places) else 1
    return charts.picture(_text_picture(n_lines, tuple(signs), tooltip), spans=spans)


@charts.kept
def _text_picture(n_lines: int, signs: tuple[str, ...], tooltip: tuple[str, ...]) -> charts.Template:
    across = alt.X("x:Q", scale=alt.Scale(domain=[0, COLUMNS], nice=False), axis=None)
    down = alt.Y("line:Q", scale=alt.Scale(domain=[-0.5, n_lines - 0.5], reverse=True, nice=False), axis=None)
    begins = alt.X("begins:Q", scale=alt.Scale(domain=[0, COLUMNS], nice=False), axis=None)
    base = charts.named_chart("spans").encode(x=across, tooltip=charts.tips(*tooltip))
    legend = alt.Legend(orient="top", direction="horizontal", symbolOpacity=FULL_OPACITY)
    colour = alt.Color("sign:N", title=None, scale=alt.Scale(domain=list(signs)), legend=legend)
    rows = base.transform_calculate(top="datum.line - 0.42", bottom="datum.line + 0.42")
    below = alt.Y("top:Q", scale=alt.Scale(domain=[-0.5, n_lines - 0.5], reverse=True, nice=False), axis=None)
    opacity = alt.Opacity("strength:Q", scale=None, legend=None)
    tints = rows.mark_rect().encode(y=below, x2="x2:Q", y2="bottom:Q", color=colour, opacity=opacity)
    letters = charts.written(base, LETTER_PX, font="monospace", align="left", baseline="middle")
    return charts.template(LINE_PX * n_lines, tints, letters.encode(x=begins, y=down, text="letters:N"))


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

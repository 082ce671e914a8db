"""What a screen shows while nothing of it is measured or read: a sketch of what will be seen, and the button that
measures it."""

from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from engine.views.colors import GREY
from pages.ui.page.marks import mark

MOST_UNREAD = 2_000  # characters
NOTHING, READING = "Not measured yet.", "Looking for stored results."
_SHADES = (1, 0.45, 0.3, 0.2), (0.45, 1, 0.6, 0.25), (0.3, 0.6, 1, 0.35), (0.2, 0.25, 0.35, 1)  # of a matrix
_CELLS = "".join(
    f'<rect x="{60 + 34 * x}" y="{2 + 34 * y}" width="32" height="32" rx="3" opacity="{shade}"/>'
    for y, row in enumerate(_SHADES)
    for x, shade in enumerate(row)
)
_HEADING = '<rect x="0" y="10" width="170" height="14" rx="3"/>'
SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 260 140" width="260" height="140">'
    f'<g fill="{GREY}" stroke="none" opacity="0.45">{{}}</g></svg>'
)
_LINE = f'fill="none" stroke="{GREY}" stroke-linecap="round" stroke-width'
SKETCHES = {  # what a chart looks like, without a value in it
    "matrix": _CELLS,
    "plot": f'<path {_LINE}="1" opacity="0.5" d="M20 4 V132 H250"/><rect x="21" y="5" width="228" height="126" '
    'opacity="0.25"/>',
    "heads": f'{_HEADING}<rect x="0" y="38" width="210" height="36" rx="5" opacity="0.4"/>'
    '<rect x="48" y="205" width="362" height="138" opacity="0.3"/>',
}


@contextmanager
def empty_state(sketch: str, shows: str, is_read: bool, key: str) -> Iterator[None]:
    """Draws a frame with what the screen `shows` once it is measured, and a `sketch` of it ("": none), around what the
    caller draws inside, its button or its progress. `is_read`: whether stored results have been read, which may have
    it. `key`: begins with "empty"."""
    with st.container(border=True, key=key):
        words_at = st.container()
        if sketch:
            words_at, sketch_at = st.columns([7, 3], vertical_alignment="center")
            sketch_at.html(_picture(sketch, 220))
        with words_at:
            st.markdown(f"**{NOTHING if is_read else READING}**  \n{shows}")
            mark("empty", "drawn", read=is_read)
            with st.container(horizontal=True, vertical_alignment="center"):
                yield


def draw_sketch(sketch: str, name: str) -> None:
    """Draws a sketch of a chart as wide as its place, while what it needs is read; `name`: unique on the page."""
    with st.container(key=f"reading_{name}"):
        st.html(_picture(sketch, "100%"))


def unread_text(text: str) -> None:
    """Draws a text as it is, where its tokens will be once the model has read it."""
    with st.container(border=True, key="unread_text"):
        st.text(text[:MOST_UNREAD])


def _picture(sketch: str, width: int | str) -> str:
    return f'<img class="sketch" alt="" width="{width}" src="{_address(SVG.format(SKETCHES[sketch]))}">'


def _address(svg: str) -> str:
    return f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"

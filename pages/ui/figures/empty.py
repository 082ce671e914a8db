"""What a screen shows while nothing of it is measured or read: a sketch of what will be seen, and the button that
measures it."""

from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import streamlit as st

from engine.views.colors import GREY
from pages.ui.page.marks import mark
from pages.ui.page.presentation import presenting
from pages.ui.page.widget_writes import write

READING_PX = 900  # so that nothing below the charts shows before them
MOST_UNREAD = 2_000  # characters
NOTHING, READING = "Not measured yet.", "Looking for stored results."
DEMO_HELP = "Opens this screen with the included model, whose results come with Headroom."
_SHADES = (1, 0.45, 0.3, 0.2), (0.45, 1, 0.6, 0.25), (0.3, 0.6, 1, 0.35), (0.2, 0.25, 0.35, 1)  # of a matrix
_CELLS = "".join(
    f'<rect x="{60 + 34 * x}" y="{2 + 34 * y}" width="32" height="32" rx="3" opacity="{shade}"/>'
    for y, row in enumerate(_SHADES)
    for x, shade in enumerate(row)
)
_TALL_PX = 560  # of one of two charts side by side, as high as these
_HEADING = '<rect x="0" y="10" width="170" height="14" rx="3"/>'
_BOXES = "".join(f'<rect x="{x}" y="62" width="197" height="38" rx="5" opacity="0.4"/>' for x in (0, 213))
_LOSSES = "".join(
    f'<rect x="0" y="{46 + 29 * row}" width="140" height="9" rx="3" opacity="0.6"/>'
    f'<rect x="182" y="{43 + 29 * row}" width="{width}" height="15" opacity="0.45"/>'
    for row, width in enumerate((130, 8, 8, 8, 8, 180, 8))
)
SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 260 140" width="260" height="140">'
    f'<g fill="{GREY}" stroke="none" opacity="0.45">{{}}</g></svg>'
)
TALL = f'viewBox="0 0 410 {_TALL_PX}" preserveAspectRatio="none"'
_LINE = f'fill="none" stroke="{GREY}" stroke-linecap="round" stroke-width'
SKETCHES = {  # what a chart looks like, without a value in it
    "matrix": _CELLS,
    "maps": f'<g transform="translate(-30 20) scale(0.7)">{_CELLS}</g>'
    f'<g transform="translate(85 20) scale(0.7)">{_CELLS}</g>',
    "plot": f'<path {_LINE}="1" opacity="0.5" d="M20 4 V132 H250"/><rect x="21" y="5" width="228" height="126" '
    'opacity="0.25"/>',
    "pattern": f'<path {_LINE}="1" opacity="0.5" d="M40 2 V138 H220"/><path d="M42 4 V136 H218 Z" opacity="0.4"/>',
    "curves": f'<path {_LINE}="3" d="M20 20 L120 26 L170 40 L205 95 L250 118"/>'
    f'<path {_LINE}="3" opacity="0.5" d="M20 20 L70 34 L120 62 L170 88 L250 120"/>'
    f'<path {_LINE}="1" opacity="0.35" d="M20 4 V132 H250"/>',
    "losses": f'{_HEADING}{_LOSSES}<rect x="0" y="345" width="170" height="14" rx="3"/>'
    '<rect x="140" y="460" width="270" height="70" opacity="0.3"/>',
    "heads": f'{_HEADING}<rect x="0" y="38" width="210" height="36" rx="5" opacity="0.4"/>'
    '<rect x="48" y="205" width="362" height="138" opacity="0.3"/>',
    "ranks": f'{_HEADING}{_BOXES}<rect x="55" y="215" width="355" height="295" rx="5" opacity="0.3"/>',
}


@contextmanager
def empty_state(
    sketch: str, shows: str, is_read: bool, demo: Mapping[str, Any] = MappingProxyType({}), key: str = "empty"
) -> Iterator[None]:
    """Draws a frame with what the screen `shows` once it is measured, and a `sketch` of it ("": none); what the caller
    draws inside, its button or its progress, comes next to a button that sets the controls to `demo`, a view of the
    demo model. `is_read`: whether stored results have been read, which may have it. `key`: of a part of a page, begins
    so."""
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
                if demo and not presenting():
                    look: dict[str, Any] = {"type": "tertiary", "help": DEMO_HELP, "on_click": _set, "args": (demo,)}
                    if st.button("See it on the demo model", key="see demo", **look):
                        st.rerun()  # the whole page, which may have drawn this in a part that runs alone


@contextmanager
def reading_state(*sketches: str) -> Iterator[None]:
    """Holds the place of charts with a sketch of them, or of two side by side, while their stored results are read;
    what the caller draws inside, what the reading waits for, comes above it."""
    with st.container(height=READING_PX, border=False, key="reading"):
        yield
        if len(sketches) == 1:
            st.html(_picture(*sketches, 620))
        else:
            for sketch, at in zip(sketches, st.columns(len(sketches), gap="large"), strict=True):
                at.html(_tall_picture(sketch))


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


def _tall_picture(sketch: str) -> str:
    """Returns a sketch as wide as its place."""
    svg = SVG.replace('viewBox="0 0 260 140" width="260" height="140"', TALL).format(SKETCHES[sketch])
    return f'<img class="sketch" alt="" width="100%" height="{_TALL_PX}" src="{_address(svg)}">'


def _address(svg: str) -> str:
    return f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"


def _set(values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        write(key, value)

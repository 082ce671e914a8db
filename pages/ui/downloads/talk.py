"""A talk: slides as one HTML page, which steps through them by arrow keys. It is presented over the app, and opens
anywhere without the app and without a network."""

import html
import json
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from pages.ui.downloads.exports import document
from pages.ui.downloads.slides import Slide

STYLE, DRAW = (Path(__file__).with_suffix(f".{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
NAV = """<nav>
<button id="open" hidden>Open screen</button> <button id="remove" hidden>Remove slide</button>
<button id="end" hidden>End</button>
<button id="back" aria-label="Previous slide">‹</button> <output id="place"></output>
<button id="next" aria-label="Next slide">›</button>
</nav>"""


def to_talk(slides: Sequence[Slide]) -> bytes:
    """Returns the slides as one page. It makes no network requests."""
    charts, numbers = [json.loads(each) for slide in slides for each in slide.charts], count()
    body = "".join(_slide(slide, [next(numbers) for _ in slide.charts]) for slide in slides)
    return document("Headroom: slides", STYLE, f"<main>{body}</main>{NAV}", charts, DRAW)


def _slide(slide: Slide, numbers: Sequence[int]) -> str:
    charts = "".join(f'<div class="chart" data-number="{number}"></div>' for number in numbers)
    rows = "".join(_row("td" if at else "th", row) for at, row in enumerate(slide.table))
    title, about, link = (html.escape(each) for each in (slide.title, slide.about, slide.link))
    return (
        f'<section class="slide" data-link="{link}"><h1>{title}</h1>'
        f'<div class="charts" data-n="{len(numbers)}">{charts}<table>{rows}</table></div><p>{about}</p></section>'
    )


def _row(kind: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{kind}>{html.escape(cell)}</{kind}>' for cell in cells)}</tr>"

"""A screen's results as files: one archive, and one HTML page that opens without the app and without a network."""

import html
import io
import json
import re
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from typing import Any

import pandas as pd

from engine.models.session import Session
from engine.progress import final
from engine.receipts import ReceiptSummary, facts, read_receipts
from engine.requests import Request
from engine.requests.fields import expression
from engine.views import pictures
from engine.views.colors import QUIET, light_theme
from pages.ui.downloads.origin import Origin
from pages.ui.downloads.provenance import rows
from pages.ui.figures.sheet import Sheet
from pages.ui.page.screens import screen_of
from pages.ui.page.tables import magnitude

VEGA_LITE, EXPOSED = "6.4", "window.vegaEmbed = vegaEmbed"  # what Altair writes; what a page needs of it
N_ROWS = 60  # of a table on the page; the archive has all
STYLE = """
body { font: 16px/1.5 sans-serif; color: var(--text); max-width: 1060px; margin: 2rem auto; padding: 0 1rem; }
figure { margin: 2rem 0; overflow-x: auto; } .quiet { color: var(--quiet); } h2 { margin-top: 2.5rem; }
table { border-collapse: collapse; font-size: 14px; } th, td { text-align: left; padding: .25rem .8rem .25rem 0;
border-bottom: 1px solid var(--line); vertical-align: top; } .box { overflow: auto; max-height: 26rem; }
pre { background: var(--box); padding: 1rem; overflow-x: auto; font-size: 13px; white-space: pre-wrap; }
"""
# blocks all requests, those of the page and those of Vega
POLICY = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:"
DRAW = """
window.views = Promise.all(specs.map((spec, i) => vegaEmbed(`#picture${i}`, spec, {actions: false, renderer: "svg"})))
  .then(found => found.map(each => each.view))
"""
IMPORTS = """import json

import altair as alt
import headroom

alt.renderers.enable("svg")  # drawn here, without the network; the default renderer is interactive"""
PYTHON = {"display_name": "Python 3", "language": "python", "name": "python3"}


@dataclass(frozen=True)
class ScreenFiles:
    """A screen as it is now: the source of its numbers, what it shows, the session that has the receipts, and the link
    to it."""

    origin: Origin
    sheet: Sheet
    session: Session
    link: str

    @property
    def caption(self) -> str:
        """Returns the caption of every picture: model, measurement, pruning, and the day it was saved."""
        return f"{self.origin.about} · saved {time.strftime('%Y-%m-%d')}"

    def svg(self, name: str) -> bytes:
        """Returns one of the pictures as an SVG drawing."""
        return pictures.to_svg(self.sheet.picture(name), name, self.caption)

    def png(self, name: str) -> bytes:
        """Returns one of the pictures as PNG."""
        return pictures.rasterized(self.svg(name))

    def receipts(self) -> tuple[ReceiptSummary, ...]:
        """Returns the receipts of the results shown."""
        return final(read_receipts(self.origin.measurements, self.session)) if self.origin.measurements else ()


def file_name(name: str, ending: str) -> str:
    """Returns a file name of letters, digits and hyphens, such as "heads-5-examples.svg"."""
    return f"{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-') or 'file'}.{ending}"


def to_zip(files: ScreenFiles) -> bytes:
    """Returns an archive of pictures, tables, the command, the program, the receipt and the page."""
    archive = io.BytesIO()
    origin = files.origin
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as into:
        for name in list(files.sheet.tables):  # a redraw may add one meanwhile
            into.writestr(file_name(name, "csv"), files.sheet.table(name))
        for name in list(files.sheet.pictures):
            drawing = files.svg(name)
            into.writestr(file_name(name, "svg"), drawing)
            into.writestr(file_name(name, "png"), pictures.rasterized(drawing))
        into.writestr("command.txt", f"{origin.command}\n")
        into.writestr("program.py", f"{origin.python}\n")
        into.writestr("receipt.json", receipt(files))
        into.writestr(file_name(origin.screen, "html"), to_html(files))
    return archive.getvalue()


def receipt(files: ScreenFiles) -> str:
    """Returns how it was measured, as JSON: a summary, and every record's own receipt."""
    parts = files.receipts()
    known = {"screen": files.origin.screen, "about": files.caption, "link": files.link, "command": files.origin.command}
    known |= {"notes": [*files.origin.notes]}
    known |= {"facts": facts(each for part in parts for each in part.receipts), "parts": list(map(asdict, parts))}
    return json.dumps(known, indent=1, default=str)


def to_html(files: ScreenFiles) -> bytes:
    """Returns the screen as one page with interactive charts. It makes no network requests."""
    origin, sheet, parts = files.origin, files.sheet, files.receipts()
    specs = [pictures.file_spec(sheet.picture(name), name) for name in list(sheet.pictures)]
    figures = "".join(f'<figure><div id="picture{number}"></div></figure>' for number in range(len(specs)))
    tables = "".join(map(partial(_table, sheet), list(sheet.tables)))
    says = "".join(f"<p>{_to_html_line(line)}</p>" for line in sheet.says)
    known = facts(each for part in parts for each in part.receipts)
    facts_said = [f"{name}: {'; '.join(each)}" for name, each in known.items() if each]
    how = "<br>".join(map(html.escape, [*origin.notes, *facts_said]))
    body = f"""<h1>{html.escape(origin.screen)}</h1>
<p class="quiet">{html.escape(files.caption)}</p>
{says}
{figures}
{tables}
<h2>How this was measured</h2>
<div class="box">{rows(parts).to_html(index=False, border=0)}</div><p class="quiet">{how}</p>
<pre>{html.escape(origin.command)}</pre>
<pre>{html.escape(origin.python)}</pre>
<p class="quiet">{html.escape(files.link)}</p>"""
    return document(f"{origin.screen}: {origin.about}", STYLE, body, specs, DRAW)


def document(title: str, style: str, body: str, specs: Sequence[Mapping[str, Any]], draw: str) -> bytes:
    """Returns an HTML page that makes no network requests; the script `draw` draws its charts, `specs` in Vega-Lite."""
    theme = light_theme()
    colors = {"text": theme["textColor"], "line": theme["borderColor"], "box": theme["secondaryBackgroundColor"]}
    root = " ".join(f"--{name}: {color};" for name, color in {**colors, "quiet": QUIET}.items())
    data = json.dumps(specs).replace("<", "\\u003c")  # safe inside a script element
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="{POLICY}"><link rel="icon" href="data:,">
<title>{html.escape(title)}</title><style>:root {{ {root} }}{style}</style></head><body>
{body}
<script type="application/json" id="specs">{data}</script><script>{_vega()}</script>
<script type="module">const specs = JSON.parse(document.getElementById("specs").textContent)
{draw}</script>
</body></html>
""".encode()


@cache
def _vega() -> str:
    """Returns the script that draws charts, safe inside a page: its own end tags are escaped. It takes seconds."""
    import vl_convert

    source = vl_convert.javascript_bundle(EXPOSED, VEGA_LITE)
    return source.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _table(sheet: Sheet, name: str) -> str:
    frame = pd.read_csv(io.BytesIO(sheet.table(name)), keep_default_na=False)
    shown = frame.head(N_ROWS).to_html(index=False, border=0, float_format=partial(magnitude, digits=6))
    more = f'<p class="quiet">The first {N_ROWS} of {len(frame):,} rows.</p>' if len(frame) > N_ROWS else ""
    return f'<h2>{html.escape(name)}</h2><div class="box">{shown}</div>{more}'


def _to_html_line(line: str) -> str:
    """Returns a line of the screens' Markdown as HTML: bold words, and line breaks."""
    return re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", html.escape(line)).replace("  \n", "<br>")


def to_notebook(files: ScreenFiles) -> bytes:
    """Returns the notebook. Its first cells run the requests, so it needs Headroom; the charts hold their own data."""
    origin, sheet = files.origin, files.sheet
    title, purpose = origin.screen, screen_of(origin.screen).purpose
    heading = "\n\n".join([f"# {title}", purpose, origin.about, *sheet.says, f"[The screen]({files.link})"])
    cells = [_text(heading), *_requests(origin.requests)]
    for name in list(sheet.pictures):
        spec = json.dumps(pictures.file_spec(sheet.picture(name), name))
        draw = f"# the chart as it is on the screen, with its data\nalt.Chart.from_dict(json.loads({spec!r}))"
        cells += [_text(f"## {name}"), _code(draw)]
    more = {"metadata": {"kernelspec": PYTHON}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps({"cells": [each | {"id": f"cell-{at}"} for at, each in enumerate(cells)]} | more).encode()


def _requests(requests: Sequence[Request]) -> list[dict[str, Any]]:
    """Returns a cell with the imports, and two for each request: its run, and its table."""
    cells = [_code(IMPORTS)]
    for at, request in enumerate(requests, start=1):
        name = "result" if len(requests) == 1 else f"result_{at}"
        cells += [_code(f"{name} = headroom.{expression(request)}.run()\n{name}"), _code(f"{name}.frame()")]
    return cells


def _text(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def _code(text: str) -> dict[str, Any]:
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": text}

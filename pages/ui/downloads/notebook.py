"""A screen as a Jupyter notebook: what it says, the requests that give its numbers, and its charts."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.requests import Request
from engine.requests.fields import expression
from engine.views import pictures
from pages.ui.downloads.exports import ScreenFiles
from pages.ui.page.screens import STORY

IMPORTS = """import json

import altair as alt
import headroom

alt.renderers.enable("svg")  # drawn here, without the network; the default renderer is interactive"""
TUTORIAL = Path(__file__).parents[3] / "docs" / "tutorial.ipynb"  # in a wheel too
RESULT = "result"
DRAWN = "the chart as it is on the screen, with its data"
PYTHON = {"display_name": "Python 3", "language": "python", "name": "python3"}


def to_notebook(files: ScreenFiles) -> bytes:
    """Returns the notebook. Its first cells run the requests, so it needs Headroom; the charts hold their own data."""
    origin, sheet = files.origin, files.sheet
    purpose = next((each.purpose for screens in STORY.values() for each in screens if each.title == origin.screen), "")
    heading = "\n\n".join([f"# {origin.screen}", purpose, origin.about, *sheet.says, f"[The screen]({files.link})"])
    cells = [_text(heading), *_requests(origin.requests)]
    for name in list(sheet.pictures):
        spec = json.dumps(pictures.file_spec(sheet.picture(name), name))
        draw = f"# {DRAWN}\nalt.Chart.from_dict(json.loads({spec!r}))"
        cells += [_text(f"## {name}"), _code(draw)]
    more = {"metadata": {"kernelspec": PYTHON}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps({"cells": [each | {"id": f"cell-{at}"} for at, each in enumerate(cells)]} | more).encode()


def _requests(requests: Sequence[Request]) -> list[dict[str, Any]]:
    """Returns a cell with the imports, and two for each request: its run, and its table."""
    cells = [_code(IMPORTS)]
    for at, request in enumerate(requests, start=1):
        name = RESULT if len(requests) == 1 else f"{RESULT}_{at}"
        cells += [_code(f"{name} = headroom.{expression(request)}.run()\n{name}"), _code(f"{name}.frame()")]
    return cells


def _text(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def _code(text: str) -> dict[str, Any]:
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": text}

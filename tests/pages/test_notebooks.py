"""A screen downloads itself as a notebook that runs and gives the screen's numbers."""

import json
import os

import nbformat
import pytest
from nbclient import NotebookClient

from engine.requests import ListModels, ListTasks
from pages.ui.downloads import footer
from pages.ui.downloads.exports import ScreenFiles
from pages.ui.downloads.notebook import to_notebook
from pages.ui.downloads.origin import Origin
from pages.ui.figures.sheet import Sheet
from pages.ui.head.charts import distances
from pages.ui.page.runtime import session
from tests.conftest import HANG_S, REPOSITORY
from tests.pages.conftest import figure


def executed(raw, folder):
    """The notebook with its outputs, run by a kernel of its own."""
    notebook = nbformat.reads(raw.decode(), as_version=4)
    nbformat.validate(notebook)
    client = NotebookClient(notebook, timeout=HANG_S, resources={"metadata": {"path": str(folder)}})
    return client.execute(env={**os.environ, "PYTHONPATH": str(REPOSITORY)})


def outputs(notebook, kind):
    return [
        each["data"][kind]
        for cell in notebook.cells
        if cell.cell_type == "code"
        for each in cell.outputs
        if kind in each.get("data", {})
    ]


@pytest.mark.slow("starts a kernel, which loads a model")
def test_the_notebook_of_prune_gives_its_numbers(open_app, monkeypatch, tmp_path):
    handed = []
    monkeypatch.setattr(footer, "_draw_files", handed.append)
    at = open_app("", prune_heads="40", prune_order="random")
    value, _ = figure(at)
    notebook = executed(to_notebook(handed[-1]), tmp_path)
    texts = " ".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert texts.startswith("# Prune") and "fp32" in texts
    lines = outputs(notebook, "text/html")
    assert f"acc {float(value.rstrip('%')) / 100:.4f}" in lines[0] and "<table" in lines[1]
    drawn = outputs(notebook, "image/svg+xml")
    assert len(drawn) == len(handed[-1].sheet.pictures) > 0


def test_every_request_has_cells_of_its_own():
    import pandas as pd

    sheet = Sheet(says=["**Bold** words."])
    sheet.pictures["Distances"] = distances(pd.DataFrame({"distance": ["0", "1"], "share": [0.5, 0.5]}))
    origin = Origin("Head", [ListTasks(), ListModels()], {}, "demo in fp32")
    raw = to_notebook(ScreenFiles(origin, sheet, session(), "http://127.0.0.1:8501/head"))
    nbformat.validate(nbformat.reads(raw.decode(), as_version=4))
    cells = [cell["source"] for cell in json.loads(raw)["cells"]]
    assert cells[0].startswith("# Head\n\nWhat one attention head does") and "**Bold** words." in cells[0]
    assert "result_1 = headroom.ListTasks().run()\nresult_1" in cells and "result_2.frame()" in cells
    assert "alt.Chart.from_dict" in cells[-1] and "## Distances" in cells

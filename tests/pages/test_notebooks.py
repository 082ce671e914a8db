"""A screen downloads itself as a notebook that runs and gives the screen's numbers."""

import json

import nbformat
import pytest

from engine.requests import ListModels, ListTasks
from pages.ui.downloads import footer
from pages.ui.downloads.exports import ScreenFiles
from pages.ui.downloads.notebook import TUTORIAL, to_notebook
from pages.ui.downloads.origin import Origin
from pages.ui.figures.sheet import Sheet
from pages.ui.head.charts import distances
from pages.ui.page.runtime import session
from tests.pages.conftest import figure
from tests.write_tutorial import executed


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
    notebook = executed(nbformat.reads(to_notebook(handed[-1]).decode(), as_version=4), tmp_path)
    texts = " ".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert texts.startswith("# Prune") and "fp32" in texts
    lines = outputs(notebook, "text/html")
    assert f"{value} right (95% " in lines[0] and "<table" in lines[1]
    drawn = outputs(notebook, "image/svg+xml")
    assert len(drawn) == len(handed[-1].sheet.pictures) > 0


@pytest.mark.slow("opens two screens")
def test_prune_hands_out_the_tutorial(open_app, monkeypatch):
    handed = []
    monkeypatch.setattr(footer, "_button", lambda label, make, *rest: handed.append((label, make)))
    open_app("")
    made = dict(handed)["Tutorial (IPYNB)"]()
    assert nbformat.reads(made.decode(), as_version=4) == nbformat.read(TUTORIAL, as_version=4)
    handed.clear()
    open_app("induction")
    assert handed and "Tutorial (IPYNB)" not in dict(handed)


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


@pytest.mark.slow("measures on the included model, in a kernel")
def test_the_tutorial_runs_from_an_empty_store_and_finds_what_it_says(monkeypatch, tmp_path):
    monkeypatch.setenv("HEADROOM_CACHE", str(tmp_path / "store"))
    notebook = nbformat.read(TUTORIAL, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs for cell in cells[1:]), "run python -m tests.write_tutorial"
    check = "print('found', few.fields['acc'], without_top.fields['acc'], without_others.fields['acc'])"
    notebook.cells.append(nbformat.v4.new_code_cell(check))
    ran = executed(notebook, tmp_path)
    few, without_top, without_others = map(float, ran.cells[-1].outputs[-1]["text"].split()[1:])
    assert few > 0.85 and without_top < 0.45 and without_others > 0.85
    assert len(outputs(ran, "image/svg+xml")) == 2

"""A screen downloads itself as a notebook that runs and gives the screen's numbers."""

import json

import nbformat
import pytest

from engine.requests import ListModels, ListTasks
from engine.views.forms import kit
from engine.views.view import Part
from pages.ui.downloads import actions
from pages.ui.downloads.exports import ScreenFiles, to_notebook
from pages.ui.downloads.origin import Origin
from pages.ui.figures.sheet import Sheet
from pages.ui.page.runtime import session
from tests.conftest import IS_THOROUGH
from tests.pages.conftest import figure
from tests.write_tutorial import TUTORIAL, executed


def outputs(cells, kind):
    return [each["data"][kind] for cell in cells for each in cell.outputs if kind in each.get("data", {})]


def test_every_request_has_cells_of_its_own():
    sheet = Sheet(says=["**Bold** words."])
    rows = [{"distance": "0", "share": 0.5}, {"distance": "1", "share": 0.5}]
    sheet.pictures["Distances"] = kit.bars(Part("Distances", rows), y="distance", x="share")
    origin = Origin("Heads", [ListTasks(), ListModels()], {}, "demo in fp32")
    raw = to_notebook(ScreenFiles(origin, sheet, session(), "http://127.0.0.1:8501/heads"))
    nbformat.validate(nbformat.reads(raw.decode(), as_version=4))
    cells = [cell["source"] for cell in json.loads(raw)["cells"]]
    assert cells[0].startswith("# Heads\n\nWhich attention heads matter") and "**Bold** words." in cells[0]
    assert "result_1 = headroom.ListTasks().run()\nresult_1" in cells and "result_2.frame()" in cells
    assert "alt.Chart.from_dict" in cells[-1] and "## Distances" in cells


def cells_of(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.thorough
@pytest.mark.slow("measures on the included model, in a kernel")
def test_the_tutorial_finds_what_it_says_and_the_notebook_of_prune_its_numbers(open_app, monkeypatch, tmp_path):
    """One after the other in one kernel, each with names of its own. In the short form fewer levels are measured."""
    handed = []
    monkeypatch.setattr(actions, "_draw", lambda files, link: handed.append(files))
    value, _ = figure(open_app("", heads="40", order="random"))
    tutorial, of_prune = nbformat.read(TUTORIAL, as_version=4), nbformat.reads(to_notebook(handed[-1]).decode(), 4)
    assert all(cell.outputs for cell in cells_of(tutorial)[1:]), "run python -m tests.write_tutorial"
    sweep = cells_of(tutorial)[-1]
    if not IS_THOROUGH:
        assert "0,20,40,60,80" in sweep.source and "order_questions=32" in sweep.source
        sweep.source = sweep.source.replace("0,20,40,60,80", "0,40").replace("order_questions=32", "order_questions=4")
    check = "print('found', few.fields['acc'], without_top.fields['acc'], without_others.fields['acc'])"
    between = [nbformat.v4.new_code_cell(source) for source in (check, "%reset -f")]
    n = len(cells_of(tutorial))
    for cell in of_prune.cells:
        cell.id = f"prune-{cell.id}"
    tutorial.cells += [*between, *of_prune.cells]
    ran = executed(tutorial, tmp_path)
    done = cells_of(ran)
    few, without_top, without_others = map(float, done[n].outputs[-1]["text"].split()[1:])
    assert few > 0.85 and without_top < 0.45 and without_others > 0.85
    assert len(outputs(done[:n], "image/svg+xml")) == 2
    texts = " ".join(cell.source for cell in of_prune.cells if cell.cell_type == "markdown")
    assert texts.startswith("# Prune") and "fp32" in texts
    lines = outputs(done[n + 2 :], "text/html")
    assert f"{value} right (95% " in lines[0] and "<table" in lines[1]
    assert len(outputs(done[n + 2 :], "image/svg+xml")) == len(handed[-1].sheet.pictures) > 0

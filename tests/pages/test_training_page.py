"""The Training screen, on runs made by hand: what it draws, what it says, and what its address holds."""

import numpy as np
import pytest
from streamlit.util import calc_hash

from engine.training.trajectory import encode
from pages.ui.training import charts, runs, sections, tables
from pages.ui.training.analysis import ROWS, analysis_table
from tests import synthetic_runs
from tests.pages.conftest import settled


@pytest.fixture(scope="module")
def shown():
    found = {each.name: each for each in synthetic_runs.runs()}
    told = runs.labels(found, {name: runs.recipe_in(None, each) for name, each in found.items()})
    return runs.shown(list(found), told, found)


@pytest.fixture
def open_training(open_app, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "SHIPPED", tmp_path)
    for each in synthetic_runs.runs():
        (tmp_path / f"{each.name}.safetensors").write_bytes(encode(each))

    def open_training(**parameters):
        at = open_app(run=False, **parameters)
        at.wanted_page_hash = calc_hash("training")
        return settled(at)

    return open_training


def test_the_screen_draws_every_part_of_every_run(open_training):
    at = open_training()
    assert not at.error and not at.exception
    assert [each.value for each in at.subheader] == [
        "Previous-token heads", "Loss", "What more training gains", "A passage", "Where along a text the loss falls",
        "The path of the whole run", "Which heads carry the change"]  # fmt: skip
    # of each run score, prefix matching, previous token, passage, slopes, path and twice the ablations over training and
    # now (along the vector only where there is one); and two of all runs
    assert len(at.get("vega_lite_chart")) == 3 * 6 + 3 * 2 + 2 * 2 + 2
    assert len(at.get("bidi_component")) >= 2

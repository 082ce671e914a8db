"""`import headroom` alone: requests that run, read what is stored, say what is left, and show themselves."""

import doctest
import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import headroom
from engine.__main__ import main
from engine.requests import REQUESTS, Request
from engine.requests.fields import options
from engine.requests.running import ProgressBar
from tests.conftest import HANG_S, REPOSITORY

OPTIONS = {"task": "demo_copy", "limit": 6, "precision": "fp32", "mask": "L1H1"}


@pytest.fixture(autouse=True)
def own_store(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADROOM_CACHE", str(tmp_path / "store"))


def test_it_names_every_request_and_imports_nothing():
    assert {*dir(headroom)} >= {request.__name__ for request in REQUESTS} | {"Result", "HeadroomError"}
    assert all(getattr(headroom, name) for name in headroom.__all__) and headroom.Evaluate in REQUESTS
    with pytest.raises(AttributeError, match="no attribute 'Evaluation'"):
        headroom.Evaluation  # noqa: B018
    code = "import headroom, sys; print([each for each in ('numpy', 'torch', 'engine') if each in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=HANG_S)
    assert done.stdout.strip() == "[]", done.stderr


def test_no_request_hides_a_method_of_all_requests():
    used = {name for name in vars(Request) if not name.startswith("__")}
    used -= {"measure", "measurement", "target", "check_outputs", "command", "group", "is_measured", *options(Request)}
    kinds = {kind for request in REQUESTS for kind in request.__mro__ if issubclass(kind, Request)} - {Request}
    assert {(kind.__name__, name) for kind in kinds for name in used & {*vars(kind)}} == set()


@pytest.mark.slow("imports torch, and renders questions")
def test_a_request_is_run_once_and_then_read(capsys):
    request = headroom.Evaluate(**OPTIONS)
    assert request.stored() is None and request.left() > 0
    result = request.run()
    assert request.left() == 0 and not result.fields["cached"]
    again = request.stored()
    assert again.fields["cached"] and again.fields["acc"] == result.fields["acc"]
    assert len(again.receipts) == len(result.receipts) > 0
    assert {each["precision"] for each in again.receipts} == {"fp32"} and all(
        each["versions"] for each in again.receipts
    )
    words = "evaluate --task demo_copy --limit 6 --precision fp32 --mask L1H1 --json"
    assert main(words.split()) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["cached"] and printed["acc"] == result.fields["acc"] == result.frame()["acc"].item()
    html = again._repr_html_()
    assert html.startswith(f"<pre>{result.fields['acc']:.1%} right (95% ") and "<table" in html


def test_tables_are_those_of_the_files(tmp_path):
    file = tmp_path / "scores.csv"
    result = headroom.ScoreImportance(task="demo_copy", limit=4, precision="fp32", out=str(file)).run()
    assert [*result.files] == [str(file)]
    pd.testing.assert_frame_equal(result.frame(), pd.read_csv(file), check_dtype=False)
    assert np.allclose(result.frame()["score"].to_numpy(), result.value.scores.ravel())


def test_progress_is_a_bar_in_a_terminal_only(capsys, monkeypatch):
    with ProgressBar() as bar:
        bar(1, 4, "questions", 30.0)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with ProgressBar() as bar:
        bar(1, 4, "questions", 30.0)
        bar(2, 4, "questions", 20.0)
    shown = capsys.readouterr().err
    assert "questions" in shown and "2/4" in shown and "about 20 s left" in shown


@pytest.mark.slow("runs the examples of the docstrings")
def test_the_examples_in_docstrings_are_right():
    import engine.requests.base as base

    for module, names in ((headroom, {}), (base, {"Evaluate": headroom.Evaluate})):
        failed, tried = doctest.testmod(module, extraglobs=names)
        assert not failed and tried

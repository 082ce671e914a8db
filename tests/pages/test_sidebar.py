"""The sidebar shows a run that is trained. The settings of the bar say what the model takes."""

import re
import threading

from engine.progress import Progress
from engine.requests import ListModels
from engine.slots import Job
from pages.ui.controls import model
from pages.ui.page import runtime
from tests.conftest import HANG_S
from tests.pages.conftest import settled


def test_models_on_this_computer_are_listed_first(monkeypatch):
    monkeypatch.setattr(model, "opened_here", lambda: {"/models/mine": None})
    monkeypatch.setattr(model, "is_away", lambda name: name.startswith("facebook/"))
    listed = model.here_first(["demo", "facebook/opt-66b", "org/cached"])
    assert listed[:3] == ["/models/mine", "demo", "org/cached"] and listed[-1] == "facebook/opt-66b"
    assert set(listed[3:-1]) == set(model.shipped_runs())


def test_where_layers_lie_is_shown_with_what_it_costs(open_app, monkeypatch):
    monkeypatch.setenv("HEADROOM_PLACE", "cpu:1,disk")
    captions = settled(open_app()).caption
    [size] = [each for each in captions if "parameters with embeddings" in each.value]
    assert "Layers 0 in main memory, 1 on disk" in [each.value for each in captions]
    assert re.search(r"each pass reads 0\.0\d+ MB from disk, about [\d.e-]+ s at the .+/s measured here", size.help)


def test_the_settings_show_the_lines_of_the_command(open_app):
    at = open_app(model="facebook/opt-13b", precision="bf16")
    [caption] = [each for each in at.caption if "parameters" in each.value]
    first, needs, *_ = ListModels(model="facebook/opt-13b", precision="bf16").run().text.splitlines()
    assert first.endswith(caption.value) and needs == caption.help.replace("\\", "").split("\n\n")[0]


def test_a_model_that_failed_its_self_check_is_not_pruned(open_app, monkeypatch):
    monkeypatch.setattr(model, "known_fault", lambda *of: "sliced model equals the masked model: differs by 12%")
    [error] = open_app().main.error
    assert "can be read but not pruned or scored, as it failed a self-check" in error.value and "12%" in error.value


def test_a_new_tab_opens_the_included_model_whatever_others_have_opened(open_app):
    model.opened_here()["runs/smeared"] = None
    at = open_app(run=False)
    at.query_params.pop("model")
    assert at.run().selectbox(key="model").value == "demo"
    model.opened_here().clear()


def test_a_run_that_is_trained_shows_on_other_screens(open_app):
    begun, goes = threading.Event(), threading.Event()

    def steps():
        yield Progress(1, 4)
        begun.set()
        goes.wait(HANG_S)
        yield Progress(4, 4, "")

    def links(at):
        return [link.proto.label for link in at.sidebar.get("page_link")]

    assert "Watch it learn" not in links(open_app())
    trainings = runtime.trainings()
    trainings.put("training x", Job("x", steps, 0, "Training x"))
    try:
        assert begun.wait(HANG_S)
        at = open_app()
        assert "Watch it learn" in links(at) and "Training x: 25%" in str(at.sidebar.get("progress")[0].proto)
    finally:
        goes.set()
        trainings.join("training x", HANG_S)
    assert "Watch it learn" not in links(open_app())

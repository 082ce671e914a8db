"""The sidebar says how much memory the app holds and how much of it is the model, and where results are kept and how
large they are, without looking at every file. The settings of the bar say what the model takes."""

import re
import threading
from types import SimpleNamespace

import psutil
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from cache import Store
from engine.progress import Progress
from engine.requests import ListModels
from engine.slots import Job
from pages.ui.controls import model, sidebar
from pages.ui.page import runtime
from pages.ui.page.tables import plain
from tests.conftest import HANG_S
from tests.pages.conftest import settled

HELD = 1_240_000_000  # bytes


def shown(at):
    """The line at the foot of the sidebar, and what is said of it."""
    [line] = at.sidebar.caption
    return line.value, line.help.replace("\\", "")


def test_memory_before_and_with_a_model(open_app):
    at = open_app(run=False).run()
    line, more = shown(at)
    assert runtime.session().models.loaded is not None or "model" not in more.split(",")[0]
    held_gb = psutil.Process().memory_info().rss / 1e9
    assert abs(float(re.search(r" memory ([\d.]+) GB", line)[1]) - held_gb) < 0.4
    at = open_app()
    assert re.search(r"This app holds [\d.]+ GB: model under 0.1, the rest [\d.]+, when", shown(at)[1])
    assert not [each for each in at.caption if each.value.startswith("Layers")], "it is in one piece"


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


def test_the_parts_are_the_model_and_the_rest(monkeypatch):
    held = SimpleNamespace(
        device="cpu",
        spec=SimpleNamespace(precision="int8"),
        identity=SimpleNamespace(weight_bytes={"int8": 163_000_000, "fp32": 538_000_000}.__getitem__),
        placing=SimpleNamespace(disk_bytes=0),
    )
    models = SimpleNamespace(held=(held,))
    monkeypatch.setattr(sidebar, "session", lambda: SimpleNamespace(models=models))
    assert sidebar.memory_in_words(HELD) == "This app holds 1.2 GB: model 0.2, the rest 1.1"
    held.spec.precision = "fp32"
    assert sidebar.memory_in_words(HELD) == "This app holds 1.2 GB: model 0.5, the rest 0.7"
    held.placing.disk_bytes = 400_000_000
    line = "This app holds 1.2 GB: model 0.1, the rest 1.1"
    assert sidebar.memory_in_words(HELD) == line, "what is on disk is not held"
    held.device = "cuda"
    assert sidebar.memory_in_words(HELD) == "This app holds 1.2 GB", "the model lies elsewhere"
    other = SimpleNamespace(**vars(held))
    held.device, held.placing.disk_bytes, held.spec.in_words = "cpu", 0, "demo_1 in fp32"
    other.device, other.spec = "cpu", SimpleNamespace(precision="int8", in_words="b")
    models.held = (held, other)
    line = f"This app holds 1.2 GB: models 0.7 ({plain('demo_1 in fp32, b')}), the rest 0.5"
    assert sidebar.memory_in_words(HELD) == line
    models.held = ()
    assert sidebar.memory_in_words(HELD) == "This app holds 1.2 GB"


def page():
    from pages.ui.controls.sidebar import draw_sidebar

    draw_sidebar(is_training=False)


def test_the_folder_in_use_is_shown_with_its_size_as_it_grows(tmp_path, monkeypatch):
    folder = tmp_path / "my_results"
    monkeypatch.setenv("HEADROOM_CACHE", str(folder))
    monkeypatch.setattr(Store, "size_bytes", lambda self: pytest.fail("every file is looked at"))
    st.cache_resource.clear()
    try:
        for n_mb in (0, 3):
            for n in range(n_mb):
                runtime.store().put(f"result {n}", bytes(1_000_000))
            line, more = shown(AppTest.from_function(page, default_timeout=HANG_S).run())
            assert more.startswith(f"Results are kept in {folder}; ")
            assert 0 <= float(re.match(r"Results ([\d.]+) MB", line)[1]) - n_mb <= 0.2
    finally:
        runtime.store().close()
        st.cache_resource.clear()


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

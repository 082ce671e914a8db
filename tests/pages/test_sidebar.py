"""The sidebar says how much memory the app holds and how much of it is the model, where layers lie, and where results
are kept and how large they are, without looking at every file. Rarely changed settings are folded, and named if they
differ from the default."""

import os
import re
import threading
from functools import partial
from types import SimpleNamespace

import psutil
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from cache import Store
from engine.progress import Progress
from engine.requests import ListModels
from engine.slots import Job
from pages.ui.controls import sidebar
from pages.ui.page import runtime
from pages.ui.page.tables import plain
from tests.conftest import HANG_S


def shown(at):
    [line] = [each.value for each in at.sidebar.caption if each.value.startswith("This app holds")]
    return line


def test_memory_before_and_with_a_model(open_app):
    at = open_app(run=False).run()
    line = shown(at)
    assert runtime.session().models.loaded is not None or "model" not in line
    held_gb = psutil.Process().memory_info().rss / 1e9
    assert abs(float(re.match(r"This app holds ([\d.]+) GB", line)[1]) - held_gb) < 0.4
    at = open_app()
    assert re.fullmatch(r"This app holds [\d.]+ GB: model under 0.1, the rest [\d.]+", shown(at))
    assert not [each for each in at.sidebar.caption if each.value.startswith("Layers")], "it is in one piece"


def test_models_on_this_computer_are_listed_first(monkeypatch):
    monkeypatch.setattr(sidebar, "opened_here", lambda: {"/models/mine": None})
    monkeypatch.setattr(sidebar, "is_away", lambda name: name.startswith("facebook/"))
    listed = sidebar.here_first(["demo", "facebook/opt-66b", "org/cached"])
    assert listed[:3] == ["/models/mine", "demo", "org/cached"] and listed[-1] == "facebook/opt-66b"
    assert set(listed[3:-1]) == set(sidebar.shipped_runs())


def test_where_layers_lie_is_shown_with_what_it_costs(open_app, monkeypatch):
    monkeypatch.setenv("HEADROOM_PLACE", "cpu:1,disk")
    captions = open_app().sidebar.caption
    [size] = [each for each in captions if "parameters with embeddings" in each.value]
    assert "Layers 0 in main memory, 1 on disk" in [each.value for each in captions]
    assert re.search(r"each pass reads 0\.0\d+ MB from disk, about [\d.e-]+ s at the .+/s measured here", size.help)


def test_the_sidebar_shows_the_lines_of_the_command(drawn):
    at = drawn(model="facebook/opt-13b", precision="bf16")
    [caption] = [each for each in at.sidebar.caption if "parameters" in each.value]
    first, needs, *_ = ListModels(model="facebook/opt-13b", precision="bf16").run().text.splitlines()
    assert first.endswith(caption.value) and needs == caption.help.replace("\\", "").split("\n\n")[0]


def test_a_model_that_failed_its_self_check_is_marked(open_app, monkeypatch):
    assert not open_app().sidebar.warning
    monkeypatch.setattr(sidebar, "known_fault", lambda *of: "sliced model equals the masked model: differs by 12%")
    at = open_app()
    [line], [error] = at.sidebar.warning, at.main.error
    assert line.value == "Can be read but not pruned: sliced model equals the masked model: differs by 12%"
    assert "can be read but not pruned or scored, as it failed a self-check" in error.value


def test_the_parts_are_the_model_and_the_rest(monkeypatch):
    held = SimpleNamespace(
        device="cpu",
        spec=SimpleNamespace(precision="int8"),
        identity=SimpleNamespace(weight_bytes={"int8": 163_000_000, "fp32": 538_000_000}.__getitem__),
        placing=SimpleNamespace(disk_bytes=0),
    )
    models = SimpleNamespace(held=(held,))
    monkeypatch.setattr(sidebar, "session", lambda: SimpleNamespace(models=models))
    monkeypatch.setattr(sidebar, "resident_bytes", lambda: 1_240_000_000)
    assert sidebar.memory_in_words() == "This app holds 1.2 GB: model 0.2, the rest 1.1"
    held.spec.precision = "fp32"
    assert sidebar.memory_in_words() == "This app holds 1.2 GB: model 0.5, the rest 0.7"
    held.placing.disk_bytes = 400_000_000
    assert sidebar.memory_in_words() == "This app holds 1.2 GB: model 0.1, the rest 1.1", "what is on disk is not held"
    held.device = "cuda"
    assert sidebar.memory_in_words() == "This app holds 1.2 GB", "the model lies elsewhere"
    other = SimpleNamespace(**vars(held))
    held.device, held.placing.disk_bytes, held.spec.in_words = "cpu", 0, "demo_1 in fp32"
    other.device, other.spec = "cpu", SimpleNamespace(precision="int8", in_words="b")
    models.held = (held, other)
    line = f"This app holds 1.2 GB: models 0.7 ({plain('demo_1 in fp32, b')}), the rest 0.5"
    assert sidebar.memory_in_words() == line
    models.held = ()
    assert sidebar.memory_in_words() == "This app holds 1.2 GB"


def page():
    from pages.ui.controls.sidebar import draw_store

    draw_store()


def test_the_folder_in_use_is_shown_with_its_size_as_it_grows(tmp_path, monkeypatch):
    folder = tmp_path / "my_results"
    monkeypatch.setenv("HEADROOM_CACHE", str(folder))
    monkeypatch.setattr(Store, "size_bytes", lambda self: pytest.fail("every file is looked at"))
    st.cache_resource.clear()
    try:
        for n_mb in (0, 3):
            for n in range(n_mb):
                runtime.store().put(f"result {n}", bytes(1_000_000))
            [line] = AppTest.from_function(page, default_timeout=HANG_S).run().caption
            where, size_mb = re.fullmatch(r"Results kept in (.+): ([\d.]+) MB", line.value).groups()
            assert where.replace("\\", "").endswith(os.path.join("", "my_results"))
            assert line.help.replace("\\", "").startswith(f"{folder}. ")
            assert 0 <= float(size_mb) - n_mb <= 0.2
    finally:
        runtime.store().close()
        st.cache_resource.clear()


def sidebar_alone():
    import streamlit as st

    from pages.ui.controls.sidebar import draw_sidebar

    st.set_page_config()
    draw_sidebar(compares=st.query_params.get("compares") == "yes")


@pytest.fixture
def drawn(open_part):
    return partial(open_part, sidebar_alone)


def label_of(at):
    """The label of the folded settings."""
    [folded] = at.sidebar.expander
    return folded.label


@pytest.mark.parametrize(
    ("parameters", "label"),
    [
        ({}, "More"),
        ({"bos": "off", "data_dir": "/tmp"}, "More: BOS off, data folder set"),
        ({"bos": "sideways"}, "More"),
    ],
)
def test_folded_settings_that_are_not_the_default_are_in_the_label(drawn, parameters, label):
    at = drawn(**parameters)
    assert label_of(at) == label
    assert at.selectbox(key="bos").value == (parameters["bos"] if "BOS" in label else "model default")


def test_a_data_folder_set_by_the_environment_is_the_default(drawn, monkeypatch, tmp_path):
    monkeypatch.setenv("HEADROOM_TASK_DATA", str(tmp_path))
    assert label_of(drawn()) == "More"
    assert label_of(drawn(data_dir="/elsewhere")) == "More: data folder set"


def test_the_second_model_is_asked_for_where_two_are_compared_and_kept_elsewhere(drawn):
    assert not drawn(compares="yes").selectbox(key="against").disabled
    assert "against" not in {each.key for each in drawn(compares="no").selectbox}
    kept = drawn(compares="no", against="fp32").selectbox(key="against")
    assert (kept.value, kept.disabled) == ("fp32", True)
    at = drawn(compares="yes")
    at.selectbox(key="against").set_value("fp32").run()
    for compares in ("no", "no", "yes"):
        at.query_params["compares"] = compares
        field = at.run().selectbox(key="against")
        assert (field.value, field.disabled) == ("fp32", compares == "no")


def test_a_new_tab_opens_the_included_model_whatever_others_have_opened(open_app):
    sidebar.opened_here()["runs/smeared"] = None
    at = open_app(run=False)
    at.query_params.pop("model")
    assert at.run().selectbox(key="model").value == "demo"
    sidebar.opened_here().clear()


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

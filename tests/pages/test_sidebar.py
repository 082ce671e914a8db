"""The sidebar says how much memory the app holds and how much of it is the model, where layers lie, and where results
are kept and how large they are, without looking at every file."""

import os
import re
from types import SimpleNamespace

import psutil
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from cache import Store
from pages.ui.controls import sidebar
from pages.ui.controls.sidebar import LONG_PATH, short_path
from pages.ui.page import runtime
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


def test_where_layers_lie_is_shown_with_what_it_costs(open_app, monkeypatch):
    monkeypatch.setenv("HEADROOM_PLACE", "cpu:1,disk")
    [line] = [each.value for each in open_app().sidebar.caption if each.value.startswith("Layers")]
    said = r"Layers 0 in main memory, 1 on disk; each pass reads 0\.0\d+ MB from disk, about [\d.e-]+ s at the .+/s "
    said += "measured here, less where the system still holds them in memory"
    assert re.fullmatch(said, line), line


def test_the_parts_are_the_model_and_the_rest(monkeypatch):
    held = SimpleNamespace(
        device="cpu",
        spec=SimpleNamespace(precision="int8"),
        identity=SimpleNamespace(weight_bytes={"int8": 163_000_000, "fp32": 538_000_000}.__getitem__),
        placing=SimpleNamespace(disk_bytes=0),
    )
    models = SimpleNamespace(loaded=held, second=None)
    monkeypatch.setattr(sidebar, "session", lambda: SimpleNamespace(models=models))
    monkeypatch.setattr(sidebar, "resident_bytes", lambda: 1_240_000_000)
    assert sidebar.memory_in_words() == "This app holds 1.2 GB: model 0.2, the rest 1.1"
    held.spec.precision = "fp32"
    assert sidebar.memory_in_words() == "This app holds 1.2 GB: model 0.5, the rest 0.7"
    held.placing.disk_bytes = 400_000_000
    assert sidebar.memory_in_words() == "This app holds 1.2 GB: model 0.1, the rest 1.1", "what is on disk is not held"
    held.device = "cuda"
    assert sidebar.memory_in_words() == "This app holds 1.2 GB", "the model lies elsewhere"
    models.loaded = None
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


def test_a_path_is_shortened_from_where_the_user_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("USERPROFILE", "/home/ada")
    assert short_path(str(tmp_path / "cache" / "data")) == os.path.join("cache", "data")
    assert short_path(os.path.join("/home/ada", ".cache", "headroom")) == os.path.join("~", ".cache", "headroom")
    assert short_path("/home/adam/h") == "/home/adam/h", "of another user"
    long = os.path.join(os.sep, "m" * LONG_PATH, "results of", "today")
    assert short_path(long) == os.path.join("…", "results of", "today")

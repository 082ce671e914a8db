"""The sidebar keeps rarely changed settings folded, and names those that differ from the default."""

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from pages.ui.controls.sidebar import FETCH_TASKS
from tests.conftest import HANG_S


def sidebar():
    import streamlit as st

    from pages.ui.controls.sidebar import draw_sidebar

    st.set_page_config()
    draw_sidebar(compares=st.query_params.get("compares") == "yes")


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """Draws the sidebar alone, at given query parameters."""
    monkeypatch.setenv("HEADROOM_CACHE", str(tmp_path / "results"))
    monkeypatch.delenv("HEADROOM_TASK_DATA", raising=False)
    st.cache_resource.clear()

    def drawn(**parameters):
        at = AppTest.from_function(sidebar, default_timeout=HANG_S)
        for name, value in parameters.items():
            at.query_params[name] = value
        at.run()
        assert not at.exception, at.exception
        return at

    yield drawn
    from pages.ui.page import runtime

    runtime.store().close()
    st.cache_resource.clear()


def label_of(at):
    """The label of the folded settings."""
    [folded] = at.sidebar.expander
    return folded.label


@pytest.mark.parametrize(
    ("parameters", "label"),
    [
        ({}, "More"),
        ({"bos": "on"}, "More: BOS on"),
        ({"bos": "off", "data_dir": "/tmp"}, "More: BOS off, data folder set"),
        ({"bos": "model default"}, "More"),
        ({"bos": "model's own"}, "More"),
        ({"bos": "sideways"}, "More"),
    ],
)
def test_folded_settings_that_are_not_the_default_are_in_the_label(drawn, parameters, label):
    at = drawn(**parameters)
    assert label_of(at) == label
    assert at.selectbox(key="bos").value == (parameters["bos"] if "BOS" in label else "model default")


def test_a_changed_setting_is_named_at_once(drawn):
    at = drawn()
    at.selectbox(key="bos").set_value("off").run()
    assert label_of(at) == "More: BOS off"
    at.toggle(key=FETCH_TASKS).set_value(True).run()
    assert label_of(at) == "More: BOS off, fetching tasks"
    at.selectbox(key="bos").set_value("model default").run()
    assert label_of(at) == "More: fetching tasks"


def test_a_data_folder_set_by_the_environment_is_the_default(drawn, monkeypatch, tmp_path):
    monkeypatch.setenv("HEADROOM_TASK_DATA", str(tmp_path))
    assert label_of(drawn()) == "More"
    assert label_of(drawn(data_dir="/elsewhere")) == "More: data folder set"


@pytest.mark.parametrize(("compares", "hint"), [("yes", "none"), ("no", "not on this screen")])
def test_the_second_model_says_where_it_is_used(drawn, compares, hint):
    field = drawn(compares=compares).selectbox(key="against")
    assert (field.proto.placeholder, field.disabled) == (hint, compares == "no")

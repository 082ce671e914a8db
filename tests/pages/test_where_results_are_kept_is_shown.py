"""The sidebar says where results are kept and how large they are, without looking at every file."""

import os
import re

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from cache import Store
from pages.ui.controls.sidebar import LONG_PATH, short_path
from pages.ui.page import runtime
from tests.conftest import HANG_S


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

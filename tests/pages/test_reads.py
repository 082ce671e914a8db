"""A complete result is read once for all tabs, until something is stored; an incomplete one is read each time."""

import numpy as np
import pytest
import streamlit as st

from engine.measurement import Measurement, Workload
from engine.progress import Progress
from pages.ui.page import runtime
from pages.ui.page.reads import KEPT, stored_cached


@pytest.fixture(autouse=True)
def own_store(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADROOM_CACHE", str(tmp_path / "results"))
    st.cache_resource.clear()
    yield
    runtime.jobs().close()
    runtime.store().close()
    st.cache_resource.clear()


def measurement(name, missing=()):
    reads = []

    def steps(session, measures):
        reads.append(name)
        yield Progress(1, 1, {"scores": np.zeros(1000)})
        return dict.fromkeys(missing, Workload)

    return Measurement(None, (name,), steps), reads


def test_a_complete_result_is_read_again_only_after_something_was_stored():
    of, reads = measurement("complete")
    size_bytes = KEPT.size
    assert stored_cached(of) is stored_cached(of) and len(reads) == 1
    assert 8_000 <= KEPT.size - size_bytes < 10_000, "its arrays count"
    runtime.store().put("other", b"result")
    assert stored_cached(of) is not None and len(reads) == 2


def test_what_is_incomplete_is_read_each_time():
    of, reads = measurement("incomplete", ["two"])
    assert stored_cached(of) is None and stored_cached(of) is None and len(reads) == 2

"""Several tabs of one app: none takes another's slots, and a waiting one says for what."""

import streamlit as st
from streamlit.testing.v1 import AppTest

from pages.ui.page import runtime
from pages.ui.page import work as of_pages
from pages.ui.page.tables import plain
from pages.ui.page.work import Work
from tests.conftest import HANG_S
from tests.pages.conftest import TAB, figure, settled
from tests.pages.test_work import Counting, holding


class Tabs:
    """The tab in which AppTests run and tests look at slots (`now`), and those that are closed."""

    def __init__(self, monkeypatch):
        self.now, self.closed = TAB, set()
        monkeypatch.setattr(runtime, "tab", lambda: self.now)
        monkeypatch.setattr(runtime, "is_here", lambda tab: tab not in self.closed)


def test_a_waiting_tab_says_for_what_and_goes_on_by_itself(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADROOM_CACHE", str(tmp_path / "results"))
    monkeypatch.setattr(of_pages, "AT_ONCE_S", HANG_S)
    tabs, other, mine = Tabs(monkeypatch), Counting(), Counting()
    st.cache_resource.clear()
    tabs.now = "another"
    Work("count", "Accuracy", other.of("b"), about="piqa").start()
    assert other.at_one.wait(HANG_S)
    tabs.now = TAB
    work = mine.work()
    at = AppTest.from_function(holding, default_timeout=HANG_S, args=(work,)).run()
    assert at.progress[0].text == plain("Counting: waiting for another tab (piqa)")
    assert [button.label for button in at.button] == ["Run this first", "Cancel"]
    tabs.closed.add("another")
    assert at.run().progress[0].text == "Counting: waiting for: accuracy, 1 of 2 done", "no tab shows it any more"
    tabs.closed.clear()
    at.run()
    at.button[1].click().run()
    assert other.n_runs == 1 and runtime.jobs().status("count").state == "canceled", "one's own alone"
    work.restart()
    mine.go_on.set()
    other.go_on.set()
    assert runtime.jobs().join("count", HANG_S).value == "two"
    tabs.now = "another"
    assert (
        runtime.jobs().status("count").key == other.of("b").key and runtime.jobs().join("count", HANG_S).state == "done"
    )
    assert (mine.n_runs, other.n_runs) == (1, 1)
    runtime.jobs().close(HANG_S)
    runtime.store().close()
    st.cache_resource.clear()


def test_tabs_with_different_views_keep_their_figures(open_app, monkeypatch):
    tabs, views = Tabs(monkeypatch), {"one": {"limit": "16"}, "two": {"limit": "18"}}
    pages, figures = {}, {}
    for tabs.now, view in views.items():
        pages[tabs.now] = open_app(heads="50", order="random", **view)
        figures[tabs.now] = figure(pages[tabs.now])
    measured = runtime.jobs().put
    monkeypatch.setattr(runtime.jobs(), "put", lambda slot, job, again=False: put.append(slot) or measured(slot, job))
    put = []
    for tabs.now, page in pages.items():
        before = runtime.jobs().status("questions")
        assert figure(page.run()) == figures[tabs.now] and not page.progress
        assert runtime.jobs().status("questions") is before and "accuracy" not in put


def test_what_a_closed_tab_held_is_forgotten(open_app, monkeypatch):
    tabs = Tabs(monkeypatch)
    monkeypatch.setattr("engine.jobs.MOST_CLOSED", 0)
    for tabs.now in ("closed", "open"):
        at = settled(open_app(limit="16", run=False))
        runtime.notes()["tab"] = tabs.now
    assert {tab for tab, _ in runtime.jobs()._slots.held} >= {"closed", "open"}
    tabs.closed.add("closed")
    at.run()
    assert {tab for tab, _ in runtime.jobs()._slots.held} == {"open"} and runtime.notes()["tab"] == "open"
    tabs.now = "closed"
    assert runtime.notes() == {}

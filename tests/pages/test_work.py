"""Work for the measuring thread as a page sees it: whose a slot is, what was found, how it stands, what is stored."""

import threading
from dataclasses import replace

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from engine.errors import HeadroomError
from engine.measurement import Measurement, Workload
from engine.progress import Progress
from pages.ui.page import runtime
from pages.ui.page import work as of_pages
from pages.ui.page.defaults import idle_budget_s
from pages.ui.page.work import Work
from tests.conftest import HANG_S


class Counting:
    """What counts to two, and at one waits for the word to go on; of what is stored it reads `kept`."""

    def __init__(self, faults=0):
        self.at_one, self.go_on = threading.Event(), threading.Event()
        self.faults, self.kept, self.n_runs, self.n_reads = faults, "old", 0, 0

    def steps(self, session, measures):
        if not measures:
            self.n_reads += 1
            yield Progress(1, 1, self.kept)
            return {"two": Workload}
        self.n_runs += 1
        if self.n_runs <= self.faults:
            raise HeadroomError("there are no numbers; bring some")
        yield Progress(1, 2, "one")
        self.at_one.set()
        assert self.go_on.wait(HANG_S)
        yield Progress(2, 2, "two")
        return {}

    def of(self, key="a"):
        return Measurement(None, (key,), self.steps)

    def work(self, key="a", slot="count"):
        return Work(slot, "Counting", self.of(key))


@pytest.fixture(autouse=True)
def own_worker(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADROOM_CACHE", str(tmp_path / "results"))
    monkeypatch.setattr(of_pages, "AT_ONCE_S", HANG_S)
    st.cache_resource.clear()
    yield
    runtime.jobs().close(HANG_S)
    runtime.store().close()
    st.cache_resource.clear()


@pytest.fixture
def counting():
    found = Counting()
    yield found
    found.go_on.set()


def seen(work):
    return work.now() and work.now().state, work.job_value, work.under_way


def test_a_slot_is_the_work_of_one_key(counting):
    counting.go_on.set()
    mine, other = counting.work("a"), counting.work("b")
    assert mine.value(HANG_S) == "two" and seen(mine) == ("done", "two", False)
    assert seen(other) == (None, None, False) and not other.line(), "what another key has found is none of its own"
    assert other.value(HANG_S) == "two" and seen(mine) == (None, None, False)
    assert seen(counting.work("b")) == ("done", "two", False), "the same slot and key are the same work"


def test_a_value_is_there_once_all_is_done(counting):
    work = counting.work()
    assert work.value(0.0) is None and counting.at_one.wait(HANG_S)
    assert work.value(0.0) is None and seen(work) == ("running", "one", True)
    counting.go_on.set()
    assert work.value(HANG_S) == "two" and seen(work) == ("done", "two", False)
    assert work.value(0.0) == "two" and counting.n_runs == 1, "it is done once"


def test_what_has_failed_waits_to_be_restarted():
    counting = Counting(faults=1)
    counting.go_on.set()
    work = counting.work()
    assert work.value(HANG_S) is None and seen(work) == ("failed", None, False)
    assert work.value(HANG_S) is None and counting.n_runs == 1, "a page asks on every run"
    work.restart()
    assert work.value(HANG_S) == "two" and counting.n_runs == 2


def page(work):
    import streamlit as st

    st.text("above")
    if (value := work.awaited(0.0)) is not None:
        st.text(value)


def test_what_is_awaited_is_its_progress_until_it_is_there(counting):
    work = counting.work()
    work.start()
    assert counting.at_one.wait(HANG_S)
    at = AppTest.from_function(page, default_timeout=HANG_S, args=(work,)).run()
    assert not at.exception and [text.value for text in at.text] == ["above"]
    assert at.progress[0].text == "Counting: 1 of 2 done" and [button.label for button in at.button] == ["Cancel"]
    counting.go_on.set()
    runtime.jobs().join("count", HANG_S)
    at.run()
    assert [text.value for text in at.text] == ["above", "two"] and not at.progress


def test_what_runs_says_its_forecast_until_its_pace_is_known(counting, monkeypatch):
    monkeypatch.setattr(of_pages, "POLL_S", 0.0)
    work = replace(counting.work(), takes=lambda: 600.0)
    work.start()
    assert counting.at_one.wait(HANG_S)
    at = AppTest.from_function(page, default_timeout=HANG_S, args=(work,)).run()
    assert at.progress[0].text == "Counting: 1 of 2 done, about 10 min left"


def test_what_is_required_and_fails_is_one_line_and_can_be_taken_up_again():
    counting = Counting(faults=1)
    counting.go_on.set()
    at = AppTest.from_function(page, default_timeout=HANG_S, args=(counting.work(),)).run()
    runtime.jobs().join("count", HANG_S)
    at.run()
    assert [error.value for error in at.error] == ["there are no numbers; bring some"]
    assert [text.value for text in at.text] == ["above"]
    [retry] = at.button
    assert retry.label == "Retry"
    retry.click().run()
    runtime.jobs().join("count", HANG_S)
    assert [text.value for text in at.run().text] == ["above", "two"] and not at.error


def test_what_is_stored_is_read_and_nothing_is_measured(counting):
    work = counting.work()
    assert work.results_so_far() == ["old"] and (counting.n_reads, counting.n_runs) == (1, 0)
    assert work.results_so_far() == ["old"] and counting.n_reads == 1, "nothing was stored since"
    counting.kept = "new"
    runtime.store().put("some key", b"")
    assert work.results_so_far() == ["new"] and counting.n_reads == 2
    assert counting.work("b").results_so_far() == ["new"] and counting.n_reads == 3, (
        "what another key has read is not taken"
    )
    assert work.now() is None and counting.n_runs == 0


def test_reading_does_not_wait_for_what_is_measured(counting):
    other = Counting()
    Work("other", "Losses of A", other.of("b")).start()
    assert other.at_one.wait(HANG_S)
    work = counting.work()
    assert work.results_so_far() == ["old"] and work.is_read
    whole = replace(work, of=replace(work.of, steps=lambda session, measures: iter_all("whole")))
    assert whole.value(HANG_S) == "whole", "all of it is stored"
    assert runtime.jobs().running.key == other.of("b").key
    other.go_on.set()


def iter_all(value):
    """The steps of a measurement all of whose records are stored."""
    yield Progress(1, 1, value)
    return {}


def test_whose_a_read_is_does_not_follow_from_how_keys_begin(counting):
    short, long = counting.work("a"), counting.work("a, b")
    assert long.results_so_far() == ["old"] and long.is_read and not short.is_read
    counting.kept = "new"
    assert short.results_so_far() == ["new"] and short.is_read and not long.is_read


def test_what_is_stored_is_not_read_again_while_it_is_measured(counting):
    work = counting.work()
    assert work.results_so_far() == ["old"]
    work.start()
    assert counting.at_one.wait(HANG_S)
    counting.kept = "new"
    runtime.store().put("some key", b"")
    assert work.results_so_far() == ["old", "one"] and counting.n_reads == 1, "the measuring would have to give way"
    assert work.watched() == ["count"], "a read that has ended brings nothing new"
    counting.go_on.set()
    runtime.jobs().join("count", HANG_S)
    assert work.results_so_far() == ["new", "two"] and counting.n_reads == 2


def holding(work):
    import streamlit as st

    work.start()
    st.text(str(work.line()))


def test_what_waits_says_for_what_and_can_be_let_go_first(counting):
    other = Counting()
    Work("other", "Estimates of piqa", other.of("b"), priority=0).start()
    assert other.at_one.wait(HANG_S)
    at = AppTest.from_function(holding, default_timeout=HANG_S, args=(counting.work(),)).run()
    assert at.progress[0].text == "Counting: waiting for: estimates of piqa, 1 of 2 done"
    assert [button.label for button in at.button] == ["Run this first", "Cancel"]
    at.button[0].click().run()
    other.go_on.set()
    assert counting.at_one.wait(HANG_S), "it goes first"
    assert runtime.jobs().status("other").state == "queued"
    counting.go_on.set()
    runtime.jobs().join("other", HANG_S)
    assert other.n_runs == 2 and runtime.jobs().status("count").state == "done"


def both_shown(one, other):
    one.start()
    other.start()
    one.line()
    other.line()


def test_what_the_page_itself_shows_is_not_to_be_overtaken(counting):
    other = Counting()
    one = Work("other", "Losses of A", other.of("b"))
    one.start()
    assert other.at_one.wait(HANG_S)
    at = AppTest.from_function(both_shown, default_timeout=HANG_S, args=(one, counting.work())).run()
    assert at.progress[1].text == "Counting: waiting for: losses of A, 1 of 2 done"
    assert [button.label for button in at.button] == ["Cancel", "Cancel"]
    other.go_on.set()


@pytest.mark.parametrize(("takes_s", "begins"), [(None, False), (10.5, False), (9.5, True)])
def test_what_nobody_asked_for_begins_only_within_the_budget(counting, monkeypatch, takes_s, begins):
    monkeypatch.delenv("HEADROOM_IDLE_SECONDS", raising=False)
    counting.go_on.set()
    work = Work("count", "Counting", counting.of(), while_seen=True, takes=lambda: takes_s)
    assert work.start_ahead() is begins and (work.now() is not None) is begins


def offering(work):
    work.offer("Count", "timeline", "To two.")


@pytest.mark.parametrize(
    ("takes_s", "label"),
    [(None, "Count"), (3.0, "Count"), (45.0, "Count, about 45 s here"), (720.0, "Count, about 12 min here")],
)
def test_a_button_says_what_it_costs(counting, takes_s, label):
    counting.go_on.set()
    work = Work("count", "Counting", counting.of(), 3, while_seen=True, takes=lambda: takes_s)
    at = AppTest.from_function(offering, default_timeout=HANG_S, args=(work,)).run()
    assert [button.label for button in at.button] == [label]
    at.button[0].click().run()
    assert runtime.jobs().join("count", HANG_S).state == "done" and counting.n_runs == 1


def test_a_wrong_budget_is_one_line(monkeypatch):
    for wrong in ("soon", "-1", "nan"):
        monkeypatch.setenv("HEADROOM_IDLE_SECONDS", wrong)
        with pytest.raises(HeadroomError, match="give seconds"):
            idle_budget_s()


def test_what_was_read_stands_until_it_is_read_again(counting, monkeypatch):
    work, held = counting.work(), threading.Event()

    def slow(session, measures):
        held.wait(HANG_S)
        return (yield from counting.steps(session, measures))

    assert work.results_so_far() == ["old"]
    counting.kept = "new"
    runtime.store().put("some key", b"")
    monkeypatch.setattr(of_pages, "AT_ONCE_S", 0.0)
    slowly = replace(work, of=replace(work.of, steps=slow))
    assert slowly.results_so_far() == ["old"] and slowly.watched() == ["count", "count, stored"]
    assert not slowly.is_first_read and replace(slowly, slot="another").results_so_far() == []
    assert replace(slowly, slot="another").is_first_read
    held.set()
    runtime.jobs().join("another, stored", HANG_S)
    assert replace(slowly, slot="another").is_first_read, "what it found is not drawn"
    runtime.jobs().join("count, stored", HANG_S)
    assert slowly.results_so_far() == ["new"] and slowly.watched() == ["count"]

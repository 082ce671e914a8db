"""Jobs of several tabs: each has slots of its own, the same job is run once, and tabs take turns. No test sleeps."""

import threading

import pytest

from engine import jobs as module
from engine import turns
from engine.errors import HeadroomError
from engine.jobs import Jobs
from engine.progress import Progress, count_piece, leave_to_measuring
from engine.slots import Job
from tests.conftest import HANG_S as WAIT_S
from tests.engine.jobs_work import Work


class Tabs:
    """Jobs, the tab that asks for them (`now`), and the tabs that are closed."""

    def __init__(self):
        self.now, self.closed, self.order = "A", set(), []
        self.jobs = Jobs(tab=lambda: self.now, is_here=lambda tab: tab not in self.closed)

    def of(self, tab):
        self.now = tab
        return self.jobs

    def put(self, tab, key, work=None, priority=0, slot="accuracy", again=False, **more):
        return self.of(tab).put(slot, Job(key, work or Pieces(), priority, **more), again)

    def state(self, tab, slot="accuracy"):
        return self.of(tab).status(slot).state

    def end(self, tab, slot="accuracy"):
        return self.of(tab).join(slot, WAIT_S)


class Pieces(Work):
    """Work each of whose chunks is stored, and that goes on where it was; so many are let go from the beginning."""

    def __init__(self, chunks=1, let_go=0, called="", order=None, **more):
        super().__init__(chunks, **more)
        self.stored, self.called, self.order = 0, called, order
        self.release(let_go)

    def __call__(self):
        self.starts += 1
        for number in range(self.chunks):
            is_stored = number < self.stored
            if not is_stored:
                self.started.release()
                assert self.go_on.acquire(timeout=WAIT_S)
                if self.order is not None:
                    self.order.append(self.called)
                self.stored += 1
                count_piece.get()()
            yield Progress(number + 1, self.chunks, number, cached=is_stored)
        if self.error:
            raise self.error


@pytest.fixture
def tabs():
    tabs = Tabs()
    yield tabs
    tabs.jobs.close(WAIT_S)


def test_a_slot_of_one_tab_is_not_that_of_another(tabs):
    mine, theirs = Pieces(2), Pieces(1)
    tabs.put("A", "a", mine)
    mine.wait_started()
    tabs.put("B", "b", theirs)
    assert tabs.of("A").status("accuracy").key == "a" and tabs.of("B").status("accuracy").key == "b"
    assert tabs.of("B").see("accuracy", "a") is None, "what another tab finds is none of its own"
    tabs.of("B").cancel("accuracy")
    tabs.of("B").drop("curve")
    assert (tabs.state("A"), tabs.state("B")) == ("running", "canceled")
    mine.release(2)
    assert tabs.end("A").state == "done" and theirs.starts == 0


@pytest.mark.parametrize("leave", ["cancel", "drop", "another"])
def test_what_two_tabs_want_is_run_once_for_both(tabs, leave):
    work = Pieces(3)
    for tab in "AB":
        tabs.put(tab, "same", work)
    work.wait_started()
    work.release()
    work.wait_started()
    assert [tabs.of(tab).status("accuracy").done for tab in "AB"] == [1, 1]
    if leave == "another":
        tabs.put("A", "next", Pieces(1, let_go=1), priority=1)
    else:
        getattr(tabs.of("A"), leave)("accuracy")
    left = tabs.of("A").status("accuracy")
    assert {"cancel": left and left.state == "canceled" and left.value == 0, "drop": left is None,
            "another": left and left.key == "next"}[leave]  # fmt: skip
    assert tabs.state("B") == "running"
    work.release(2)
    end = tabs.end("B")
    assert (end.state, end.value, work.starts) == ("done", 2, 1)
    if leave != "another":
        assert tabs.put("C", "same").value == 2, "what is done is there at once"


def test_the_last_that_wants_it_stops_it(tabs):
    work = Pieces(3)
    for tab in "AB":
        tabs.put(tab, "same", work)
    work.wait_started()
    tabs.of("A").cancel("accuracy")
    tabs.of("B").cancel("accuracy")
    assert tabs.of("B").status("accuracy").stopping
    work.release()
    assert tabs.end("B").state == "canceled" and work.stored == 1
    assert tabs.put("B", "same", Pieces(1, let_go=1)).state == "canceled"
    assert tabs.put("C", "same", other := Pieces(1, let_go=1)).key == "same"
    assert tabs.end("C").state == "done" and other.starts == 1, "what one tab has canceled another may want"


def test_a_retry_in_one_tab_leaves_the_others_failure_alone(tabs):
    tabs.put("A", "same", Pieces(0, error=HeadroomError("no such folder: /x")))
    assert tabs.end("A").state == "failed"
    tabs.put("B", "same", Pieces(1, let_go=1))
    assert tabs.end("B").state == "done"
    assert tabs.of("A").status("accuracy").error == "no such folder: /x"
    tabs.put("A", "same", Pieces(1, let_go=1), again=True)
    assert tabs.end("A").state == "done"


def test_consent_of_one_tab_is_not_that_of_another(tabs):
    agreed, not_agreed = Pieces(1), Pieces(0, error=HeadroomError("not here"))
    tabs.put("A", "same", agreed, may_fetch=True)
    agreed.wait_started()
    tabs.put("B", "same", not_agreed)
    agreed.release()
    assert (tabs.end("A").state, tabs.end("B").state) == ("done", "failed")


@pytest.mark.parametrize("turn_s, order", [(0.0, "aabababa"), (1000.0, "aabaaabb")])
def test_tabs_take_turns_piece_by_piece(tabs, monkeypatch, turn_s, order):
    monkeypatch.setattr(turns, "TURN_S", turn_s)
    monkeypatch.setattr(turns, "OVERHEAD", 0.0)
    done = []
    mine, theirs = Pieces(5, called="a", order=done), Pieces(3, called="b", order=done)
    tabs.put("A", "a", mine)
    mine.wait_started()
    mine.release()
    mine.wait_started()  # its first turn goes on: nobody waits
    tabs.put("B", "b", theirs)
    ahead = tabs.of("B").ahead_of("accuracy")
    assert ahead.key == "a" and ahead.elsewhere
    assert ahead.left_s is None, "its turn is over, so nothing says when it ends"
    mine.release(9)
    theirs.release(9)
    assert tabs.end("A").value == 4 and tabs.end("B").value == 2
    assert "".join(done) == order
    assert mine.stored == 5 and theirs.stored == 3, "nothing is measured twice"


def test_every_tab_has_its_first_piece_before_any_has_a_second(tabs, monkeypatch):
    monkeypatch.setattr(turns, "TURN_S", 1000.0)
    gate, done = Work(1), []
    tabs.put("gate", "gate", gate)
    gate.wait_started()
    for tab in "ABC":
        tabs.put(tab, tab, Pieces(3, let_go=3, called=tab, order=done))
    gate.release()
    for tab in "ABC":
        assert tabs.end(tab).state == "done"
    assert "".join(done[:3]) == "CBA", "the tab that asked last is first in turn"
    assert {"".join(done[at : at + 2]) for at in (3, 5, 7)} == {"AA", "BB", "CC"}


def test_whoever_asks_for_something_new_is_next_after_the_piece(tabs, monkeypatch):
    monkeypatch.setattr(turns, "TURN_S", 1000.0)
    long, other = Pieces(9), Pieces(9)
    tabs.put("A", "a", long)
    long.wait_started()
    tabs.put("B", "b", other)
    long.release()
    other.wait_started()
    other.release()
    long.wait_started()  # a second turn, which is long
    new = Pieces(1)
    tabs.put("C", "c", new)
    long.release()
    new.wait_started()
    assert (tabs.state("A"), tabs.state("B"), tabs.state("C")) == ("queued", "queued", "running")
    new.release()
    assert tabs.end("C").state == "done"
    long.release(9)
    other.release(9)


def test_what_a_page_reads_by_itself_does_not_cut_the_turns_of_others_short(tabs, monkeypatch):
    monkeypatch.setattr(turns, "TURN_S", 1000.0)
    done = []
    long, other = (Pieces(5, called=tab, order=done) for tab in "ab")
    tabs.put("A", "a", long, priority=2)
    long.wait_started()
    tabs.put("B", "b", other, priority=2)
    long.release()
    other.wait_started()
    other.release()
    long.wait_started()  # its second turn
    tabs.put("B", "read", Pieces(0), priority=3, slot="read")
    long.release(4)
    other.release(4)
    assert tabs.end("B").state == tabs.end("A").state == tabs.end("B", "read").state == "done"
    assert "".join(done) == "abaaaabbbb"


def test_background_work_of_one_tab_gives_way_to_another_in_the_middle_of_a_piece(tabs):
    idle, urgent = Work(3, stops=True), Pieces(1, let_go=1)
    tabs.put("A", "idle", idle, priority=5, slot="idle")
    idle.wait_started()
    tabs.put("B", "b", urgent, priority=2)
    idle.release()
    assert tabs.end("B").state == "done" and idle.left == ["in 1"]
    idle.release(3)
    assert tabs.end("A", "idle").state == "done"


def test_long_jobs_of_any_kind_take_turns_but_background_work_comes_last(tabs, monkeypatch):
    monkeypatch.setattr(turns, "TURN_S", 0.0)
    monkeypatch.setattr(turns, "OVERHEAD", 0.0)
    figure, sweep, idle = Pieces(4), Pieces(2), Pieces(1, let_go=1)
    tabs.put("A", "figure", figure)
    figure.wait_started()
    tabs.put("B", "sweep", sweep, priority=2)
    tabs.put("C", "idle", idle, priority=5)
    figure.release()
    sweep.wait_started()
    assert tabs.state("A") == "queued", "after a whole turn a figure ranks with what was asked for"
    sweep.release(2)
    figure.release(3)
    assert tabs.end("A").state == "done" and tabs.end("B").state == "done" and tabs.end("C").state == "done"


def test_two_jobs_of_one_tab_do_not_take_turns(tabs, monkeypatch):
    monkeypatch.setattr(turns, "TURN_S", 0.0)
    done = []
    first, second = Pieces(3, called="1", order=done), Pieces(2, let_go=2, called="2", order=done)
    tabs.put("A", "1", first)
    first.wait_started()
    tabs.put("A", "2", second, slot="curve")
    first.release(3)
    assert tabs.end("A", "curve").state == "done" and "".join(done) == "11122"


def test_a_shared_job_runs_when_any_of_its_tabs_is_in_turn(tabs):
    gate, done = Work(1), []
    tabs.put("gate", "gate", gate)
    gate.wait_started()
    shared = Pieces(1, let_go=1, called="shared", order=done)
    tabs.put("A", "shared", shared)
    tabs.put("B", "b", Pieces(1, let_go=1, called="b", order=done))
    tabs.put("C", "shared", shared)
    gate.release()
    assert tabs.end("B").state == "done" and done == ["shared", "b"]


def test_run_this_first_goes_before_another_tab_to_its_end(tabs, monkeypatch):
    monkeypatch.setattr(turns, "TURN_S", 0.0)
    other, mine = Pieces(9), Pieces(3)
    tabs.put("A", "a", other)
    other.wait_started()
    tabs.put("B", "b", mine, priority=2)
    tabs.of("B").put_first("accuracy")
    other.release()
    mine.wait_started()
    mine.release(3)
    assert tabs.end("B").state == "done" and tabs.state("A") in ("queued", "running") and other.stored == 1
    other.release(9)


def test_a_reloaded_page_takes_over_its_jobs_whatever_became_of_them(tabs):
    work = Pieces(2)
    tabs.put("A", "runs", work)
    work.wait_started()
    tabs.put("A", "stopped", Pieces(1), slot="curve")
    tabs.of("A").cancel("curve")
    tabs.closed.add("A")
    assert tabs.put("B", "runs", Pieces(1)).state == "running"
    assert tabs.put("B", "stopped", Pieces(1), slot="curve").state == "canceled"
    work.release(2)
    assert tabs.end("B").value == 1 and work.starts == 1
    assert tabs.of("A").status("accuracy") is None, "the closed tab has let go of it"


def test_to_cancel_what_only_a_closed_tab_wants_too_stops_it(tabs):
    work = Pieces(2)
    for tab in "AB":
        tabs.put(tab, "same", work)
    work.wait_started()
    tabs.closed.add("A")
    tabs.of("B").cancel("accuracy")
    work.release()
    assert tabs.end("B").state == "canceled"


def test_what_closed_tabs_held_is_forgotten_except_work_that_goes_on(tabs, monkeypatch):
    monkeypatch.setattr(module, "MOST_CLOSED", 1)
    asked, seen = Pieces(1), Pieces(1)
    for tab in ("one", "two", "last", "open"):
        tabs.put(tab, tab, Pieces(0))
        assert tabs.end(tab).state == "done"
    tabs.put("asked", "a", asked)
    asked.wait_started()
    tabs.put("seen", "s", seen, while_seen=True)
    tabs.put("last", "another", Pieces(0), slot="curve")
    tabs.closed |= {"asked", "seen", "one", "two", "last"}
    tabs.jobs.forget_closed()
    assert {tab for tab, _ in tabs.jobs._slots.held} == {"asked", "last", "open"}
    assert {*tabs.jobs._lanes.measuring.turns._place} == {"asked", "last", "open"}
    asked.release()
    assert tabs.end("asked").state == "done" and seen.starts == 0
    tabs.jobs.forget_closed()
    assert {tab for tab, _ in tabs.jobs._slots.held} == {"last", "open"}


def test_after_it_gave_way_a_job_does_not_tell_again_what_it_has_told(tabs, monkeypatch):
    monkeypatch.setattr(turns, "TURN_S", 0.0)
    monkeypatch.setattr(turns, "OVERHEAD", 0.0)
    told, work, other = [], Pieces(6), Pieces(1)
    tabs.put("A", "a", work)
    publish = tabs.jobs._lanes.publish

    def noted(job, **changes):
        if job.status.key == "a":
            told.append(changes.get("done"))
        publish(job, **changes)

    monkeypatch.setattr(tabs.jobs._lanes, "publish", noted)
    work.wait_started()
    for _ in range(3):
        work.release()
        work.wait_started()
    tabs.put("B", "b", other)
    work.release()
    other.wait_started()
    other.release()
    work.release(2)
    assert tabs.end("A").state == "done"
    assert [done for done in told if done is not None] == sorted(done for done in told if done is not None)
    assert work.starts == 2


def test_many_threads_put_cancel_and_look_at_once(tabs):
    """Whatever tabs do at the same time, every job ends and none is run twice at once."""
    here, most, lock = [0], [0], threading.Lock()

    def work():
        with lock:
            here[0] += 1
            most[0] = max(most[0], here[0])
        try:
            for number in range(3):
                count_piece.get()()
                yield Progress(number + 1, 3, number)
        finally:
            with lock:
                here[0] -= 1

    tab = threading.local()
    jobs = Jobs(tab=lambda: tab.name, is_here=lambda name: True)

    def use(name):
        tab.name = name
        for number in range(60):
            jobs.put("accuracy", Job(f"{number // 3}", work))
            (jobs.ahead_of, jobs.cancel, jobs.drop, jobs.put_first)[number % 4]("accuracy")
        jobs.put("accuracy", Job(name, work), again=True)
        ends.append(jobs.join("accuracy", WAIT_S).state)

    ends = []
    threads = [threading.Thread(target=use, args=(f"tab {n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    tab.name = None
    jobs.close(WAIT_S)
    assert ends == ["done"] * 6 and most == [1]


def test_reading_does_not_wait_for_the_computation_of_another_tab(tabs):
    long = Pieces(2)
    tabs.put("A", "long", long)
    long.wait_started()
    tabs.put("B", "read", Pieces(1, let_go=1), priority=1, slot="stored", reads=True)
    assert tabs.end("B", "stored").state == "done" and tabs.state("A") == "running"
    assert tabs.jobs.running.key == "long", "what reads computes nothing"
    long.release(2)


@pytest.mark.parametrize("is_complete", [True, False])
def test_a_waiting_job_whose_results_are_all_stored_is_done_at_once(tabs, is_complete):
    long, mine = Pieces(2), Pieces(1, let_go=1)
    tabs.put("A", "long", long)
    long.wait_started()
    read = threading.Event()

    def stored():
        yield Progress(1, 1, 7 if is_complete else None)
        read.set()

    tabs.put("B", "mine", mine, read_stored=stored)
    assert read.wait(WAIT_S)
    if not is_complete:
        assert tabs.state("B") == "queued"
        long.release(2)
    end = tabs.end("B")
    assert (end.state, end.value, mine.starts) == ("done", 7 if is_complete else 0, 0 if is_complete else 1)
    long.release(2)
    assert tabs.end("A").state == "done"


def test_what_a_read_may_not_do_is_left_to_the_worker(tabs):
    long, ran_in = Pieces(2), []
    tabs.put("A", "long", long)
    long.wait_started()

    def renders():
        ran_in.append(threading.current_thread().name)
        leave_to_measuring()
        yield Progress(1, 1, "rendered")

    tabs.put("B", "questions", renders, reads=True)
    long.release(2)
    assert tabs.end("B").value == "rendered" and ran_in == ["headroom-reads", "headroom-jobs"]

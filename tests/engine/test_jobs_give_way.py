"""Jobs: what nobody looks at rests and goes on when somebody does; what waits says for what, and can be let go first;
consent to download task rows belongs to one job. No test sleeps."""

import threading
from functools import partial

import pytest

from engine import slots as module
from engine.errors import NotHere
from engine.jobs import Jobs
from engine.progress import Progress
from engine.questions.rendering import TaskSpec, render_questions
from engine.questions.tasks import agree_to_fetch, may_fetch
from engine.slots import Job
from tests.conftest import HANG_S
from tests.conftest import HANG_S as WAIT_S
from tests.engine.fixtures import refused_by
from tests.engine.jobs_work import Work

Steps = partial(Work, 3, stops=True)


def rested(jobs, slot):
    """The slot's job, once the measuring thread has turned to something behind it."""
    jobs.put("behind", Job("behind", lambda: iter([Progress(1, 1)]), priority=99), again=True)
    jobs.join("behind", WAIT_S)
    return jobs.status(slot)


def test_an_open_page_is_enough_whenever_it_has_looked(monkeypatch):
    """A hidden tab's timers are slow."""
    open_pages, work = {"first", "second"}, Steps()
    looking = ["first"]
    jobs = Jobs(page=lambda: looking[0], is_open=open_pages.__contains__)
    monkeypatch.setattr(module, "UNSEEN_S", -1.0)
    jobs.put("ahead", Job("a", work, 3, while_seen=True))
    looking[0] = "second"
    jobs.see("ahead", "a")
    looking[0] = None
    open_pages.discard("first")
    work.wait_started()
    work.release()
    work.wait_started()  # step 1 is published: the second is still open
    open_pages.discard("second")
    work.release()
    job = rested(jobs, "ahead")
    jobs.close(WAIT_S)
    assert (job.state, job.done, work.left) == ("left", 1, ["in 2"])


def test_what_nobody_looks_at_rests_and_goes_on_when_somebody_does(jobs, monkeypatch):
    work = Steps()
    jobs.put("ahead", Job("a", work, 3, while_seen=True))
    work.wait_started()
    work.release()
    work.wait_started()  # step 1 is published, step 2 is in hand
    monkeypatch.setattr(module, "UNSEEN_S", -1.0)
    work.release()
    job = rested(jobs, "ahead")
    assert (job.state, job.done, work.left) == ("left", 1, ["in 2"]), "left in the middle of a step"
    assert not job.under_way and not job.finished
    monkeypatch.undo()
    assert jobs.see("ahead", "another key") is None and jobs.status("ahead").state == "left"
    jobs.see("ahead", "a")
    work.release(3)
    end = jobs.join("ahead", WAIT_S)
    assert (end.state, end.done, end.value) == ("done", 3, 2)


def test_to_put_the_same_there_is_to_look_at_it(jobs, monkeypatch):
    work = Work(1, stops=True)
    monkeypatch.setattr(module, "UNSEEN_S", -1.0)
    jobs.put("ahead", Job("a", work, 3, while_seen=True))
    assert rested(jobs, "ahead").state == "left" and not work.left
    monkeypatch.undo()
    jobs.put("ahead", Job("a", work, 3, while_seen=True))
    work.release()
    assert jobs.join("ahead", WAIT_S).state == "done"


def test_what_was_asked_for_is_done_though_nobody_looks(jobs, monkeypatch):
    work = Steps()
    jobs.put("ahead", Job("a", work, 3, while_seen=True))
    jobs.put("ahead", Job("a", work, 1), again=True)  # the button
    monkeypatch.setattr(module, "UNSEEN_S", -1.0)
    work.release(3)
    assert jobs.join("ahead", WAIT_S).state == "done" and not work.left


def test_whoever_waits_for_a_job_looks_at_it(jobs, monkeypatch):
    monkeypatch.setattr(module, "UNSEEN_S", -1.0)
    work = Work(2, stops=True)
    jobs.put("ahead", Job("a", work, 3, while_seen=True))
    rested(jobs, "ahead")
    work.release(2)
    assert jobs.join("ahead", WAIT_S).state == "done"


def test_what_rests_can_be_canceled_and_is_closed_with_the_rest(jobs, monkeypatch):
    monkeypatch.setattr(module, "UNSEEN_S", -1.0)
    for slot in ("one", "two"):
        jobs.put(slot, Job("a", Steps(), 3, while_seen=True))
    rested(jobs, "two")
    jobs.cancel("one")
    assert jobs.status("one").state == "canceled"
    jobs.close(WAIT_S)
    assert jobs.status("two").state == "canceled"


def test_an_urgent_job_does_not_wait_for_the_end_of_a_step(jobs):
    ahead, urgent = Steps(), Work(1, stops=True)
    jobs.put("ahead", Job("a", ahead, priority=3))
    ahead.wait_started()
    jobs.put("accuracy", Job("b", urgent))
    ahead.release()  # in the middle of its first step it hears of it
    urgent.wait_started()
    assert ahead.left == ["in 1"] and jobs.status("ahead").state == "queued"
    urgent.release()
    ahead.release(3)
    assert jobs.join("ahead", WAIT_S).done == 3


def test_a_job_that_nobody_looks_at_makes_nobody_give_way(jobs, monkeypatch):
    busy, unseen = Work(2, stops=True), Work(1, stops=True)
    jobs.put("busy", Job("a", busy, priority=2))
    busy.wait_started()
    monkeypatch.setattr(module, "UNSEEN_S", -1.0)
    jobs.put("unseen", Job("b", unseen, 0, while_seen=True))
    busy.release(2)
    assert jobs.join("busy", WAIT_S).state == "done" and not busy.left


def test_what_waits_says_for_what_and_can_go_first(jobs):
    long, mine = Work(5, stops=True), Work(1, stops=True)
    jobs.put("curve", Job("c", long, 1, "Curve"))
    long.wait_started()
    long.release()
    long.wait_started()
    jobs.put("importance", Job("i", mine, 1, "Importance"))
    ahead = jobs.ahead_of("importance")
    assert (ahead.title, ahead.done, ahead.total) == ("Curve", 1, 5)
    assert jobs.ahead_of("curve") is None and jobs.ahead_of("never used") is None
    jobs.put_first("importance")
    long.release()
    mine.wait_started()
    assert long.left == ["in 2"] and jobs.ahead_of("curve").title == "Importance"
    mine.release()
    assert jobs.join("importance", WAIT_S).state == "done"
    long.release(5)
    assert jobs.join("curve", WAIT_S).state == "done", "the other goes on afterwards"


def test_the_time_left_is_told_with_the_job(jobs, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    work = Work(10, stops=True)
    job = lambda: jobs.status("curve")  # noqa: E731
    jobs.put("curve", Job("c", work))
    for _ in range(4):
        work.wait_started()
        clock[0] += 10.0
        work.release()
    work.wait_started()
    assert job().done == 4 and job().left_s == pytest.approx(60.0)
    clock[0] += 5.0
    assert job().left_s == pytest.approx(55.0), "it falls with the clock"
    work.release(6)
    jobs.join("curve", WAIT_S)
    assert job().left_s is None


def test_rows_are_downloaded_only_with_consent():
    refused_by(NotHere, "the rows of task piqa are not on this computer", lambda: render_questions(TaskSpec("piqa")))


def test_consent_in_one_thread_is_not_that_of_another():
    seen = {}

    def agree():
        agree_to_fetch()
        seen["here"] = may_fetch()

    thread = threading.Thread(target=agree)
    thread.start()
    thread.join(HANG_S)
    assert seen == {"here": True} and not may_fetch()


def test_whoever_waits_may_end_the_wait_and_the_job_goes_on():
    ends = iter([None, InterruptedError])

    def meanwhile():
        if end := next(ends):
            raise end

    jobs, may_end = Jobs(meanwhile=meanwhile), threading.Event()

    def works():
        may_end.wait(HANG_S)
        yield Progress(1, 1, "done")

    jobs.put("a", Job("a", works))
    with pytest.raises(InterruptedError):
        jobs.join("a", HANG_S)
    may_end.set()
    ends = iter(lambda: None, 0)
    assert jobs.join("a", HANG_S).value == "done"
    jobs.close()


def test_consent_ends_with_the_job_that_has_it(jobs):
    def agreed():
        agree_to_fetch()
        yield Progress(1, 1, may_fetch())

    jobs.put("a", Job("a", agreed))
    assert jobs.join("a", HANG_S).value is True
    jobs.put("b", Job("b", lambda: iter([Progress(1, 1, may_fetch())])))
    assert jobs.join("b", HANG_S).value is False


def test_a_job_that_yields_to_another_resumes_with_its_consent(jobs):
    work, seen = Work(2), []

    def start():
        agree_to_fetch()
        return (step for step in work() if seen.append(may_fetch()) is None)

    jobs.put("long", Job("long", start, priority=5))
    work.wait_started()
    jobs.put("short", Job("short", lambda: iter([Progress(1, 1, may_fetch())]), priority=0))
    work.release(3)  # the chunk in hand, and both once more
    assert jobs.join("short", HANG_S).value is False
    assert jobs.join("long", HANG_S).done == 2 and work.starts == 2 and seen == [True] * 3

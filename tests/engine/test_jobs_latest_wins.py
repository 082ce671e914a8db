"""Jobs: one thread, latest wins per slot, cancel leaves nothing behind, urgent work goes first. No test sleeps."""

import logging
import threading

import pytest

from engine.errors import Canceled, HeadroomError
from engine.jobs import Jobs
from engine.progress import Progress
from engine.slots import Job
from tests.conftest import HANG_S as WAIT_S
from tests.engine.jobs_work import Work, done_at_once


def test_a_job_runs_to_its_end_and_keeps_its_last_value(jobs):
    work = Work(3)
    assert jobs.status("accuracy") is None
    assert jobs.put("accuracy", Job("a", work)).state in ("queued", "running")
    work.release(3)
    end = jobs.join("accuracy", WAIT_S)
    assert (end.state, end.done, end.total, end.value, end.error) == ("done", 3, 3, 2, None)
    assert end.finished and end.finished_s >= end.started_s and end.seconds >= 0
    assert work.closes == 1


def test_a_step_without_a_value_keeps_the_one_before(jobs):
    jobs.put("accuracy", Job("a", lambda: iter([Progress(1, 3, "so far"), Progress(2, 3), Progress(3, 3)])))
    assert jobs.join("accuracy", WAIT_S).value == "so far"


def test_the_same_key_is_left_alone_while_running_and_when_done(jobs):
    work = Work(1)
    jobs.put("accuracy", Job("a", work))
    work.wait_started()
    jobs.put("accuracy", Job("a", work))
    work.release()
    assert jobs.join("accuracy", WAIT_S).state == "done"
    assert jobs.put("accuracy", Job("a", work)).state == "done"
    assert work.starts == 1


def test_latest_wins(jobs):
    first, second, third = Work(5), Work(1), Work(1)
    jobs.put("accuracy", Job("1", first))
    first.wait_started()
    jobs.put("accuracy", Job("2", second))
    assert jobs.put("accuracy", Job("3", third)).key == "3"
    assert jobs.status("accuracy").key == "3", "the old job must leave the screen at once"
    third.release()
    first.release()  # the chunk in hand ends; no other is begun
    end = jobs.join("accuracy", WAIT_S)
    assert (end.key, end.state) == ("3", "done")
    assert (first.starts, first.closes) == (1, 1)
    assert second.starts == 0


def test_cancel_closes_the_generator_and_keeps_what_was_measured(jobs):
    work = Work(5)
    jobs.put("curve", Job("a", work))
    work.wait_started()
    work.release()
    work.wait_started()  # chunk 1 is published, chunk 2 is in hand
    jobs.cancel("curve")
    assert jobs.status("curve").state == "running" and jobs.status("curve").stopping
    work.release()
    end = jobs.join("curve", WAIT_S)
    assert (end.state, end.done, end.value, end.message) == ("canceled", 1, 0, "")
    assert work.closes == 1
    assert jobs.put("curve", Job("a", work)).state == "canceled", "a canceled job does not come back by itself"
    assert jobs.put("curve", Job("a", work), again=True).state in ("queued", "running")
    work.release(5)
    assert jobs.join("curve", WAIT_S).state == "done"


def test_a_dropped_job_stops_and_may_come_back(jobs):
    work = Work(2)
    jobs.put("accuracy", Job("a", work))
    work.wait_started()
    jobs.drop("accuracy")
    jobs.drop("never used")
    assert jobs.status("accuracy") is None
    assert jobs.put("accuracy", Job("a", work)).state == "queued"
    work.release(3)  # the chunk in hand, then both chunks of the new start
    assert jobs.join("accuracy", WAIT_S).state == "done"
    assert (work.starts, work.closes) == (2, 2)


def test_a_queued_job_is_canceled_at_once(jobs):
    busy, waiting = Work(1), Work(1)
    jobs.put("accuracy", Job("a", busy))
    busy.wait_started()
    jobs.put("curve", Job("b", waiting))
    jobs.cancel("curve")
    assert jobs.status("curve").state == "canceled"
    busy.release()
    assert jobs.join("accuracy", WAIT_S).state == "done"
    assert waiting.starts == 0


def test_slots_run_one_at_a_time_in_order_of_submission(jobs):
    order, gate, names = [], Work(1), ["accuracy", "importance", "curve"]
    jobs.put("gate", Job("g", gate))
    gate.wait_started()
    for name in names:
        jobs.put(name, Job(name, lambda name=name: iter([Progress(1, 1, order.append(name) or name)])))
    gate.release()
    assert jobs.join("curve", WAIT_S).value == "curve" and order == names


def test_background_work_gives_way_and_comes_back(jobs):
    background, urgent = Work(2), Work(1)
    jobs.put("curve", Job("c", background, priority=1))
    background.wait_started()
    jobs.put("accuracy", Job("a", urgent, priority=0))
    background.release()  # chunk 1 ends, and the urgent job takes over
    urgent.wait_started()
    paused = jobs.status("curve")
    assert (paused.state, paused.done, background.closes) == ("queued", 1, 1)
    urgent.release()
    assert jobs.join("accuracy", WAIT_S).state == "done"
    background.release(2)
    end = jobs.join("curve", WAIT_S)
    assert (end.state, end.done, background.starts, background.closes) == ("done", 2, 2, 2)


class Panic(BaseException):
    """What a panic in Rust code looks like from Python: not an Exception."""


def fails_at_once():
    raise HeadroomError("level 120%: give 0 to 100")


@pytest.mark.parametrize("work, state, error", [
    (done_at_once(error=HeadroomError("no such folder: /x")), "failed", "no such folder: /x"),
    (fails_at_once, "failed", "level 120%: give 0 to 100"),
    (Work(0, ZeroDivisionError("by nothing")), "failed", "unexpected: ZeroDivisionError: by nothing; "),
    (Work(0, Panic("index out of bounds")), "failed", "unexpected: Panic: index out of bounds"),
    (Work(0, SystemExit(3)), "failed", "unexpected: SystemExit: 3"),
    (Work(0, Canceled("stopped")), "canceled", None),
])  # fmt: skip
def test_how_a_job_ends_is_told_and_the_worker_lives_on(work, state, error, jobs, caplog):
    with caplog.at_level(logging.ERROR):
        jobs.put("accuracy", Job("a", work))
        end = jobs.join("accuracy", WAIT_S)
    is_ours = not (error or "").startswith("unexpected: ")
    assert end.state == state and (end.error == error if is_ours else end.error.startswith(error))
    assert ("Traceback" in caplog.text) == (not is_ours)
    assert jobs.put("accuracy", Job("a", work)).state == state, "it is not repeated by a rerun of the page"
    if isinstance(work, Work):
        assert work.starts == 1 and end.value == (0 if work.chunks else None)
    jobs.put("accuracy", Job("b", done_at_once()))
    assert jobs.join("accuracy", WAIT_S).state == "done"


def test_a_failing_clean_up_is_a_failure(jobs):
    work = Work(2)

    def start():
        try:
            yield from work()
        finally:
            raise OSError("disk gone")

    jobs.put("accuracy", Job("a", start))
    work.wait_started()
    jobs.cancel("accuracy")
    work.release()
    assert jobs.join("accuracy", WAIT_S).error.startswith("unexpected: OSError: disk gone; ")


def test_after_long_work_the_worker_is_at_rest_once_nothing_is_left(monkeypatch):
    rests = threading.Semaphore(0)
    jobs, first, second = Jobs(at_rest=rests.release), Work(1), Work(1)
    jobs.put("a", Job("a", first))
    first.wait_started()
    jobs.put("b", Job("b", second))
    monkeypatch.setattr("engine.lanes.LONG_S", 0.0)  # from here on everything is long
    first.release()
    second.wait_started()
    assert not rests.acquire(blocking=False), "there is something left"
    second.release()
    assert rests.acquire(timeout=WAIT_S)
    monkeypatch.setattr("engine.lanes.LONG_S", 1000.0)
    jobs.put("a", Job("c", done_at_once()))
    assert jobs.join("a", WAIT_S).state == "done"
    jobs.close(WAIT_S)
    assert not rests.acquire(blocking=False), "nor after short work"


def test_tidying_up_that_fails_does_not_end_the_worker(monkeypatch, caplog):
    monkeypatch.setattr("engine.lanes.LONG_S", 0.0)
    tried = threading.Semaphore(0)

    def at_rest():
        tried.release()
        raise OSError("no memory to give back")

    jobs = Jobs(at_rest)
    for key in ("a", "b"):
        jobs.put("accuracy", Job(key, done_at_once()))
        assert jobs.join("accuracy", WAIT_S).state == "done"
        assert tried.acquire(timeout=WAIT_S)
    jobs.close(WAIT_S)
    failures = [record for record in caplog.records if record.message == "tidying up failed"]
    assert len(failures) == 2 and "no memory to give back" in str(failures[0].exc_info[1])


def test_close_stops_everything_and_takes_no_more():
    jobs, waiting = Jobs(), Work(1)
    in_hand, closed = threading.Event(), threading.Event()

    def run():
        try:
            in_hand.set()
            with jobs._changed:  # the chunk in hand lasts until close() has been called
                assert jobs._changed.wait_for(lambda: jobs._lanes.are_closed, WAIT_S)
            yield Progress(1, 9)
            yield Progress(2, 9)
        finally:
            closed.set()

    jobs.put("a", Job("a", run))
    jobs.put("b", Job("b", waiting))
    assert in_hand.wait(WAIT_S)
    jobs.close(WAIT_S)
    assert closed.is_set() and waiting.starts == 0
    assert jobs.status("a").state == jobs.status("b").state == "canceled"
    with pytest.raises(HeadroomError):
        jobs.put("a", Job("c", Work(1)))


def test_a_join_may_end_before_the_job():
    jobs, go_on = Jobs(), threading.Event()

    def work():
        yield Progress(1, 2, "half")
        assert go_on.wait(WAIT_S)
        yield Progress(2, 2, "all")

    jobs.put("slot", Job("key", work))
    half = jobs.join("slot", WAIT_S, lambda job: job.value is not None)
    assert half is not None and half.value == "half" and not half.finished
    assert not jobs.join("slot", 0.01, lambda job: job.value == "all").finished
    go_on.set()
    assert jobs.join("slot", WAIT_S, lambda job: False).value == "all"
    jobs.close(WAIT_S)

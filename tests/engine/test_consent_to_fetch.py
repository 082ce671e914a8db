"""Consent to download task rows belongs to one job or command, and a job keeps it until it ends."""

import threading

import pytest

from engine.errors import NotHere
from engine.jobs import Job
from engine.progress import Progress
from engine.questions.requests import TaskSpec, get_requests
from engine.questions.tasks import agree_to_fetch, may_fetch
from tests.conftest import HANG_S
from tests.engine.jobs_work import Work


def test_rows_are_downloaded_only_with_consent():
    with pytest.raises(NotHere, match="the rows of task piqa are not on this computer"):
        get_requests(TaskSpec("piqa"))


def test_consent_in_one_thread_is_not_that_of_another():
    seen = {}

    def agree():
        agree_to_fetch()
        seen["here"] = may_fetch()

    thread = threading.Thread(target=agree)
    thread.start()
    thread.join(HANG_S)
    assert seen == {"here": True} and not may_fetch()


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

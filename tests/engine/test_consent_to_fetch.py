"""Consent to download task rows belongs to one job or command, and a job keeps it until it ends."""

import threading

import pytest

from engine.errors import NotHere
from engine.jobs import Job, Jobs
from engine.progress import Progress
from engine.questions.requests import TaskSpec, get_requests
from engine.questions.tasks import agree_to_fetch, may_fetch
from tests.conftest import HANG_S


@pytest.fixture
def jobs():
    jobs = Jobs()
    yield jobs
    jobs.close(HANG_S)


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

    def plain():
        yield Progress(1, 1, may_fetch())

    jobs.put("a", Job("a", agreed))
    assert jobs.join("a", HANG_S).value is True
    jobs.put("b", Job("b", plain))
    assert jobs.join("b", HANG_S).value is False


def test_a_job_that_yields_to_another_resumes_with_its_consent(jobs):
    begun, go_on, runs = threading.Event(), threading.Event(), []

    def start():
        agree_to_fetch()
        return steps()

    def steps():
        runs.append(may_fetch())
        yield Progress(0, 1)
        begun.set()
        assert go_on.wait(HANG_S)
        yield Progress(1, 1, may_fetch())

    jobs.put("long", Job("long", start, priority=5))
    assert begun.wait(HANG_S)
    jobs.put("short", Job("short", lambda: iter([Progress(1, 1, may_fetch())]), priority=0))
    go_on.set()
    assert jobs.join("short", HANG_S).value is False
    assert jobs.join("long", HANG_S).value is True and runs == [True, True]

"""A load says how much of the model is read, and stops between two tensors."""

from contextvars import copy_context

import pytest

from cache import Store
from engine.jobs import Jobs
from engine.models.loading import LoadSpec, load
from engine.models.session import Session
from engine.progress import Progress, Stopped, is_to_stop, tell
from engine.slots import Job


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_load_tells_its_percentage_and_can_be_stopped(tiny_opt, precision):
    told: list[str] = []
    most = 1_000

    def loaded():
        tell.set(lambda done, total, message, left_s: told.append(message))
        is_to_stop.set(lambda: len(told) >= most)
        load(LoadSpec(str(tiny_opt), precision))

    copy_context().run(loaded)
    assert told[0].startswith(f"loading {tiny_opt} in {precision}: ") and told[-1].endswith(": 99%")
    told.clear()
    most = 3
    with pytest.raises(Stopped):
        copy_context().run(loaded)
    assert len(told) == most, "it stops at the next tensor"


def test_a_job_shows_how_far_a_load_is(tiny_opt, tmp_path, monkeypatch):
    jobs, seen = Jobs(), list[str]()
    session = Session(Store(tmp_path / "store"))
    target = session.target(LoadSpec(str(tiny_opt), "fp32"))

    def work():
        def check(*given):
            seen.append(jobs.running.message)
            return ()

        monkeypatch.setattr("engine.models.in_memory.check_model", check)
        yield from session.loaded(target)
        running = jobs.running
        seen.append(running.message if running else "")
        yield Progress(1, 1, 1)

    jobs.put("load", Job("load", work))
    ended = jobs.join("load", 60)
    jobs.close()
    assert ended and ended.state == "done"
    assert seen == [f"checking the layers of {tiny_opt}", ""]

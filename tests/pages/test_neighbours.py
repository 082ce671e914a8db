"""Idle work of the Prune screen: neighboring levels, nearest first, only while a page looks in, behind all else."""

import threading
from dataclasses import replace

import numpy as np
import pytest

from engine import jobs as engine_jobs
from engine.importance.rankings_of import Evidence, Ranking
from engine.jobs import Jobs
from engine.progress import Progress
from engine.slots import Job
from pages.ui.page import runtime as frame
from pages.ui.prune import neighbours
from pages.ui.prune.experiment import curve
from pages.ui.prune.neighbours import SLOT, Idle, levels_to_measure
from tests.engine.fixtures import while_measured
from tests.pages.conftest import WAIT_S, experiment_of, settled, slide, under_figure


@pytest.fixture
def x(open_app):
    """The experiment of a page on which nothing happens any more."""
    return experiment_of(open_app(prune_order="random", prune_heads="40"))


def levels_of(x, axis="heads"):
    """The measured levels, 0-1."""
    return [permille / 1000 for permille in curve(x, axis, Evidence()).so_far(frame.session())]


def idle(x, axis="heads", since_s=-np.inf):
    there = levels_of(x, axis)
    return Idle(x, axis, Evidence(), levels_to_measure(x, axis, Evidence(), there), since_s)


def test_a_page_without_a_timer_starts_nothing(x):
    assert frame.jobs().snapshot(SLOT) is None
    work = idle(x)
    assert work.wanted
    work.look_in()
    assert frame.jobs().snapshot(SLOT) is None, "the first drawing is the user's, not the timer's"
    idle(x, since_s=1e12).look_in()
    assert frame.jobs().snapshot(SLOT) is None


def test_the_whole_axis_is_measured_nearest_first(x):
    work = idle(x)
    assert work.levels == (300, 500, 200, 600, 700, 800, 900, 1000), "0, 10 (none of 8 heads) and 40% are there"
    work.look_in()
    work.look_in()
    assert frame.jobs().join(SLOT, WAIT_S).state == "done"
    assert levels_of(x) == [at / 10 for at in range(11)]
    assert not work.wanted and not idle(x).levels, "there is nothing to poll for any more"
    assert idle(x, "ffns").levels, "the other axis was not asked for"


def test_it_rests_when_no_page_looks_in_and_goes_on_when_one_does(x, gate, monkeypatch):
    """A second job, behind it, shows that the worker has left it: no test sleeps."""
    work, real = idle(x), neighbours.curve
    monkeypatch.setattr(neighbours, "curve", lambda *given: gate.held(real(*given), next))
    work.look_in()
    work.look_in()
    assert gate.reached.wait(WAIT_S)
    monkeypatch.setattr(engine_jobs, "UNSEEN_S", -1.0)  # from now on nobody looks in
    frame.jobs().put("after it", Job("after it", lambda: iter([Progress(1, 1)]), neighbours.PRIORITY + 1))
    gate.go_on.set()
    frame.jobs().join("after it", WAIT_S)
    job = frame.jobs().snapshot(SLOT)
    assert job.state == "left" and job.done < job.total and work.wanted
    monkeypatch.undo()
    work.look_in()  # the page is seen again
    assert frame.jobs().join(SLOT, WAIT_S).done == job.total and not work.wanted


def test_no_more_is_measured_than_the_budget_allows(x, monkeypatch):
    one, full = (x.workload(x.at("heads", permille).mask(Evidence())).seconds(frame.store(), x.target)
                 for permille in (300, 0))  # fmt: skip
    assert one > 0, "the accuracy that the page has measured was timed"
    assert full > one, "of a pruned model less is computed"
    monkeypatch.setenv("HEADROOM_IDLE_SECONDS", str(1.5 * one))
    assert idle(x).levels == (300,)
    monkeypatch.setenv("HEADROOM_IDLE_SECONDS", "0")
    assert idle(x).levels == ()


def test_it_waits_for_everything_else_and_gives_way_to_it(x, gate, monkeypatch):
    gate.occupy("importance", priority=1)
    work, order = idle(x), []

    def urgent():
        order.append("asked for")
        yield Progress(1, 1)

    work.look_in()
    work.look_in()
    assert frame.jobs().snapshot(SLOT) is None, "something is under way"
    gate.go_on.set()
    frame.jobs().join("importance", WAIT_S)
    real, asked = neighbours.curve, []

    def slow(own):
        for step in own:
            if not asked:
                asked.append(frame.jobs().put("importance", Job("more urgent", urgent, priority=3)))
            yield step
        order.append("neighbours")
        return {}

    monkeypatch.setattr(neighbours, "curve", lambda *given: while_measured(real(*given), slow))
    work.look_in()
    frame.jobs().join(SLOT, WAIT_S)
    assert order == ["asked for", "neighbours"]


def test_a_moved_slider_ends_it(open_app, gate):
    at = open_app(prune_order="random", prune_heads="40")
    assert at.toggle(key="prune_idle").value is True
    work = idle(experiment_of(at))
    frame.jobs().put(SLOT, Job(work.work.key, gate.job, neighbours.PRIORITY))
    assert gate.reached.wait(WAIT_S)
    assert work.in_words() == ""
    slide(at, "prune_heads", 50, moving=True).run()
    assert frame.jobs().snapshot(SLOT) is None
    gate.go_on.set()
    settled(slide(at, "prune_heads", 50))
    assert "Gained" in under_figure(at)


def test_what_failed_or_was_stopped_is_not_tried_again(x):
    work = idle(x)

    def broken():
        raise RuntimeError("no")
        yield

    frame.jobs().put(SLOT, Job(work.work.key, broken))
    assert frame.jobs().join(SLOT, WAIT_S).state == "failed"
    work.look_in()
    work.look_in()
    assert frame.jobs().snapshot(SLOT).state == "failed" and not work.wanted


def test_no_ranking_or_no_model_in_memory_is_no_reason_to_work(x, open_app):
    by_importance = replace(x, pruning=replace(x.pruning, ranking=Ranking("importance")))
    in_bf16 = replace(x, target=replace(x.target, spec=replace(x.target.spec, precision="bf16")))
    assert not levels_to_measure(by_importance, "heads", Evidence(), [])
    assert levels_to_measure(x, "heads", Evidence(), [])
    assert not levels_to_measure(in_bf16, "heads", Evidence(), [])


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

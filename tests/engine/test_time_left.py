"""Time left: from a smoothed pace over the work that is left, however uneven the questions. The clock is the test's."""

import random

import pytest

from engine.progress import Progress, Stopped, TimeLeft, is_to_stop, may_stop

N, LOAD_S, RUN_S = 100, 20.0, 300.0


def uneven_run(seed, by_work=True):
    """(second, step) of a run of uneven questions: first the model is loaded, and its first pass is slow."""
    draw = random.Random(seed)
    sizes = [draw.lognormvariate(0, 1) for _ in range(N)]
    at_s, done = LOAD_S, 0.0
    yield 0.0, Progress(0, N, is_loading=True)
    for number, size in enumerate(sizes):
        at_s += RUN_S * size / sum(sizes) * draw.uniform(0.8, 1.2) + (8.0 if not number else 0.0)
        done += size / sum(sizes)
        yield at_s, Progress(number + 1, N, share=done if by_work else None)


def told(steps):
    """(forecast at 20% of the work, what was then truly left, the forecast at every second)."""
    steps, time_left, at_20, said = list(steps), TimeLeft(0.0), None, []
    end_s, coming = steps[-1][0], iter(steps)
    at_s, step = next(coming)
    for second in range(int(end_s)):
        while at_s <= second:
            time_left.told(at_s, step)
            if at_20 is None and (step.share or 0) >= 0.2:
                at_20 = time_left.left_s(at_s), end_s - at_s
            at_s, step = next(coming)
        said.append(time_left.left_s(second))
    return *at_20, said


@pytest.mark.parametrize("seed", range(20))
def test_at_20_percent_it_is_within_40_percent_and_it_never_counts_upwards(seed):
    said_s, true_s, every_second = told(uneven_run(seed))
    assert said_s == pytest.approx(true_s, rel=0.4)
    rising = longest = 0
    for before, after in zip(every_second, every_second[1:], strict=False):
        rising = rising + 1 if before is not None and after is not None and after > before else 0
        longest = max(longest, rising)
    assert longest < 10 and every_second[5] is None, "nothing is said of a model that is still being loaded"


def test_what_was_only_read_says_nothing_of_what_is_measured():
    time_left = TimeLeft(0.0)
    for number in range(50):
        time_left.told(0.01 * number, Progress(number, 100))
    for number in range(50, 61):
        time_left.told(0.5 + 4.0 * (number - 49), Progress(number, 100))
    assert time_left.left_s(0.5 + 4.0 * 11) == pytest.approx(40 * 4.0, rel=0.1)


def test_it_falls_with_the_clock_and_never_below_nothing():
    time_left = TimeLeft(0.0)
    assert time_left.left_s(0.0) is None
    for number in range(4):
        time_left.told(10.0 * number, Progress(number, 10))
    assert time_left.left_s(30.0) == pytest.approx(70.0)
    assert time_left.left_s(40.0) == pytest.approx(60.0) and time_left.left_s(1e6) == 0.0
    time_left.told(31.0, Progress(0, 5))
    assert time_left.left_s(31.0) is None, "another run"
    time_left.told(33.0, Progress(1, 5))
    time_left.told(35.0, Progress(2, 5))
    assert time_left.left_s(35.0) is None, "one piece may be far from the pace of the others"
    time_left.told(37.0, Progress(3, 5))
    assert time_left.left_s(37.0) == pytest.approx(4.0)


def test_a_share_finds_its_place_in_a_longer_run():
    step = Progress(1, 4, share=0.5)
    assert step.part == 0.5 and Progress(1, 4).part == 0.25 and Progress(0, 0).part == 0.0
    assert step.within(10, 100, 20).share == 0.2 and Progress(1, 4).within(10, 100, 20).share is None
    assert step.within().share == 0.5 and step.map(str).share == 0.5


def test_work_can_be_left_in_the_middle_of_a_step():
    may_stop()
    token = is_to_stop.set(lambda: True)
    try:
        with pytest.raises(Stopped):
            may_stop()
    finally:
        is_to_stop.reset(token)
    assert not issubclass(Stopped, Exception), "nothing on the way may take it for an error"

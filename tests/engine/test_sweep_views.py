"""The views of sweeps: what is drawn is what was measured."""

import pytest

from engine.questions.rendering import TaskSpec
from engine.studies.statements import break_points
from engine.studies.sweeps import Point, SweepRow, Swept
from engine.views.sweep import MEAN, RANDOM, break_part, grid_parts, orders_view, sweep_view
from engine.views.view import plain_text

TASKS = [TaskSpec(name, 5) for name in ("piqa", "copa")]


def row(task, heads, ffns, acc, by="own", of="", seed=0, lost=0, n=100):
    p = 0.001 if lost > 10 else 1.0
    return SweepRow(
        Point(task, heads, ffns, by, of, seed), n, acc, acc - 0.1, acc + 0.1, 0.25, heads // 100, 0, 0, lost, p
    )


def falling(task, start=0.9):
    """Flat to 50%, then down to chance."""
    return [row(task, level, 0, start if level <= 500 else 0.25, lost=0 if level <= 500 else 60)
            for level in range(0, 1001, 100)]  # fmt: skip


def curve(view, name):
    return {each["heads"]: each for each in view.parts[0].rows if each["curve"] == name}


def test_the_mean_is_drawn_where_every_task_is_measured():
    mean = curve(sweep_view(Swept((*falling(TASKS[0]), *falling(TASKS[1], 0.7)[:6])), {}), MEAN)
    assert list(mean) == [0, 0.1, 0.2, 0.3, 0.4, 0.5]
    assert [each["acc"] for each in mean.values()] == pytest.approx([0.8] * 6)
    assert not curve(sweep_view(Swept(tuple(falling(TASKS[0]))), {}), MEAN), "of a single task it is its curve"


def test_the_band_spans_the_means_of_the_seeds():
    own = (*falling(TASKS[0]), *falling(TASKS[1], 0.7))
    drawn_at = {0: (0.2, 0.4), 1: (0.6, 0.8)}
    random = [row(task, 400, 0, acc, "random", seed=seed)
              for seed, pair in drawn_at.items() for task, acc in zip(TASKS, pair, strict=True)]  # fmt: skip
    view = sweep_view(Swept(own), {}, random)
    band = curve(view, RANDOM)
    assert [band[0.4][name] for name in ("lowest", "acc", "highest")] == pytest.approx([0.3, 0.5, 0.7])
    assert band[0.0]["acc"] == pytest.approx(0.8), "the full model is every order's beginning"
    assert list(band) == [0.0, 0.4, 1.0] and view.parts[0].picture() is not None
    assert not curve(sweep_view(Swept(own), {}, random[::2]), RANDOM), "of one task they are not compared with the mean"


def test_the_grid_has_the_points_lost_and_how_far_they_are_few():
    levels = range(0, 1001, 500)
    rows = [row(task, h, f, 0.9 - (0.5 if h + f > 1000 else 0.0)) for task in TASKS for h in levels for f in levels]
    [part] = grid_parts(rows)
    lost = {(each["heads"], each["ffns"]): round(each["lost"], 6) for each in part.rows}
    assert lost["100%", "50%"] == 50 and lost["100%", "0%"] == 0 and part.title == "Heads and FFNs, 5 shots"
    assert "100% of heads with 0% of FFNs" in part.caption
    assert not grid_parts(falling(TASKS[0])), "of one axis there is none"


def test_orders_are_told_apart_and_their_means_compared():
    rows = [*falling(TASKS[0]), *(row(TASKS[0], level, 0, 0.5, "rescored") for level in range(0, 1001, 500))]
    view = orders_view(rows)
    assert "own order 60.5% and order rescored at each step 50.0%" in plain_text(view.finding)
    assert {each["curve"].rpartition(", ")[2] for each in view.parts[0].rows} == {
        "own order",
        "order rescored at each step",
    }


def test_break_points_state_how_far_nothing_is_lost():
    part = break_part("heads", break_points(falling(TASKS[0]), "heads"))
    assert part.rows[0]["no_loss_up_to"] == 0.5 and part.rows[0]["cliff"] == "50 to 60%, −60 points"

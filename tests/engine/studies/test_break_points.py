"""How much can go, read from hand-made curves and from a real one."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from engine.statistics import wilson
from engine.studies.break_points import break_points
from engine.studies.sweeps import Point, Row, points
from tests.engine.studies.conftest import swept


def curve(task, right, n=100, axis="heads", by_level=100):
    """Rows of hand-made accuracies, `right` of n at each level; every question that is lost was right before."""
    rows = []
    for number, count in enumerate(right):
        gained, lost = max(0, count - right[0]), max(0, right[0] - count)
        p = stats.binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
        levels = (number * by_level, 0) if axis == "heads" else (0, number * by_level)
        rows.append(Row(Point(task, *levels), n, count / n, 0.0, 1.0, 0.25, number, 0, gained, lost, p))
    return rows


@pytest.mark.parametrize("axis", ["heads", "ffns"])
def test_break_points_of_a_curve(axis, tasks):
    # 5 lost of 5 have p = 1/16, 6 lost of 6 have p = 1/32
    rows = curve(tasks[0], [80, 82, 75, 74, 40, 38], axis=axis)
    (found,) = break_points(rows, axis)
    assert (found.task, found.level, found.first_loss, found.full_acc, found.chance) == (tasks[0], 0.2, 0.3, 0.8, 0.25)
    assert found.inflection == 0.3  # 75 -> 74 -> 40: second difference -33
    assert found.cells() == {
        "task": tasks[0].name,
        "shots": 0,
        "level": 0.2,
        "first_loss": 0.3,
        "inflection": 0.3,
        "full_acc": 0.8,
        "chance": 0.25,
        "n": 100,
        "reading": "",
    }


def test_break_points_are_by_task_and_shot_count_in_any_order_of_rows(tasks):
    few = replace(tasks[0], shots=5)
    rows = [*curve(tasks[0], [80, 79, 60]), *curve(few, [90, 60, 50]), *curve(tasks[1], [50, 50, 50])]
    found = {each.task: each for each in break_points(rows[::-1], "heads")}
    assert {
        task: (each.level, each.first_loss) for task, each in found.items() if each.first_loss == each.first_loss
    } == {tasks[0]: (0.1, 0.2), few: (0.0, 0.1)}
    assert found[tasks[1]].level == 0.2 and np.isnan(found[tasks[1]].first_loss)
    assert break_points([], "heads") == []


def test_what_lies_behind_the_first_clear_loss_counts_for_nothing(tasks):
    """Accuracy may come back by chance, and at full pruning is a guess: never "100 % can go" beside a loss at 60 %."""
    (found,) = break_points(curve(tasks[0], [80, 60, 78, 40]), "heads")
    assert (found.level, found.first_loss) == (0.0, 0.1)
    rows = curve(tasks[0], [38, 38, 38, 38, 38, 38, 22, 33, 33, 33, 38])
    (found,) = break_points(rows, "heads")
    assert (found.level, found.first_loss) == (0.5, 0.6) and not rows[-1].is_loss


@pytest.mark.parametrize("right, above, chance", [(33, 34, 0.25), (20, 34, 0.25), (59, 60, 0.5), (0, 1, 0)])
def test_a_task_at_chance_is_credited_with_nothing(right, above, chance, tasks):
    """The full model's Wilson interval holds the accuracy of guessing at `right` of 100, from `above` on no more."""
    rows = [replace(row, chance=chance) for row in curve(tasks[0], [right, right, max(0, right - 20)])]
    (found,) = break_points(rows, "heads")
    assert found.reading == "at chance" and found.full_acc == right / 100
    assert np.isnan([found.level, found.first_loss, found.inflection]).all()
    low = stats.binomtest(above, 100).proportion_ci(method="wilson").low
    rows = [replace(row, chance=chance) for row in curve(tasks[0], [above, above])]
    assert low > chance and not break_points(rows, "heads")[0].reading


@pytest.mark.parametrize("only", [0, 2])
def test_one_level_is_not_a_curve(only, tasks):
    (found,) = break_points(curve(tasks[0], [80, 70, 50])[only : only + 1], "heads")
    assert found.reading == "not measured" and np.isnan(found.level) and np.isnan(found.first_loss)


def test_a_gain_is_no_loss_however_significant(tasks):
    (found,) = break_points(curve(tasks[0], [40, 70, 80]), "heads")
    assert found.level == 0.2 and np.isnan(found.first_loss)


@pytest.mark.parametrize("right", [[], [80], [80, 40]])
def test_fewer_than_three_levels_have_no_inflection(right, tasks):
    for found in break_points(curve(tasks[0], right), "heads"):
        assert np.isnan(found.inflection) and found.full_acc == 0.8


@pytest.mark.parametrize("right", [[60, 60, 60], [80, 60, 50, 45], [90, 80, 70, 60, 50], [50, 57, 64, 71]])
def test_a_curve_that_never_bends_down_has_no_inflection(right, tasks):
    """Straight lines are such curves, whatever floating point makes of k / n."""
    assert np.diff(right, 2).min() >= 0
    (found,) = break_points(curve(tasks[0], right), "heads")
    assert np.isnan(found.inflection)


@pytest.mark.parametrize("right", [[917, 958, 958], [40, 70, 80], [50, 60, 60, 60]])
def test_a_curve_that_never_falls_has_no_inflection(right, tasks):
    assert np.diff(right, 2).min() < 0
    (found,) = break_points(curve(tasks[0], right, n=1000), "heads")
    assert np.isnan(found.inflection)


def test_the_inflection_is_in_front_of_a_fall(tasks):
    (found,) = break_points(curve(tasks[0], [40, 70, 80, 75]), "heads")  # bends most at 70, but rises on
    assert found.inflection == pytest.approx(0.2)


@pytest.mark.parametrize(
    "right, level",
    [
        ([90, 90, 80, 80, 70], 0.1),
        ([70, 70, 63, 63, 56], 0.1),
        ([80, 75, 60, 55, 40], 0.1),
        ([80, 79, 60, 55, 30], 0.3),
    ],
)
def test_of_equal_bends_the_first_is_the_inflection(right, level, tasks):
    assert level == (1 + int(np.diff(right, 2).argmin())) / 10  # of whole numbers, so ties are ties
    (found,) = break_points(curve(tasks[0], right), "heads")
    assert found.inflection == pytest.approx(level)


def test_the_full_accuracy_is_the_full_models_also_where_no_row_is_of_level_0(tasks):
    """Every row says it: its own accuracy and what it gained and lost."""
    (found,) = break_points(curve(tasks[0], [80, 79, 60])[1:], "heads")
    assert found.full_acc == pytest.approx(0.8)


def test_break_points_of_a_real_sweep(setting, tasks, lab):
    found = swept(lab, setting, points(tasks[1:], [0, 250, 500, 750, 1000], [0], "random", seed=2), ())
    for each, task in zip(break_points(found.rows, "heads"), tasks[1:], strict=True):
        mine = [row for row in found.rows if row.point.task == task]
        assert each.task == task and each.full_acc == mine[0].acc and each.chance == mine[0].chance
        losses = [row.point.heads_permille for row in mine if row.is_loss]
        at_chance = wilson(round(mine[0].acc * mine[0].n), mine[0].n)[0] <= each.chance
        assert (each.reading == "at chance") == at_chance
        if not at_chance:
            before = [row.point.heads_permille for row in mine if row.point.heads_permille < min(losses, default=9999)]
            assert each.level == max(before) / 1000

"""How much can be pruned, read from hand-made curves and from a real one."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from engine.studies.statements import break_points
from engine.studies.sweeps import Point, SweepRow


def curve(task, right, n=100, axis="heads", by_level=100):
    """Rows of hand-made accuracies, `right` of n at each level; every question that is lost was right before."""
    rows = []
    for number, count in enumerate(right):
        gained, lost = max(0, count - right[0]), max(0, right[0] - count)
        p = stats.binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
        levels = (number * by_level, 0) if axis == "heads" else (0, number * by_level)
        rows.append(SweepRow(Point(task, *levels), n, count / n, 0.0, 1.0, 0.25, number, 0, gained, lost, p))
    return rows


def holm_by_scipy(rows):
    """The levels that are a loss, by scipy's exact test and Holm's step-down procedure as it is written: the smallest p
    is held against 5% / m, the next against 5% / (m - 1), up to the first that fails."""
    tested = [row for row in rows if row.point.heads_permille]
    ps = [stats.binomtest(row.gained, row.gained + row.lost).pvalue if row.gained + row.lost else 1.0 for row in tested]
    found = []
    for step, at in enumerate(np.argsort(ps, kind="stable")):
        if ps[at] > 0.05 / (len(ps) - step):
            break
        found += [tested[at].point.heads_permille / 1000] * (tested[at].lost > tested[at].gained)
    return sorted(found)


def test_the_first_detectable_loss_is_that_of_scipy_and_holms_procedure(tasks):
    generator, several = np.random.default_rng(0), 0
    for _ in range(40):
        right = np.append(80, 80 - np.cumsum(generator.integers(-2, 8, 10))).clip(0, 100)
        rows = curve(tasks[0], [int(each) for each in right])
        (found,) = break_points(rows, "heads")
        losses = holm_by_scipy(rows)
        np.testing.assert_equal(found.first_detectable_loss, min(losses, default=np.nan))
        alone = [row.point.heads_permille / 1000 for row in rows if row.lost > row.gained and row.p_mcnemar < 0.05]
        several += min(alone, default=1) < min(losses, default=1)
    assert several > 4, "often one look alone would have said a lower level"


@pytest.mark.parametrize("axis", ["heads", "ffns"])
def test_break_points_of_a_curve(axis, tasks):
    rows = curve(tasks[0], [80, 82, 74, 71, 40, 38], axis=axis)
    (found,) = break_points(rows, axis)
    assert found.cells() == {
        "task": tasks[0].name,
        "shots": 0,
        "no_loss_up_to": 0.2,
        "first_detectable_loss": 0.3,  # 9 of 9 lost: 3 * 2 / 512, where 6 of 6 lost at 20% have 2 * 2 / 64
        "cliff_from": 0.3,
        "cliff_to": 0.4,
        "cliff_points": -31.0,
        "full_acc": 0.8,
        "chance": 0.25,
        "n": 100,
        "looks": 5,
        "reading": "",
    }


def test_break_points_are_by_task_and_shot_count_in_any_order_of_rows(tasks):
    few = replace(tasks[0], shots=5)
    rows = [*curve(tasks[0], [80, 79, 60]), *curve(few, [90, 60, 50]), *curve(tasks[1], [50, 50, 50])]
    found = {each.task: each for each in break_points(rows[::-1], "heads")}
    read = {task: (each.no_loss_up_to, each.first_detectable_loss) for task, each in found.items() if task != tasks[1]}
    assert read == {tasks[0]: (0.1, 0.2), few: (0.0, 0.1)}
    assert found[tasks[1]].no_loss_up_to == 0.2 and np.isnan(found[tasks[1]].first_detectable_loss)
    assert break_points([], "heads") == []


@pytest.mark.parametrize("right, above, chance", [(33, 34, 0.25), (20, 34, 0.25), (59, 60, 0.5), (0, 1, 0)])
def test_a_task_at_chance_is_credited_with_nothing(right, above, chance, tasks):
    """The full model's Wilson interval holds the accuracy of guessing at `right` of 100, from `above` on no more."""
    rows = [replace(row, chance=chance) for row in curve(tasks[0], [right, right, max(0, right - 20)])]
    (found,) = break_points(rows, "heads")
    assert found.reading == "at chance" and found.full_acc == right / 100
    assert np.isnan([found.no_loss_up_to, found.first_detectable_loss, found.cliff_to, found.cliff_points]).all()
    low = stats.binomtest(above, 100).proportion_ci(method="wilson").low
    rows = [replace(row, chance=chance) for row in curve(tasks[0], [above, above])]
    assert low > chance and not break_points(rows, "heads")[0].reading


NAN = float("nan")


@pytest.mark.parametrize("right, expected", [
    # accuracy may come back by chance, and at full pruning is a guess: what lies behind a loss counts for nothing
    ([80, 60, 78, 40], {"no_loss_up_to": 0.0, "first_detectable_loss": 0.1}),
    ([38, 38, 38, 38, 38, 38, 22, 33, 33, 33, 38], {"no_loss_up_to": 0.5, "first_detectable_loss": 0.6}),
    # a gain is no loss, however significant
    ([40, 70, 80], {"no_loss_up_to": 0.2, "first_detectable_loss": NAN, "cliff_points": NAN}),
    ([80], {"reading": "not measured", "no_loss_up_to": NAN, "cliff_points": NAN}),  # one level is not a curve
    # the cliff is the largest drop between neighbors, beside a loss that is detectable before; of equal ones the first
    ([95, 94, 94, 93, 91, 90, 88, 85, 34, 30, 26], {"cliff_from": 0.7, "cliff_to": 0.8, "cliff_points": -51}),
    ([70, 63, 63, 56], {"cliff_from": 0.0, "cliff_to": 0.1, "cliff_points": -7}),
    ([40, 70, 80, 75], {"cliff_from": 0.2, "cliff_to": 0.3, "cliff_points": -5}),
])  # fmt: skip
def test_what_a_curve_says_in_any_order_of_its_rows(right, expected, tasks):
    for rows in (curve(tasks[0], right), curve(tasks[0], right)[::-1]):
        (found,) = break_points(rows, "heads")
        for name, value in expected.items():
            said = getattr(found, name)
            assert said == value if name == "reading" else said == pytest.approx(value, nan_ok=True), name


def test_levels_far_apart_are_neighbors_where_none_between_is_measured(tasks):
    rows = [row for row in curve(tasks[0], [95, 94, 90, 50, 30]) if row.point.heads_permille != 200]
    (found,) = break_points(rows, "heads")
    assert (found.cliff_from, found.cliff_to, found.cliff_points) == pytest.approx((0.1, 0.3, -44))
    (found,) = break_points(rows[1:], "heads")
    assert found.full_acc == 0.95 and found.cliff_from == 0.1, "every row says what the full model does"
    assert break_points(rows[2:3], "heads")[0].reading == "not measured"

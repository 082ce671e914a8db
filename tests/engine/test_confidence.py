"""How sure a model is of its answers, and whether that fits, equals plain loops."""

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
from scipy.special import softmax

from engine.accuracy.confidence import DRAWS, change_of_error, confidence, probabilities, sure_and_error
from engine.accuracy.evaluation import Answers
from engine.questions.rendering import Question, TaskSpec
from engine.requests import Evaluate
from engine.requests.running import opened
from engine.statistics import wilson
from engine.studies.sweeps import Point, SweepRow
from engine.views.confidence import CALIBRATED, FULL, PRUNED, confidence_view, mean_confidence_view
from engine.views.view import plain_text


def answers(n, seed=0, sharper=1.0):
    """Answers to n questions of two to four choices, some with two right ones; and `sharper` times as sure."""
    generator = np.random.default_rng(seed)
    n_choices = generator.integers(2, 5, n)
    golds = [tuple(generator.permutation(k)[: generator.integers(1, 3)].tolist()) for k in n_choices]
    scores = np.full((n, 4), np.nan)
    for row, (k, gold) in enumerate(zip(n_choices, golds, strict=True)):
        scores[row, :k] = generator.normal(size=k)
        scores[row, list(gold)] += 0.8
    asked = tuple(
        Question(at, ("Q",) * k, (" a",) * k, gold, (2,) * k, "")
        for at, (k, gold) in enumerate(zip(n_choices.tolist(), golds, strict=True))
    )
    return Answers(asked, sharper * scores, np.zeros((n, 4), bool), np.zeros(n, np.int32), False)


def loop(found):
    """(how sure, right or wrong, Brier's sum) of each question, one at a time."""
    rows = []
    for question, scores in zip(found.questions, found.log_likelihood_nats, strict=True):
        shares = softmax(scores[: len(question.contexts)])
        answer = int(np.argmax(scores[: len(question.contexts)]))
        right = sum(shares[gold] for gold in question.golds)
        wrong = sum(share**2 for choice, share in enumerate(shares) if choice not in question.golds)
        rows.append((shares[answer], answer in question.golds, (1 - right) ** 2 + wrong))
    return rows


def in_bins(pairs):
    """(sure, right) pairs, sorted, in bins of equally many: up to ten, of at least twenty."""
    n = len(pairs)
    n_bins = min(10, max(1, n // 20))
    ends = [number * n // n_bins for number in range(n_bins + 1)]
    return [pairs[start:end] for start, end in zip(ends[:-1], ends[1:], strict=True)]


def error(pairs):
    pairs = sorted(pairs, key=lambda pair: pair[0])
    return sum(abs(sum(right for _, right in each) - sum(sure for sure, _ in each)) for each in in_bins(pairs)) / len(
        pairs
    )


@pytest.mark.parametrize("n", [1, 19, 45, 230])
def test_error_brier_and_bins_equal_a_plain_loop(n):
    given = answers(n)
    found, rows = confidence(given), loop(given)
    pairs = [(sure, right) for sure, right, _ in rows]
    assert found.n == n and found.acc == pytest.approx(np.mean([right for _, right in pairs]))
    assert found.confidence == pytest.approx(np.mean([sure for sure, _ in pairs]))
    assert found.ece == pytest.approx(error(pairs)) and found.brier == pytest.approx(np.mean([row[2] for row in rows]))
    bins = in_bins(sorted(pairs, key=lambda pair: pair[0]))
    assert [each.n for each in found.bins] == [*map(len, bins)] and sum(map(len, bins)) == n
    for mine, expected in zip(found.bins, bins, strict=True):
        n_right = sum(right for _, right in expected)
        assert mine.confidence == pytest.approx(np.mean([sure for sure, _ in expected]))
        assert (mine.acc, mine.acc_low, mine.acc_high) == pytest.approx((n_right / mine.n, *wilson(n_right, mine.n)))


def drawn(given, n):
    """The errors of each draw, one at a time: of questions, and of right answers by chance."""
    pairs = [(sure, right) for sure, right, _ in loop(given)]
    generator = np.random.default_rng(0)
    which, chance = generator.integers(0, n, (DRAWS, n)), generator.random((DRAWS, n))
    resampled = [error([pairs[at] for at in each]) for each in which[:60]]
    by_chance = [error([(sure, u < sure) for (sure, _), u in zip(pairs, each, strict=True)]) for each in chance[:60]]
    return np.array(resampled), np.array(by_chance)


def test_intervals_equal_a_plain_bootstrap(monkeypatch):
    """Of the first draws, with the same questions of both models."""
    real, (first, second), n = np.percentile, (answers(60), answers(60, sharper=4.0)), 60
    monkeypatch.setattr("numpy.percentile", lambda drawn, ends: real(drawn[:60], ends))
    errors = [error([pair[:2] for pair in loop(each)]) for each in (first, second)]
    draws = [drawn(each, n) for each in (first, second)]
    change = errors[1] - errors[0]
    cases = (
        (errors[0], *draws[0], (confidence(first).ece_low, confidence(first).ece_high)),
        (errors[1], *draws[1], (confidence(second).ece_low, confidence(second).ece_high)),
        (change, draws[1][0] - draws[0][0], draws[1][1] - draws[0][1], change_of_error(first, second)[1:]),
    )
    assert change_of_error(first, second)[0] == pytest.approx(change)
    for value, resampled, by_chance, ends in cases:
        low, high = 2 * value - real(resampled, 97.5), 2 * value - real(resampled, 2.5)
        low, high = min(low, value), max(high, value)
        if real(by_chance, 2.5) <= value <= real(by_chance, 97.5):
            low, high = min(low, 0), max(high, 0)
        assert ends == pytest.approx((low if value == change else max(0, low), high))


def test_a_block_of_draws_at_a_time_gives_the_same_as_all_at_once(monkeypatch):
    given = answers(50)
    whole = confidence(given)
    monkeypatch.setattr("engine.accuracy.confidence.DRAWN", 50 * DRAWS // 3)
    assert confidence(given).ece == whole.ece and confidence(given).ece_high == pytest.approx(whole.ece_high, abs=0.03)


def calibrated(n, seed, overconfident=0.0):
    """Answers to n questions of two choices, right as often as the model is sure, or less often."""
    generator = np.random.default_rng(seed)
    sure = generator.uniform(0.5, 0.98, n)
    right = generator.random(n) < sure - overconfident
    scores = np.log(np.stack([sure, 1 - sure], 1))
    asked = tuple(
        Question(at, ("Q",) * 2, (" a", " b"), (0 if each else 1,), (2, 2), "") for at, each in enumerate(right)
    )
    return Answers(asked, scores, np.zeros((n, 2), bool), np.zeros(n, np.int32), False)


def test_a_calibrated_model_is_not_called_miscalibrated_and_an_overconfident_one_is():
    found = [confidence(calibrated(200, seed)) for seed in range(20)]
    assert sum(each.ece_low > 0 for each in found) <= 2
    assert np.mean([each.ece for each in found]) == pytest.approx(np.mean([e.ece_by_chance for e in found]), abs=0.015)
    assert all(confidence(calibrated(200, seed, 0.2)).ece_low > 0 for seed in range(20))


def test_answers_without_choices_have_no_confidence():
    given = answers(30)
    greedy = Answers(given.questions, given.log_likelihood_nats, given.greedy, given.n_cut, True)
    sure, ece = sure_and_error(greedy)
    assert np.isnan(sure).all() and math.isnan(ece)


def test_a_choice_that_is_impossible_has_no_share():
    given = answers(2)
    given.log_likelihood_nats[0, 0] = -np.inf
    assert probabilities(given)[0, 0] == 0 and probabilities(given).sum(1) == pytest.approx([1, 1])


def test_the_view_tells_whether_accuracy_or_calibration_moved():
    full, sharper = calibrated(200, 0), calibrated(200, 0)
    sharper.log_likelihood_nats[:] *= 6
    view = confidence_view(full, sharper, {0: full, 500: sharper}, "Heads pruned")
    said = plain_text(view.finding)
    assert said.startswith("Accuracy shows no clear change, calibration got worse: within noise: lost 0.0 points (95% ")
    before, after = confidence(full), confidence(sharper)
    assert f"calibration error {100 * before.ece:.1f} → {100 * after.ece:.1f} points, +" in said
    over_levels, reliability, table = view.parts
    assert [row["share"] for row in over_levels.rows] == [
        value for each in (before, after) for value in (each.acc, each.confidence, each.ece)
    ]
    assert [row["model"] for row in reliability.rows] == [FULL] * 10 + [PRUNED] * 10 + [CALIBRATED] * 2
    assert [row["brier"] for row in table.rows] == [before.brier, after.brier]
    assert all(json.dumps(part.picture().spec, allow_nan=False) for part in (over_levels, reliability))
    same = confidence_view(full, full, {}, "").finding
    assert same.startswith("**Accuracy and calibration show no clear change**: within noise: lost 0.0 points (95% ")
    back = confidence_view(sharper, full, {}, "Heads pruned").finding
    assert "calibration got better" in back
    assert "6 questions are too few" in confidence_view(answers(6), answers(6), {}, "").finding
    alone = plain_text(confidence_view(full, None, {0: full}, "Heads pruned").finding)
    assert alone.startswith(f"The full model gets {100 * before.acc:.1f}% right: mean confidence ")


def test_the_mean_over_tasks_is_at_the_level_that_costs_little():
    levels = {0: (0.9, 0.8, 0.1), 300: (0.87, 0.8, 0.12), 600: (0.5, 0.9, 0.4)}
    rows = [
        SweepRow(Point(TaskSpec(task), level, 0), 9, acc, 0, 1, 0.5, 1, 0, 0, 0, 1.0, sure, ece + more * (level > 0))
        for task, more in (("piqa", 0.0), ("copa", 0.02))
        for level, (acc, sure, ece) in levels.items()
    ]
    greedy = [SweepRow(Point(TaskSpec("lambada"), level, 0), 9, 0.5, 0, 1, 0.0, 1, 0, 0, 0, 1.0) for level in levels]
    view = mean_confidence_view([*rows, *greedy], "heads")
    said = plain_text(view.finding)
    assert said.startswith(
        "30% of heads can go for less than 5 points; there, calibration error 10.0 → 13.0 points, +3.0"
    )
    assert said.endswith("mean of 2 tasks.") and [row["ece"] for row in view.parts[1].rows][0] == pytest.approx(0.1)
    assert not mean_confidence_view(greedy, "heads").parts


@pytest.mark.slow("evaluates a model twice")
def test_evaluate_gives_it_and_leaves_it_out_without_choices(tiny_opt, tmp_path):
    of = {"model": str(tiny_opt), "precision": "fp32", "limit": 6, "cache": str(tmp_path)}
    with opened(Evaluate(task="demo_copy", **of)) as session:
        found = Evaluate(task="demo_copy", **of).run(session)
        assert found.fields["calibration"] == asdict(confidence(found.value))
        assert ": mean confidence " in str(found) and "if calibrated: " in str(found)
        without = Evaluate(task="demo_cloze", **of).run(session)
        assert without.fields["calibration"] is None and "mean confidence" not in str(without)

"""Scores of heads from answers under random masks equal a plain loop."""

from functools import partial

import numpy as np
import pytest

from engine.accuracy.evaluation import evaluation
from engine.importance import scores as module
from engine.importance.knockouts import fit, random_masks
from engine.importance.scores import importance
from engine.progress import final
from engine.shapes import ModelShape
from tests.engine.fixtures import questions_in, target_in, write_questions


def shape_of(n_layers, n_heads):
    return ModelShape(n_layers, n_heads, n_heads, 8 * n_heads, 8, 32, 100, 64)


@pytest.mark.parametrize("n_layers, n_heads", [(2, 4), (3, 3)])
def test_each_head_is_left_as_often_as_it_is_pruned(n_layers, n_heads):
    masks = random_masks(shape_of(n_layers, n_heads), 40)
    left = np.array([mask.heads for mask in masks]).reshape(40, -1)
    assert (left.sum(0) == 20).all() and len({*masks}) > 30
    assert (left[::2] ^ left[1::2]).all(), "the second of two is the other half"
    assert {*left.sum(1).tolist()} <= {left.shape[1] // 2, -(-left.shape[1] // 2)}
    assert not any(mask.n_ffns_pruned for mask in masks)
    assert random_masks(shape_of(n_layers, n_heads), 10) == masks[:10], "more masks go on after fewer"


def lasso(x, y, penalty, start):
    """The lasso by coordinate descent, one coefficient at a time: sum of squares / 2n + penalty * sum of sizes."""
    x, y, coefficients = x - x.mean(0), y - y.mean(), start.copy()
    for _ in range(2000):
        before = coefficients.copy()
        for at in range(x.shape[1]):
            rest = y - x @ coefficients + x[:, at] * coefficients[at]
            pull = x[:, at] @ rest / len(y)
            coefficients[at] = np.sign(pull) * max(abs(pull) - penalty, 0) / (x[:, at] @ x[:, at] / len(y))
        if np.abs(coefficients - before).max() < 1e-5:
            break
    return coefficients


def test_the_fit_is_the_lasso_that_predicts_best():
    generator = np.random.default_rng(0)
    left = np.array([mask.heads for mask in random_masks(shape_of(1, 4), 20)]).reshape(20, 4)
    values = left @ [0.0, 2.0, 0.0, -1.0] + 0.5 * generator.normal(size=20)
    found, effects = fit(left.tobytes(), tuple(values.tolist()))
    x, y = left.astype(float), (values - values.mean()) / values.std()
    largest = np.abs((x - x.mean(0)).T @ y).max() / 20
    penalties, folds = np.geomspace(largest, largest / 1000, 100), np.array_split(np.arange(20), 5)
    errors = np.zeros(100)
    for fold in folds:
        rest, coefficients = np.setdiff1d(np.arange(20), fold), np.zeros(4)
        for number, penalty in enumerate(penalties):
            coefficients = lasso(x[rest], y[rest], penalty, coefficients)
            predicted = y[rest].mean() + (x[fold] - x[rest].mean(0)) @ coefficients
            errors[number] += ((y[fold] - predicted) ** 2).mean() / 5
    expected = lasso(x, y, penalties[errors.argmin()], np.zeros(4)) * values.std()
    np.testing.assert_allclose(found, expected, atol=0.02)
    means = [values[left[:, at]].mean() - values[~left[:, at]].mean() for at in range(4)]
    np.testing.assert_allclose(effects, means)
    assert found.argmax() == 1 and found.argmin() == 3 and (np.abs(found) < 1e-9).any(), "sparse"


def test_values_that_are_all_equal_give_no_scores():
    left = np.array([mask.heads for mask in random_masks(shape_of(1, 4), 10)]).reshape(10, 4)
    found, effects = fit(left.tobytes(), (-1.5,) * 10)
    assert not found.any() and not effects.any()


def test_scores_are_the_fit_of_what_each_mask_leaves(tiny_opt, tmp_path, session, monkeypatch):
    monkeypatch.setattr(module, "random_masks", partial(random_masks, n=20))
    questions = questions_in(write_questions(tmp_path / "own.jsonl", 6), session, split="train")
    target = target_in(session, tiny_opt)
    found = final(importance(target, questions, "heads-knockouts").run(session))
    masks, values = random_masks(target.shape, 20), []
    for mask in masks:
        answers = final(evaluation(target, questions, mask).run(session))
        golds = [
            row[question.golds[0]] for question, row in zip(answers.questions, answers.log_likelihood_nats, strict=True)
        ]
        values.append(float(np.mean(golds)))
    scores, effects = fit(np.array([mask.heads for mask in masks]).tobytes(), tuple(values))
    np.testing.assert_allclose(found.scores.ravel(), scores, atol=1e-6)
    np.testing.assert_allclose(found.tie_break.ravel(), effects, atol=1e-9)
    assert found.n == 6 and found.scores.shape == (target.shape.n_layers, target.shape.n_heads)

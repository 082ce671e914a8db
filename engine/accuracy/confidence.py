"""Whether a model knows when it is right: how sure it is of its answers against how many are right.

Everything follows from the stored log-likelihoods of all choices, without a pass.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from engine.accuracy.evaluation import Answers
from engine.statistics import wilson

MOST_BINS, IN_BIN = 10, 20  # bins; the fewest questions in one, unless there is only one
DRAWS, DRAWN = 1000, 1_000_000  # of the bootstrap; numbers drawn at a time


@dataclass(frozen=True)
class Bin:
    """n questions on which a model is about equally sure: the mean probability of its answers, and their accuracy with
    Wilson's 95% interval, 0-1."""

    n: int
    confidence: float
    acc: float
    acc_low: float
    acc_high: float


@dataclass(frozen=True)
class Confidence(Bin):
    """How sure a model is of its answers to n questions with choices.

    ece, ece_low, ece_high: expected calibration error with its 95% interval, 0-1
    ece_by_chance: the mean error on as many questions of a model that is right as often as it is sure
    brier: Brier score, 0-2
    bins: from the least sure to the surest
    """

    ece: float
    ece_low: float
    ece_high: float
    ece_by_chance: float
    brier: float
    bins: tuple[Bin, ...]


def confidence(answers: Answers) -> Confidence:
    """Returns the Confidence of a model in answers to at least one question with choices."""
    shares = probabilities(answers)
    sure = shares.max(1)
    ece = _error_of(sure, answers.correct)
    resampled, by_chance = _drawn_errors(sure, answers.correct)
    low, high = _interval(ece, resampled, by_chance)
    groups = np.split(np.argsort(sure, kind="stable"), _starts(len(sure))[1:])
    is_gold = np.zeros(shares.shape, bool)
    for row, question in enumerate(answers.questions):
        is_gold[row, list(question.golds)] = True
    right = np.where(is_gold, shares, 0).sum(1)  # several right answers are one
    brier = (1 - right) ** 2 + np.where(is_gold, 0, shares**2).sum(1)
    return Confidence(
        **vars(_bin(sure, answers.correct)), ece=ece, ece_low=max(0.0, low), ece_high=high,
        ece_by_chance=float(by_chance.mean()), brier=float(brier.mean()),
        bins=tuple(_bin(sure[rows], answers.correct[rows]) for rows in groups),
    )  # fmt: skip


def probabilities(answers: Answers) -> np.ndarray:
    """Returns (n, choice): the softmax over the summed log-likelihoods of each question's choices, not divided by their
    lengths, like `acc`; 0 for missing choices."""
    scores = np.nan_to_num(answers.log_likelihood_nats, nan=-np.inf)
    shares = np.exp(scores - scores.max(1, keepdims=True))
    return shares / shares.sum(1, keepdims=True)


def sure_and_error(answers: Answers) -> tuple[np.ndarray, float]:
    """Returns (n,) the probability of each answer, and the expected calibration error; nan without choices."""
    if answers.by_greedy:
        return np.full(len(answers), math.nan), math.nan
    sure = probabilities(answers).max(1)
    return sure, _error_of(sure, answers.correct)


def change_of_error(before: Answers, after: Answers) -> tuple[float, float, float]:
    """Returns the change of the expected calibration error between two models that answer the same questions, with its
    95% interval."""
    sides = [(*sure_and_error(each), each.correct) for each in (before, after)]
    (_, first, _), (_, second, _) = sides
    draws = [_drawn_errors(sure, correct) for sure, _, correct in sides]  # of the same questions
    resampled, by_chance = (of_after - of_before for of_before, of_after in zip(*draws, strict=True))
    return second - first, *_interval(second - first, resampled, by_chance)


def _bin(sure: np.ndarray, correct: np.ndarray) -> Bin:
    n, n_right = len(sure), int(correct.sum())
    return Bin(n, float(sure.mean()), n_right / n, *wilson(n_right, n))


def _interval(value: float, resampled: np.ndarray, by_chance: np.ndarray) -> tuple[float, float]:
    """Returns the basic bootstrap interval, as resampling biases an error as much as sampling does; extended to 0 if
    the value is one that calibrated models have in 95% of the draws."""
    (low, high), (least, most) = (np.percentile(each, [2.5, 97.5]).tolist() for each in (resampled, by_chance))
    low, high = min(value, 2 * value - high), max(value, 2 * value - low)
    return (min(low, 0.0), max(high, 0.0)) if least <= value <= most else (low, high)


def _error_of(sure: np.ndarray, correct: np.ndarray) -> float:
    return float(_error((correct - sure)[np.argsort(sure, kind="stable")]))


def _drawn_errors(sure: np.ndarray, correct: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (draw,) errors: of questions drawn with replacement, and of answers that are right by chance, as often as
    the model is sure. The draws depend on the number of questions alone."""
    return _draws(sure.astype(float).tobytes(), correct.tobytes())


@lru_cache(64)  # a screen reads all levels in each run
def _draws(sure_bytes: bytes, correct_bytes: bytes) -> tuple[np.ndarray, np.ndarray]:
    sure, correct = np.frombuffer(sure_bytes), np.frombuffer(correct_bytes, bool)
    n, order = len(sure), np.argsort(sure, kind="stable")
    rank, gaps, sure = np.argsort(order), (correct - sure)[order], sure[order]
    generator, found = np.random.default_rng(0), list[tuple[np.ndarray, np.ndarray]]()
    for size in np.diff([*range(0, DRAWS, max(1, DRAWN // n)), DRAWS]).tolist():
        drawn, chance = np.sort(rank[generator.integers(0, n, (size, n))], axis=1), generator.random((size, n))
        found.append((_error(gaps[drawn]), _error((chance[:, order] < sure) - sure)))
    resampled, by_chance = map(np.concatenate, zip(*found, strict=True))
    return resampled, by_chance


def _error(gaps: np.ndarray) -> np.ndarray:
    """Returns the expected calibration error: over bins of equally many questions, the mean |accuracy - confidence|.
    `gaps`: (..., n) right (0 or 1) minus confidence, the least sure first."""
    n = gaps.shape[-1]
    return np.abs(np.add.reduceat(gaps, _starts(n), axis=-1)).sum(-1) / n


def _starts(n: int) -> np.ndarray:
    """Returns where the bins of n questions begin."""
    n_bins = min(MOST_BINS, max(1, n // IN_BIN))
    return np.arange(n_bins) * n // n_bins

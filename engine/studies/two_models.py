"""Comparison of two models on the same questions, at the same levels, and of their heads, paired by position."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from engine.accuracy.evaluation import Accuracy, Answers, accuracy
from engine.errors import HeadroomError
from engine.importance.rankings import agreement, n_top
from engine.importance.rankings_of import Pruning
from engine.models.masks import parse_edits
from engine.shapes import ModelShape
from engine.statistics import Paired, paired


@dataclass(frozen=True)
class ModelComparison:
    """Two models' accuracy on the same n questions. `change` is from the first to the second: gained are the questions
    that only the second answers right."""

    first: Accuracy
    second: Accuracy
    change: Paired


def compared(first: Answers, second: Answers) -> ModelComparison:
    """Compares the two on the questions that both have answered so far. HeadroomError: these are not the same."""
    n = min(len(first), len(second))
    if first.questions[:n] != second.questions[:n]:
        raise HeadroomError("the two models answered different questions; measure both on one task again")
    first, second = first.first(n), second.first(n)
    return ModelComparison(accuracy(first), accuracy(second), paired(first.correct, second.correct))


def same_parts(first: ModelShape, second: ModelShape) -> bool:
    """Returns whether the heads and FFNs of two models can be paired by position."""
    return (first.n_layers, first.n_heads) == (second.n_layers, second.n_heads)


def pruning_of_second(pruning: Pruning, first: ModelShape, second: ModelShape) -> Pruning:
    """Returns the Pruning of the second model for that of the first: the same levels of its own order, and the typed
    edits if both have equally many heads and FFNs."""
    typed = pruning.typed if same_parts(first, second) else parse_edits("", second)
    return replace(pruning, typed=typed)


@dataclass(frozen=True)
class Agreed:
    """Agreement of two models' scores of the same components.

    n: components
    srcc: Spearman's rho, nan if one of them is constant
    low, high: its 95 % interval
    p: its p value
    overlap: share of the top 30 % of one that is in the top 30 % of the other
    n_top: components in the top 30 %
    """

    n: int
    srcc: float
    low: float
    high: float
    p: float
    overlap: float
    n_top: int


def agreed(first: np.ndarray, second: np.ndarray) -> Agreed:
    """Returns the agreement of two score arrays over the same components, without those undefined (nan) in either."""
    a, b = (np.asarray(scores, float).ravel() for scores in (first, second))
    known = np.isfinite(a) & np.isfinite(b)
    n = int(known.sum())
    if n < 2:
        return Agreed(n, *(math.nan,) * 5, n_top=n)
    found = agreement({"first": a[known], "second": b[known]})
    numbers = (found.srcc, found.low, found.high, found.p, found.overlap)
    return Agreed(n, *(float(table[0, 1]) for table in numbers), n_top=n_top(n))


def farthest(first: np.ndarray, second: np.ndarray, n: int = 10) -> Iterator[int]:
    """Yields the flat indices of the n components whose scores differ most, largest difference first, without those
    undefined in either."""
    apart = np.abs(np.asarray(second, float).ravel() - np.asarray(first, float).ravel())
    for place in np.argsort(-np.nan_to_num(apart, nan=-1.0), kind="stable")[:n]:
        if np.isfinite(apart[place]):
            yield int(place)

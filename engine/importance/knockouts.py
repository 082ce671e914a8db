"""Scores of heads from few answers under random masks: a sparse linear fit of how likely the right choices are on which
heads were left (Bair et al. 2603.03335)."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from engine.accuracy.evaluation import Answers
from engine.models.masks import Mask
from engine.shapes import ModelShape

N_MASKS = 128
FOLDS, STEPS = 5, 100_000  # of the cross-validation, and of the search of one fit


def random_masks(shape: ModelShape, n: int = N_MASKS) -> list[Mask]:
    """Returns n masks, an even number: of every two, one prunes a random half of the heads, and the other one the rest,
    so that each head is left as often as it is pruned. Fewer masks are the first of more."""
    generator, ffns = np.random.default_rng(0), np.ones(shape.n_layers, bool)
    masks = list[Mask]()
    for _ in range(n // 2):
        is_first = generator.permutation(shape.n_heads_total) < shape.n_heads_total // 2
        halves = [half.reshape(shape.n_layers, shape.n_heads) for half in (~is_first, is_first)]
        masks += [Mask.from_arrays(half, ffns) for half in halves]
    return masks


def fitted(masks: Sequence[Mask], answers: Sequence[Answers]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the scores of heads (L, H) and what breaks ties: `fit` of the mean log-likelihood of the right choices
    under each mask."""
    left = np.array([mask.heads for mask in masks])
    values = tuple(float(each.gold_log_likelihood_nats.mean()) for each in answers)
    scores, effects = fit(left.tobytes(), values)
    return scores.reshape(left.shape[1:]), effects.reshape(left.shape[1:])


@lru_cache(16)  # a screen reads the scores in each run
def fit(left: bytes, values: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Returns (head,) the coefficients of the lasso whose penalty predicts best in cross-validation, and the mean value
    of the masks that leave a head minus that of those that prune it. `left`: (mask, head) bool, whether it is left."""
    from sklearn.linear_model import LassoCV  # a second to import

    x = np.frombuffer(left, bool).reshape(len(values), -1).astype(float)
    y = np.array(values) - np.mean(values)
    effects = np.array([y[head > 0].mean() - y[head == 0].mean() for head in x.T])
    if min(values) == max(values):
        return np.zeros(x.shape[1]), effects
    return LassoCV(cv=FOLDS, max_iter=STEPS).fit(x, y / y.std()).coef_ * y.std(), effects

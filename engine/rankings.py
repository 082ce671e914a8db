"""Orders of components and pruning levels: from scores to "which ones go first" to a `Mask`.

Levels are in permille (700 = 70 %): whole numbers, so that floor(p * N / 1000) is exact and keys hold no floats.
"""

import math

import numpy as np

from engine.errors import UsageError
from engine.masks import Mask
from engine.shapes import ModelShape


def order(scores: np.ndarray, tie_break: np.ndarray | None = None) -> np.ndarray:
    """Flat indices of `scores` from least to most important; equals ordered by `tie_break`, then by position.

    UsageError where a score is nan: an order of undefined scores would be an accident.
    """
    flat = np.asarray(scores, float).ravel()
    if np.isnan(flat).any():
        raise UsageError(f"{int(np.isnan(flat).sum())} of {flat.size} scores are undefined (nan); compute them again")
    second = np.zeros(flat.size) if tie_break is None else np.asarray(tie_break, float).ravel()
    return np.lexsort((np.arange(flat.size), second, flat))


def random_order(n: int, seed: int = 0) -> np.ndarray:
    """A seeded random order of n components: the control that any ranking has to beat."""
    return np.random.default_rng(seed).permutation(n)


def random_order_within_layers(shape: ModelShape, like: np.ndarray, seed: int = 0) -> np.ndarray:
    """Head order that takes heads from the layers in the sequence in which `like` does, but which head is random."""
    generator = np.random.default_rng(seed)
    waiting = [list(layer * shape.n_heads + generator.permutation(shape.n_heads)) for layer in range(shape.n_layers)]
    return np.array([waiting[index // shape.n_heads].pop() for index in like])


def n_pruned(permille: int, n: int) -> int:
    """Number of components pruned at a level: floor(p * n / 1000). UsageError outside 0 to 1000."""
    if not 0 <= permille <= 1000:
        raise UsageError(f"pruning level is {permille / 10:g} %; choose 0 to 100")
    return permille * n // 1000


def permille(percent: float | str) -> int:
    """A level typed in percent as permille; UsageError when it is no number from 0 to 100 or finer than 0.1 %."""
    try:
        value = float(percent)
    except ValueError as error:
        raise UsageError(f"pruning level {percent!r} is not a number; give percent, 0 to 100") from error
    if not math.isfinite(value) or not 0 <= value <= 100:
        raise UsageError(f"pruning level is {value:g} %; choose 0 to 100")
    if abs(value * 10 - round(value * 10)) > 1e-6:
        raise UsageError(f"pruning level is {value:g} %; choose steps of 0.1 %")
    return round(value * 10)


def mask_at(
    shape: ModelShape, head_order: np.ndarray, ffn_order: np.ndarray, heads_permille: int, ffns_permille: int
) -> Mask:
    """Mask at two levels: the first floor(p * N / 1000) heads of `head_order` and FFNs of `ffn_order` are pruned."""
    heads, ffns = np.ones(shape.n_heads_total, bool), np.ones(shape.n_layers, bool)
    heads[np.asarray(head_order, int)[: n_pruned(heads_permille, heads.size)]] = False
    ffns[np.asarray(ffn_order, int)[: n_pruned(ffns_permille, ffns.size)]] = False
    return Mask.from_arrays(heads.reshape(shape.n_layers, shape.n_heads), ffns)

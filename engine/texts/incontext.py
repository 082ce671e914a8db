"""The in-context score: how much better a model predicts the 500th token of a text than the 50th.

Statistics of per-token losses over several texts (Olsson et al. 2022). Losses are arrays (n,) in nats, aligned to the
token they predict; indices count from 1, without the beginning token.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.errors import HeadroomError, UsageError
from engine.statistics import mean_over, over_texts

MIN_TOKENS, EARLY, LATE = 512, 50, 500
MOST_AROUND = MIN_TOKENS - LATE  # tokens on either side that every such text has
CURVE_BINS, SLOPE_BINS = 24, 8  # equal widths in ln(index)


@dataclass(frozen=True)
class MeanOverTexts:
    """A mean over `n` texts with its 95% t interval, which is nan with one text."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class ByIndex:
    """Means over texts by token index; all arrays are (point,).

    index: geometric mean of the indices from `first` to `last`
    first, last: the range of indices averaged in a point
    mean: mean over the texts
    low, high: its 95% t interval
    n: texts
    """

    index: np.ndarray
    first: np.ndarray
    last: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    n: np.ndarray


def icl_score(losses: Sequence[np.ndarray], around: int = 0) -> MeanOverTexts:
    """Returns the in-context score (Olsson et al.'s in-context-learning score): loss at the 500th token minus loss at
    the 50th, in nats, averaged over the texts of at least 512 tokens; below 0 = later tokens are predicted better.
    HeadroomError: no such text.

    With few texts, one token per text is noisy: `around` averages over this many tokens on either side of both, which
    is not Olsson et al.'s score but estimates the same quantity.
    """
    return mean_of(scores(long_enough(losses), around))


def icl_change(before: Sequence[np.ndarray], after: Sequence[np.ndarray], around: int = 0) -> MeanOverTexts:
    """Returns the score of `after` minus that of `before` on the same texts, in nats, with the interval of the paired
    differences."""
    if [len(text) for text in before] != [len(text) for text in after]:
        raise HeadroomError("the two were measured on different texts or tokens; measure both on the same texts")
    return mean_of(scores(long_enough(after), around) - scores(long_enough(before), around))


def scores(losses: Sequence[np.ndarray], around: int = 0) -> np.ndarray:
    """Returns (text, ...): loss around the 500th token minus loss around the 50th, in nats, of texts (..., n)."""
    if not 0 <= around <= MOST_AROUND:
        raise UsageError(f"cannot average over {around} tokens on either side; choose 0 to {MOST_AROUND}")
    late, early = (slice(index - 1 - around, index + around) for index in (LATE, EARLY))
    return np.stack([np.asarray(text[..., late], float).mean(-1) - text[..., early].mean(-1) for text in losses])


def long_enough(losses: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Returns the texts of at least 512 tokens. HeadroomError: no such text."""
    found = [text for text in losses if len(text) >= MIN_TOKENS]
    if not found:
        raise too_short(max((len(text) for text in losses), default=0))
    return found


def too_short(n_tokens: int) -> HeadroomError:
    """Returns the error for texts of at most `n_tokens` tokens, which have no score."""
    return HeadroomError(
        f"an in-context score needs a text of at least {MIN_TOKENS} tokens, and the longest here has {n_tokens:,}; "
        f"choose a longer one, solved questions of a task, or a model with a window of {MIN_TOKENS} tokens"
    )


def mean_of(values: np.ndarray) -> MeanOverTexts:
    """Returns the mean of (text,) values with its 95% t interval."""
    return MeanOverTexts(*mean_over(np.asarray(values, float)), len(values))


def loss_by_index(losses: Sequence[np.ndarray], bins: int | None = None) -> ByIndex:
    """Returns the mean loss at each token index, in nats, up to the end of the shortest text.

    With `bins`, in this many bins of equal width in ln(index) (fewer if some contain no index): first each text's mean
    in a bin, then mean and interval over texts. Indices without a loss (the first token without BOS) are left out.
    """
    return _binned(losses, bins)[0]


def slope(losses: Sequence[np.ndarray], bins: int = SLOPE_BINS) -> ByIndex:
    """Returns d loss / d ln(index), in nats; below 0 where the loss still falls.

    Finite differences between neighboring bins of equal width in ln(index): each text's mean loss in a bin minus that
    in the bin before, divided by the difference of their mean ln(index); then mean and interval over texts. A loss of
    a + b ln(index) has slope b exactly. `first` and `last` are the outer indices of the two bins.
    """
    return slopes(losses, bins)[0]


def slopes(losses: Sequence[np.ndarray], bins: int = SLOPE_BINS) -> tuple[ByIndex, np.ndarray]:
    """Returns (the slope, the slope of each text (text, point))."""
    curve, by_text = _binned(losses, bins)
    ln = np.log(curve.index)
    rise = np.diff(by_text, axis=1) / np.diff(ln)
    middle = np.exp((ln[1:] + ln[:-1]) / 2)
    return ByIndex(middle, curve.first[:-1], curve.last[1:], *over_texts(rise), curve.n[1:]), rise


def _binned(losses: Sequence[np.ndarray], bins: int | None) -> tuple[ByIndex, np.ndarray]:
    """Returns (the curve, the means of each text (text, point))."""
    if not losses:
        raise HeadroomError("no losses yet; measure at least one text")
    by_text = np.stack([np.asarray(text, float)[: min(map(len, losses))] for text in losses])  # (text, index)
    known = np.flatnonzero(np.isfinite(by_text).all(0))
    if not len(known):
        raise HeadroomError("no token has a loss; choose longer texts")
    by_text, index = by_text[:, known], known + 1
    edges = index if bins is None else np.geomspace(index[0], index[-1] + 1, bins + 1)
    place = np.searchsorted(edges, index, side="right")
    held = [np.flatnonzero(place == at) for at in np.unique(place)]  # positions averaged in each point
    means = np.stack([by_text[:, at].mean(1) for at in held], axis=1)
    middle = np.array([np.exp(np.log(index[at]).mean()) for at in held])
    first, last = np.array([index[at[0]] for at in held]), np.array([index[at[-1]] for at in held])
    n = np.full(len(held), len(losses))
    return ByIndex(middle, first, last, *over_texts(means), n), means

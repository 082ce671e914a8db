"""In-context learning as a number: how much better a model predicts the 500th token of a text than the 50th.

The statistics of per-token losses over several texts (Olsson et al. 2022). Losses are arrays (n,) in nats, aligned to
the token they predict; indices count from 1, and the beginning token is none of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.errors import HeadroomError, UsageError
from engine.statistics import over_texts

MIN_TOKENS, EARLY, LATE = 512, 50, 500
MOST_AROUND = MIN_TOKENS - LATE  # tokens on either side that every such text has
CURVE_BINS, SLOPE_BINS = 24, 8  # even in ln(index)


@dataclass(frozen=True)
class MeanOverTexts:
    """A mean over `n` texts with its 95 % t interval, which is nan with one text."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class ByIndex:
    """Arrays (point,) over token indices: the mean over `n` texts and its 95 % t interval. `first` and `last` are the
    indices that a point is a mean of; `index` is their geometric mean."""

    index: np.ndarray
    first: np.ndarray
    last: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    n: np.ndarray


def icl_score(losses: Sequence[np.ndarray], around: int = 0) -> MeanOverTexts:
    """Loss at the 500th token minus loss at the 50th, nats, averaged over the texts of at least 512 tokens (Olsson et
    al.: the in-context-learning score; below 0 = later tokens are predicted better). HeadroomError: no such text.

    One token a text is noisy where texts are few: `around` takes the mean over so many tokens on either side of each of
    the two, which is not Olsson et al.'s score but estimates the same quantity.
    """
    return mean_of(scores(long_enough(losses), around))


def icl_change(before: Sequence[np.ndarray], after: Sequence[np.ndarray], around: int = 0) -> MeanOverTexts:
    """Score of `after` minus score of `before` on the same texts, nats, with the interval of the paired differences."""
    if [len(text) for text in before] != [len(text) for text in after]:
        raise HeadroomError("the two have different texts or tokens; a change is measured on the same ones")
    return mean_of(scores(long_enough(after), around) - scores(long_enough(before), around))


def scores(losses: Sequence[np.ndarray], around: int = 0) -> np.ndarray:
    """(text, ...) loss around the 500th token minus loss around the 50th, nats, of texts (..., n)."""
    if not 0 <= around <= MOST_AROUND:
        raise UsageError(f"{around} tokens on either side cannot be had; choose 0 to {MOST_AROUND}")
    late, early = (slice(index - 1 - around, index + around) for index in (LATE, EARLY))
    return np.stack([np.asarray(text[..., late], float).mean(-1) - text[..., early].mean(-1) for text in losses])


def long_enough(losses: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The texts of at least 512 tokens; HeadroomError where there is none."""
    found = [text for text in losses if len(text) >= MIN_TOKENS]
    if not found:
        raise too_short(max((len(text) for text in losses), default=0))
    return found


def too_short(n_tokens: int) -> HeadroomError:
    """The error that says why a text of so many tokens has no score."""
    return HeadroomError(
        f"an in-context-learning score needs a text of at least {MIN_TOKENS} tokens, and the longest here has "
        f"{n_tokens:,}; take a longer one, solved questions of a task, or a model that reads {MIN_TOKENS} at once"
    )


def mean_of(values: np.ndarray) -> MeanOverTexts:
    """Mean of (text,) values with its 95 % t interval."""
    mean, low, high = over_texts(np.asarray(values, float)[:, None])
    return MeanOverTexts(float(mean[0]), float(low[0]), float(high[0]), len(values))


def loss_by_index(losses: Sequence[np.ndarray], bins: int | None = None) -> ByIndex:
    """Mean loss at each token index, nats, up to the end of the shortest text.

    With `bins`, in so many bins even in ln(index) (fewer, where bins hold no whole index): each text's mean in the bin
    first, then mean and interval over texts. Indices without a loss (the first token, without a beginning token in
    front) are left out.
    """
    return _binned(losses, bins)[0]


def slope(losses: Sequence[np.ndarray], bins: int = SLOPE_BINS) -> ByIndex:
    """d loss / d ln(index), nats, below 0 where loss still falls.

    Finite differences between neighbouring bins that are even in ln(index): each text's mean loss in a bin minus that
    in the bin before, divided by the difference of the two bins' mean ln(index); then mean and interval over texts. So
    a loss of a + b ln(index) has slope b exactly. `first` and `last` are the two bins' outer indices.
    """
    return slopes(losses, bins)[0]


def slopes(losses: Sequence[np.ndarray], bins: int = SLOPE_BINS) -> tuple[ByIndex, np.ndarray]:
    """(the slope, each text's own (text, point))."""
    curve, by_text = _binned(losses, bins)
    ln = np.log(curve.index)
    rise = np.diff(by_text, axis=1) / np.diff(ln)
    middle = np.exp((ln[1:] + ln[:-1]) / 2)
    return ByIndex(middle, curve.first[:-1], curve.last[1:], *over_texts(rise), curve.n[1:]), rise


def _binned(losses: Sequence[np.ndarray], bins: int | None) -> tuple[ByIndex, np.ndarray]:
    """(the curve, each text's own means (text, point))."""
    if not losses:
        raise HeadroomError("there are no losses yet; measure at least one text")
    by_text = np.stack([np.asarray(text, float)[: min(map(len, losses))] for text in losses])  # (text, index)
    known = np.flatnonzero(np.isfinite(by_text).all(0))
    if not len(known):
        raise HeadroomError("no token here has a loss; take longer texts")
    by_text, index = by_text[:, known], known + 1
    place = index if bins is None else np.searchsorted(_edges(index, bins), index, side="right")
    held = [np.flatnonzero(place == at) for at in np.unique(place)]  # positions that each point is a mean of
    means = np.stack([by_text[:, at].mean(1) for at in held], axis=1)
    middle = np.array([np.exp(np.log(index[at]).mean()) for at in held])
    first, last = np.array([index[at[0]] for at in held]), np.array([index[at[-1]] for at in held])
    n = np.full(len(held), len(losses))
    return ByIndex(middle, first, last, *over_texts(means), n), means


def _edges(index: np.ndarray, bins: int) -> np.ndarray:
    return np.geomspace(index[0], index[-1] + 1, bins + 1)

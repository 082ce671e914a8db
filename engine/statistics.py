"""How sure a figure is: intervals of one accuracy and of a change on the same questions, and of a mean over texts; and
whether a paper's statements hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import count
from typing import TypeVar

import numpy as np

T = TypeVar("T", float, np.ndarray)
Z_95 = 1.959963984540054
ALPHA = 0.05  # of McNemar's exact test, wherever one is read
POWER = 0.8  # with which a loss that is called detectable is found
Judgment = tuple[bool | None, str]  # whether a statement holds (None: not measured), and the result here
MIN_QUESTIONS = 32  # while they are still coming in: before that a verdict would come and go with every question


def share_of(part: T, whole: float, least: float) -> T:
    """Returns part / whole; nan if `whole`, a difference, is not larger than `least`, up to which it may be rounding or
    noise: such a share could be anything."""
    return part / whole if abs(whole) > least else part * math.nan


@dataclass(frozen=True)
class Paired:
    """The same n questions under two masks: how many B gained and lost against A, exact McNemar p (two-sided)."""

    n: int
    gained: int
    lost: int
    p_mcnemar: float

    @property
    def is_significant(self) -> bool:
        """Whether the exact McNemar test finds a change at 5%."""
        return self.p_mcnemar < ALPHA

    @property
    def is_clear(self) -> bool:
        """The same of questions that are still being answered: on enough of them to say so."""
        return self.n >= MIN_QUESTIONS and self.is_significant

    @property
    def difference(self) -> float:
        """The change of accuracy, -1 to 1; nan without questions."""
        return (self.gained - self.lost) / self.n if self.n else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """95% interval of the change of accuracy, -1 to 1; nan without questions.

        The adjusted Wald interval for paired proportions (Bonett & Price 2012, J. Educ. Behav. Stat. 37:479): one
        question is added to the gained and one to the lost. Widened to 0 where the exact test, which is the stricter of
        the two, finds nothing.
        """
        if self.n == 0:
            return math.nan, math.nan
        n = self.n + 2
        gained, lost = (self.gained + 1) / n, (self.lost + 1) / n
        middle, half = gained - lost, Z_95 * math.sqrt((gained + lost - (gained - lost) ** 2) / n)
        low, high = max(-1.0, middle - half), min(1.0, middle + half)
        return (low, high) if self.is_significant else (min(low, 0.0), max(high, 0.0))


def wilson(n_right: int, n: int) -> tuple[float, float]:
    """Wilson 95% interval of a proportion (Wilson 1927), no continuity correction."""
    share, spread = n_right / n, Z_95**2 / n
    middle = (share + spread / 2) / (1 + spread)
    half = Z_95 / (1 + spread) * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def paired(before: np.ndarray, after: np.ndarray) -> Paired:
    """How `after` differs from `before`, (n,) bool right or wrong, on the questions both have so far."""
    n = min(len(before), len(after))
    before, after = before[:n], after[:n]
    gained, lost = int((~before & after).sum()), int((before & ~after).sum())
    return Paired(n, gained, lost, mcnemar(gained, lost))


def mcnemar(gained: int, lost: int) -> float:
    """The exact two-sided p of McNemar's test of so many questions gained and lost."""
    tail = sum(math.comb(gained + lost, k) for k in range(min(gained, lost) + 1))
    return min(1.0, float(Fraction(2 * tail, 2 ** (gained + lost))))


def holm(p: Sequence[float]) -> list[float]:
    """The p of several tests, each adjusted for all of them (Holm 1979): those below 5% hold together with 95%
    certainty, whatever depends on what. Of one test it is its own p."""
    n, largest = len(p), 0.0
    adjusted = [0.0] * n
    for place, at in enumerate(sorted(range(n), key=p.__getitem__)):
        largest = max(largest, min(1.0, (n - place) * p[at]))
        adjusted[at] = largest
    return adjusted


@cache
def smallest_clear(n: int, looks: int = 1) -> int:
    """The fewest of n questions lost, and none gained, that McNemar's exact test calls a loss at 5%, shared among so
    many `looks`; 0 where even all of them are too few."""
    found = next(lost for lost in count(1) if 2 * 0.5**lost * looks < ALPHA)
    return found if found <= n else 0


@cache
def detectable(n: int, looks: int = 1) -> float:
    """The smallest true loss of accuracy, 0 to 1, that n questions call a loss at 5%, shared among so many `looks`,
    with probability POWER where pruning gains none: the loss at which so many of n are lost often enough. What gains
    some besides needs more. nan where no loss is found so often."""
    from scipy.special import bdtrc  # one minus the binomial distribution function

    fewest = smallest_clear(n, looks)
    if not fewest:
        return math.nan
    low, high = 0.0, 1.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if bdtrc(fewest - 1, n, middle) >= POWER else (middle, high)
    return high


def exponential(nats: float) -> float:
    """e to the `nats`: a perplexity of a mean loss; infinite where that is beyond all numbers."""
    return math.exp(nats) if nats < 709 else math.inf


def over_texts(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(mean, low, high) over texts of values (text, ...): the 95% t interval, nan with one text."""
    from scipy.special import stdtrit  # the t distribution's quantile, without the weight of scipy.stats

    n, mean = len(values), values.mean(0)
    if n < 2:
        return mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan)
    half = stdtrit(n - 1, 0.975) * values.std(0, ddof=1) / np.sqrt(n)
    return mean, mean - half, mean + half


def mean_over(values: np.ndarray) -> tuple[float, float, float]:
    """(mean, low, high) of values (n,), such as one for each text or question: the 95% t interval, nan with one."""
    mean, low, high = over_texts(np.asarray(values)[:, None])
    return float(mean[0]), float(low[0]), float(high[0])


@dataclass(frozen=True)
class Statement:
    """A finding of a paper, the result here, and whether it `holds`, `does not hold` or is `not measured`."""

    text: str
    ours: str
    verdict: str

    @classmethod
    def judged(cls, text: str, judgment: Judgment) -> Statement:
        """The statement with its judgment."""
        holds, ours = judgment
        return cls(text, ours, "not measured" if holds is None else "holds" if holds else "does not hold")


def all_hold(judgments: Sequence[Judgment], otherwise: str) -> Judgment:
    """Whether each of several holds, with the words of all; `otherwise` says why there is none."""
    if not judgments:
        return None, otherwise
    return all(holds for holds, _ in judgments), "; ".join(words for _, words in judgments)

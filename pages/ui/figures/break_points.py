"""How far pruning can go, as text: the same on Prune and on Sweeps."""

import math

from engine.statistics import detectable, smallest_clear
from pages.ui.page.tables import number, whole_percent

POWER_HELP = (
    "A smaller loss may be there and not be found: no detectable loss is not no loss. Exact McNemar test, 5% for all "
    "levels together (Holm's correction), where pruning gains no question; where it gains some, it takes a larger one. "
    "This is for a single level that loses: where other levels lose too, less is enough. More questions detect smaller "
    "losses. Prune tests one level alone, this table all levels together: Prune may call a loss clear that is not "
    "detectable here."
)


def power_in_words(n: int, looks: int) -> str:
    """Describes the loss that n questions detect at one of `looks` levels: "With 100 questions, a loss of 12 ..."."""
    if not smallest_clear(n, looks):
        return f"{n} questions are too few to detect any loss at {looks} levels."
    loss, least = math.ceil(100 * detectable(n, looks)), 100 * smallest_clear(n) / n
    return f"With {n} questions, a loss of {loss} points is noticed 4 times in 5; under {least:.3g} points, never."


def cliff_in_words(at: float, to: float, points: float) -> str:
    """Returns text such as "70 to 80%, −47 points"; "none" if accuracy never falls."""
    if math.isnan(points):
        return "none"
    return f"{number(100 * at, 0)} to {whole_percent(to)}, {number(points, 0, sign=True)} points"

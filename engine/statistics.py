"""How large a change from one mask to another can be, going by the same questions under both."""

import math

from engine.accuracy.evaluation import Z_95, Paired

MIN_QUESTIONS = 32  # before that a verdict would come and go with every question
ALPHA = 0.05


def is_clear(change: Paired) -> bool:
    """Whether the exact McNemar test finds a change at 5 %, on enough questions to say so."""
    return change.n >= MIN_QUESTIONS and change.p_mcnemar < ALPHA


def change_interval(change: Paired) -> tuple[float, float]:
    """95 % interval of the change of accuracy, -1 to 1; nan without questions.

    The adjusted Wald interval for paired proportions (Bonett & Price 2012, J. Educ. Behav. Stat. 37:479): one question
    is added to the gained and one to the lost. Widened to 0 where the exact test, which is the stricter of the two,
    finds nothing.
    """
    if change.n == 0:
        return math.nan, math.nan
    n = change.n + 2
    gained, lost = (change.gained + 1) / n, (change.lost + 1) / n
    middle, half = gained - lost, Z_95 * math.sqrt((gained + lost - (gained - lost) ** 2) / n)
    low, high = max(-1.0, middle - half), min(1.0, middle + half)
    return (low, high) if change.p_mcnemar < ALPHA else (min(low, 0.0), max(high, 0.0))

"""The first paper's statements (Bansal et al. 2212.09095), and which of them hold for the model of a study."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from engine.importance.rankings import n_pruned
from engine.studies.study import Study
from engine.studies.sweeps import SweepRow, Swept

COMBINED = ((0, 700, 200, 5), (1, 700, 100, 6), (5, 600, 200, 4))  # shots, permille of heads and FFNs, points lost
SMALL_LOSS = 5  # points that count as a small loss


@dataclass(frozen=True)
class Statement:
    """A finding of the paper, this model's result, and whether it `holds`, `does not hold` or is `not measured`."""

    text: str
    ours: str
    verdict: str


def mean_accuracy(rows: Sequence[SweepRow], shots: int, heads: int, ffns: int) -> float:
    """Returns the mean accuracy over tasks at one point, levels in permille; nan without rows."""
    found = [row.acc for row in rows if (row.point.task.shots, row.point.heads_permille, row.point.ffns_permille)
             == (shots, heads, ffns)]  # fmt: skip
    return float(np.mean(found)) if found else math.nan


def statements(study: Study) -> list[Statement]:
    """Returns the paper's statements with this model's results."""
    heads, ffns = (study.curves.get(name, Swept()).rows for name in ("heads", "ffns"))
    combined = study.curves.get("combined", Swept()).rows
    found = [
        _drop(study, f"70 % of the heads can go for less than {SMALL_LOSS} points, at every shot count",
              [(heads, shots, 700, 0, SMALL_LOSS) for shots in study.shots]),
        _drop(study, f"20 % of the FFNs can go for less than {SMALL_LOSS} points, at every shot count",
              [(ffns, shots, 0, 200, SMALL_LOSS) for shots in study.shots]),
    ]  # fmt: skip
    for shots, h, f, lost in COMBINED:
        text = f"{shots} shots: {h / 10:.0f} % of heads with {f / 10:.0f} % of FFNs can go for about {lost} points"
        found.append(_drop(study, text, [(combined, shots, h, f, lost + 0.5)] if shots in study.shots else []))
    return [*found, _all_positive(study), _few_agree_more(study)]


def _drop(study: Study, text: str, cases: Sequence[tuple[Sequence[SweepRow], int, int, int, float]]) -> Statement:
    words, holds = [], []
    for rows, shots, heads, ffns, allowed in cases:
        if ffns and not n_pruned(ffns, study.n_layers):
            return Statement(text, f"{ffns / 10:.0f} % of {study.n_layers} FFNs is less than one", "not measured")
        full, pruned = mean_accuracy(rows, shots, 0, 0), mean_accuracy(rows, shots, heads, ffns)
        if math.isnan(full - pruned):
            return Statement(text, "these levels were not measured", "not measured")
        words.append(f"{shots} shots {100 * (pruned - full):+.1f} points (mean {full:.1%} to {pruned:.1%})")
        holds.append(100 * (full - pruned) < allowed)
    if not words:
        return Statement(text, "this shot count was not measured", "not measured")
    return Statement(text, "; ".join(words), "holds" if all(holds) else "does not hold")


def _all_positive(study: Study) -> Statement:
    text, words, least = (
        "Head importance of every two tasks is positively correlated (SRCC), at every shot count",
        [],
        [],
    )
    for shots in study.shots:
        if (found := study.cross_task(shots)) is not None:
            upper = found.srcc[np.triu_indices(len(found.labels), 1)]
            if np.isfinite(upper).any():
                at = np.nanmin(upper)
                least.append(at)
                words.append(f"{shots} shots: {np.nansum(upper > 0):.0f} of {len(upper)} pairs, lowest {at:.2f}, "
                             f"mean {np.nanmean(upper):.2f}")  # fmt: skip
    if not words:
        return Statement(text, "fewer than two tasks were measured", "not measured")
    return Statement(text, "; ".join(words), "holds" if min(least) > 0 else "does not hold")


def _few_agree_more(study: Study) -> Statement:
    text = "Rankings of two few-shot settings agree more than those of zero-shot and few-shot"
    pairs = [
        (int(each.labels[i]), int(each.labels[j]), float(each.srcc[i, j]))
        for each in study.cross_shot().values()
        for i, j in zip(*np.triu_indices(len(each.labels), 1), strict=True)
    ]
    few, zero = few_and_zero(pairs)
    if math.isnan(few) or math.isnan(zero):
        return Statement(text, "this needs zero shots and two other shot counts", "not measured")
    return Statement(text, f"mean SRCC {few:.2f} against {zero:.2f}", "holds" if few > zero else "does not hold")


def few_and_zero(pairs: Iterable[tuple[int, int, float]]) -> tuple[float, float]:
    """Returns the mean coefficient of two few-shot rankings, and of zero-shot and few-shot, over all (shots, shots,
    coefficient) of all tasks; nan without pairs."""
    sides: dict[bool, list[float]] = {False: [], True: []}
    for a, b, coefficient in pairs:
        if not math.isnan(coefficient):
            sides[0 in (a, b)].append(coefficient)
    few, zero = (float(np.mean(found)) if found else math.nan for found in (sides[False], sides[True]))
    return few, zero

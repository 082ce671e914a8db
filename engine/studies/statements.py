"""What a paper study says: the first paper's statements (Bansal et al. 2212.09095) and which of them hold for its
model; how much of one axis a task can lose, read from the levels of a curve: the first detectable loss and the cliff;
its tables.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from engine.importance.rankings import n_pruned
from engine.questions.rendering import TaskSpec
from engine.statistics import ALPHA, Judgment, Paired, Statement, all_hold, holm, wilson
from engine.studies.paper_study import PaperStudy
from engine.studies.surveys import written_row
from engine.studies.sweeps import SweepRow, Swept

COMBINED = ((0, 700, 200, 5), (1, 700, 100, 6), (5, 600, 200, 4))  # shots, permille of heads and FFNs, points lost
SMALL_LOSS = 5  # points that count as a small loss
AT_CHANCE, NOT_MEASURED = "at chance", "not measured"
NOTHING = (math.nan, math.nan, math.nan, math.nan, math.nan)


def mean_accuracy(rows: Sequence[SweepRow], shots: int, heads: int, ffns: int) -> float:
    """Returns the mean accuracy over tasks at one point, levels in permille; nan without rows."""
    found = [row.acc for row in rows if (row.point.task.shots, row.point.heads_permille, row.point.ffns_permille)
             == (shots, heads, ffns)]  # fmt: skip
    return float(np.mean(found)) if found else math.nan


def statements(study: PaperStudy) -> list[Statement]:
    """Returns the paper's statements with this model's results."""
    heads, ffns = (study.curves.get(name, Swept()).rows for name in ("heads", "ffns"))
    combined = study.curves.get("combined", Swept()).rows
    found = {
        f"70% of the heads can go for less than {SMALL_LOSS} points, at every shot count":
            _drop(study, [(heads, shots, 700, 0, SMALL_LOSS) for shots in study.shots]),
        f"20% of the FFNs can go for less than {SMALL_LOSS} points, at every shot count":
            _drop(study, [(ffns, shots, 0, 200, SMALL_LOSS) for shots in study.shots]),
    }  # fmt: skip
    for shots, h, f, lost in COMBINED:
        text = f"{shots} shots: {h / 10:.0f}% of heads with {f / 10:.0f}% of FFNs can go for about {lost} points"
        found[text] = _drop(study, [(combined, shots, h, f, lost + 0.5)] if shots in study.shots else [])
    found["Head importance of every two tasks is positively correlated (SRCC), at every shot count"] = _positive(study)
    found["Rankings of two few-shot settings agree more than those of zero-shot and few-shot"] = _few_agree_more(study)
    return [Statement.judged(text, judgment) for text, judgment in found.items()]


def _drop(study: PaperStudy, cases: Sequence[tuple[Sequence[SweepRow], int, int, int, float]]) -> Judgment:
    judged = list[Judgment]()
    for rows, shots, heads, ffns, allowed in cases:
        if ffns and not n_pruned(ffns, study.n_layers):
            return None, f"{ffns / 10:.0f}% of {study.n_layers} FFNs is less than one"
        full, pruned = mean_accuracy(rows, shots, 0, 0), mean_accuracy(rows, shots, heads, ffns)
        if math.isnan(full - pruned):
            return None, "these levels were not measured"
        words = f"{shots} shots {100 * (pruned - full):+.1f} points (mean {full:.1%} to {pruned:.1%})"
        judged.append((100 * (full - pruned) < allowed, words))
    return all_hold(judged, "this shot count was not measured")


def _positive(study: PaperStudy) -> Judgment:
    judged = list[Judgment]()
    for shots in study.shots:
        if (found := study.cross_task(shots)) is not None:
            upper = found.srcc[np.triu_indices(len(found.labels), 1)]
            if np.isfinite(upper).any():
                least, of = np.nanmin(upper), f"{np.nansum(upper > 0):.0f} of {len(upper)} pairs"
                words = f"{shots} shots: {of}, lowest {least:.2f}, mean {np.nanmean(upper):.2f}"
                judged.append((bool(least > 0), words))
    return all_hold(judged, "fewer than two tasks were measured")


def _few_agree_more(study: PaperStudy) -> Judgment:
    pairs = [
        (int(each.labels[i]), int(each.labels[j]), float(each.srcc[i, j]))
        for each in study.cross_shot().values()
        for i, j in zip(*np.triu_indices(len(each.labels), 1), strict=True)
    ]
    few, zero = few_and_zero(pairs)
    if math.isnan(few) or math.isnan(zero):
        return None, "this needs zero shots and two other shot counts"
    return few > zero, f"mean SRCC {few:.2f} against {zero:.2f}"


def few_and_zero(pairs: Iterable[tuple[int, int, float]]) -> tuple[float, float]:
    """Returns the mean coefficient of two few-shot rankings, and of zero-shot and few-shot, over all (shots, shots,
    coefficient) of all tasks; nan without pairs."""
    sides: dict[bool, list[float]] = {False: [], True: []}
    for a, b, coefficient in pairs:
        if not math.isnan(coefficient):
            sides[0 in (a, b)].append(coefficient)
    few, zero = (float(np.mean(found)) if found else math.nan for found in (sides[False], sides[True]))
    return few, zero


@dataclass(frozen=True)
class BreakPoint:
    """How much of one axis a task can lose; levels are shares, 0-1.

    `first_detectable_loss`: the smallest level whose accuracy is significantly below the full model's on the same
        questions (exact McNemar, 5% for all levels together, by Holm); nan if there is none.
    `no_loss_up_to`: the measured level before it, or the largest level if there is none.
    `cliff_from`, `cliff_to`, `cliff_points`: the two neighboring levels between which accuracy falls most, and by how
        many points (below 0); nan if it never falls. This is measured, not tested.
    `looks`: how many levels were tested.
    `n`: questions.
    `reading`: why all of these are nan, or "". "at chance": the interval of the full model contains the accuracy of
        guessing, so there is nothing to lose. "not measured": fewer than two levels are measured.
    """

    task: TaskSpec
    no_loss_up_to: float
    first_detectable_loss: float
    cliff_from: float
    cliff_to: float
    cliff_points: float
    full_acc: float
    chance: float
    n: int = 0
    looks: int = 0
    reading: str = ""

    def cells(self) -> dict[str, Any]:
        """Returns a table row."""
        return asdict(self) | {"task": self.task.name, "shots": self.task.shots}


def break_point(task: TaskSpec, changes: Mapping[int, Paired], n_full: int, chance: float) -> BreakPoint:
    """Returns the BreakPoint of one task: `changes` against the full model by level (permille), all on the same
    questions, of which the full model answers `n_full` right."""
    n, looks = next(iter(changes.values())).n, [level for level in sorted(changes) if level]
    reading = AT_CHANCE if wilson(n_full, n)[0] <= chance or not n_full else NOT_MEASURED if len(changes) < 2 else ""
    if reading:
        return BreakPoint(task, *NOTHING, n_full / n, chance, n, len(looks), reading)
    adjusted = holm([changes[level].p_mcnemar for level in looks])
    lost = [
        level for level, p in zip(looks, adjusted, strict=True)
        if p < ALPHA and changes[level].lost > changes[level].gained
    ]  # fmt: skip
    first = lost[0] / 1000 if lost else math.nan
    before = max((level / 1000 for level in looks if not level / 1000 >= first), default=0.0)
    return BreakPoint(task, before, first, *_cliff(changes, n_full, n), n_full / n, chance, n, len(looks))


def break_points(rows: Sequence[SweepRow], axis: str) -> list[BreakPoint]:
    """Returns one BreakPoint per task of `rows`, which are of one ranking with the other axis at 0; `axis` is heads or
    ffns."""
    found = []
    for task in dict.fromkeys(row.point.task for row in rows):
        mine = [row for row in rows if row.point.task == task]
        changes = {row.point.permille(axis): Paired(row.n, row.gained, row.lost, row.p_mcnemar) for row in mine}
        n_full = round(mine[0].acc * mine[0].n) - mine[0].gained + mine[0].lost
        found.append(break_point(task, changes, n_full, mine[0].chance))
    return found


def _cliff(changes: Mapping[int, Paired], n_full: int, n: int) -> tuple[float, float, float]:
    """Returns (from, to, points) of the largest fall between neighboring levels, the first of equal ones."""
    right = {0: n_full} | {level: n_full + each.gained - each.lost for level, each in changes.items()}
    steps = [(right[to] - right[at], at, to) for at, to in pairwise(sorted(right))]
    fall, at, to = min(steps, default=(0, 0, 0))
    return (at / 1000, to / 1000, 100 * fall / n) if fall < 0 else (math.nan, math.nan, math.nan)


def tables(study: PaperStudy) -> dict[str, Any]:
    """Returns DataFrames by file name."""
    import pandas as pd

    frames: dict[str, Any] = {}
    for name, survey in (("head-importance", study.heads), ("ffn-importance", study.ffns)):
        rows = []
        for task, scores in survey.scores.items():
            at = dict(
                zip(("layer", "head"), np.indices(scores.scores.shape).reshape(scores.scores.ndim, -1), strict=False)
            )
            rows.append(pd.DataFrame({"task": task.name, "shots": task.shots, **at, "score": scores.scores.ravel()}))
        if rows:
            frames[name] = pd.concat(rows, ignore_index=True)
    frames["correlations"] = pd.DataFrame([written_row(row) for row in study.correlations])
    for name, swept in study.curves.items():
        frames[name] = pd.DataFrame([row.cells() for row in swept.rows])
    rows = [row for axis in ("heads", "ffns") for row in study.curves.get(axis, Swept()).rows]
    frames["calibration"] = pd.DataFrame([row.cells() | {"confidence": row.confidence, "ece": row.ece} for row in rows])
    for axis in ("heads", "ffns"):
        frames[f"break-points-{axis}"] = pd.DataFrame(
            [each.cells() for each in break_points(study.curves.get(axis, Swept()).rows, axis)]
        )
    return frames

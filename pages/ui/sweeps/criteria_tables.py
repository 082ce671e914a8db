"""Criteria compared, as tables for charts and files and as sentences."""

from typing import Any

import numpy as np
import pandas as pd

from engine.importance.rankings import CRITERIA, Part
from engine.shapes import ModelShape
from engine.statistics import wilson
from engine.studies.compare import BETTER, RANDOM, WORSE, Area, ComparedCriteria
from pages.ui.page.tables import number, percent

CHANCE = "chance"
LINE_COLUMNS = ["line", "kind", "level", "acc", "low", "high", "n", "about"]
AREA_COLUMNS = [
    "criterion",
    "area",
    "low",
    "high",
    "gain_points",
    "gain_low",
    "gain_high",
    "beats",
    "random",
    "verdict",
]


def label(criterion: str) -> str:
    """Returns the name of a ranking in charts and tables."""
    return CRITERIA[criterion].label if criterion in CRITERIA else criterion


def accuracies(found: ComparedCriteria) -> pd.DataFrame:
    """Returns one row per accuracy, as written to a file."""
    return pd.DataFrame(found.cells())


def lines(found: ComparedCriteria) -> pd.DataFrame:
    """Returns rows for `criteria_charts.curves`: each criterion's line with Wilson's interval, the mean of random
    orders with their range, and chance."""
    levels, rows = [level / 1000 for level in found.comparing.levels], []
    for curve in found.curves:
        if curve.criterion != RANDOM:
            for level, right in zip(levels, curve.correct, strict=True):
                between = wilson(int(right.sum()), found.n)
                about = f"95% interval {percent(between[0])} to {percent(between[1])}"
                rows.append((label(curve.criterion), "criterion", level, right.mean(), *between, found.n, about))
    if found.random:
        acc = np.array([curve.acc for curve in found.random])  # (seed, level)
        for at, level in enumerate(levels):
            low, high = acc[:, at].min(), acc[:, at].max()
            about = f"range of {len(acc)} orders {percent(low)} to {percent(high)}"
            rows.append((RANDOM, RANDOM, level, acc[:, at].mean(), low, high, found.n, about))
    if rows:
        chance = found.chance
        rows += [(CHANCE, CHANCE, level, chance, chance, chance, 0, "guessing") for level in (levels[0], levels[-1])]
    return pd.DataFrame(rows, columns=LINE_COLUMNS)


def area_table(areas: list[Area]) -> pd.DataFrame:
    """Returns one row per criterion, the largest area first; differences in points of accuracy."""
    rows = [
        (each.criterion, each.area, each.low, each.high, 100 * each.gain, 100 * each.gain_low, 100 * each.gain_high,
         each.beats, each.n_random, each.verdict) for each in areas
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=AREA_COLUMNS)


def area_words(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of `area_table` formatted for reading."""
    rows = []
    for row in frame.to_dict("records"):
        is_random = row["criterion"] == RANDOM
        gain = "" if is_random else number(row["gain_points"], 1, sign=True)
        gains = (
            "" if is_random else f"{number(row['gain_low'], 1, sign=True)} to {number(row['gain_high'], 1, sign=True)}"
        )
        rows.append({
            "Criterion": f"{RANDOM}, mean of {row['random']}" if is_random else label(row["criterion"]),
            "Mean right": percent(row["area"]),
            "95% interval": f"{number(100 * row['low'], 1)} to {percent(row['high'])}",
            "Points above random": gain, "95% interval of these": gains,
            "Orders beaten": "" if is_random else f"{row['beats']} of {row['random']}", "Verdict": row["verdict"],
        })  # fmt: skip
    return pd.DataFrame(rows)


def agreement_cells(found: ComparedCriteria, axis: Part) -> pd.DataFrame:
    """Returns one row per ordered pair of criteria: Spearman's rho of their scores with its 95% interval."""
    agreeing = found.agreement(axis)
    rows: list[dict[str, Any]] = []
    labels = agreeing.labels if agreeing is not None else ()
    for i, a in enumerate(labels):
        for j, b in enumerate(labels):
            rho, low, high = (float(getattr(agreeing, name)[i, j]) for name in ("srcc", "low", "high"))
            between = f"{number(low)} to {number(high)}" if low == low else "–"
            rows.append({"a": label(a), "b": label(b), "value": rho, "number": number(rho), "interval": between})
    return pd.DataFrame(rows, columns=["a", "b", "value", "number", "interval"])


def scores_table(found: ComparedCriteria, shape: ModelShape) -> pd.DataFrame:
    """Returns one row per component: its score by every criterion, or its place in orders without scores."""
    frames = []
    for axis, scores in found.scores.items():
        names = shape.head_names if axis == "heads" else [f"F{layer}" for layer in range(shape.n_layers)]
        frames.append(pd.DataFrame({"part": names, **scores}))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def in_words(areas: list[Area], n: int, along: str) -> str:
    """Describes which criteria are clearly better than random, and which are not."""
    if not areas:
        return "The areas come once every random order is measured."
    named = {
        verdict: [label(each.criterion) for each in areas if each.verdict == verdict] for verdict in (BETTER, WORSE)
    }
    best = next((each for each in areas if each.criterion != RANDOM), None)
    if best is None:
        return f"Only random orders of {along} are measured."
    said = (
        f"{label(best.criterion)} keeps most: {percent(best.area)} right on average over the levels, {n:,} questions."
    )
    better = ", ".join(named[BETTER]) or "none"
    worse = f" Clearly worse: {', '.join(named[WORSE])}." if named[WORSE] else ""
    return f"{said} Clearly better than a random order of {along}: {better}.{worse}"


def agreement_in_words(cells: pd.DataFrame) -> str:
    """Names the two criteria that agree most and the two that agree least."""
    pairs = cells[(cells["a"] < cells["b"]) & ~cells["a"].eq(RANDOM) & ~cells["b"].eq(RANDOM)].dropna(subset=["value"])
    if pairs.empty:
        return "Fewer than two criteria are measured."
    ordered = pairs.sort_values("value").to_dict("records")
    least, most = (f"{row['a']} and {row['b']} ({row['number']})" for row in (ordered[0], ordered[-1]))
    return f"Agreeing most: {most}; least: {least}."

"""How far the importance of components agrees between tasks, shot counts, and other scores."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from engine.importance.rankings import TOP_SHARE, Agreement, agreement, agreement_within_layers, n_top
from engine.questions.rendering import TaskSpec
from engine.studies.surveys import describe_task, shots_in_words
from engine.views.forms import kit, maps
from engine.views.view import Column, Part, View, interval
from engine.views.words import capitalized, counted, listed, not_measured, number, percent, plain

COLUMNS = {
    "at": Column("Shots, or task"),
    "a": Column("Ranking"),
    "b": Column("Other ranking"),
    "srcc": Column("Rank correlation, −1 to 1", "+.3f", "Spearman's, over heads or FFNs."),
    **interval("+.2f"),
    "p": Column("p", ".3f"),
    "overlap": Column(f"Shared of the top {TOP_SHARE:.0%}", ".0%"),
}

MEASURES = {
    "srcc": Column("Rank correlation, −1 to 1", ".2f"),
    "within": Column("Rank correlation within a layer, −1 to 1", ".2f"),
    "cost": Column("Points lost by the other's order", "+.0f"),
    "overlap": Column(f"Shared of the top {TOP_SHARE:.0%}", ".0%"),
}
RANKS = {"name": Column("Name"), "rank_a": Column("Rank"), "rank_b": Column("Rank"), "layer": Column("Layer")}
ALIKE, PARTLY_ALIKE = 0.7, 0.3  # rank correlation from which rankings are largely, or partly, alike


@dataclass(frozen=True)
class Rankings:
    """The scores of components by ranking, such as "piqa, 5 shots", and how far every two agree.

    scores: by label
    costs: by two labels, (points that the first loses when it is pruned by the order of the second instead of its own,
        whether that is clear), as far as they are measured
    permille: the level of heads at which they are
    """

    scores: Mapping[str, np.ndarray]
    costs: Mapping[tuple[str, str], tuple[float, bool]]
    permille: int = 0

    @cached_property
    def agreement(self) -> Agreement:
        return agreement(self.scores, permutations=0)  # no p is shown

    @cached_property
    def within(self) -> np.ndarray:
        return agreement_within_layers(self.scores)

    def value(self, a: str, b: str, measure: str) -> float:
        """How far two rankings agree by one of MEASURES; nan if that is undefined or not measured."""
        if measure == "cost":
            return self.costs.get((a, b), (math.nan, False))[0]
        if a == b or not {a, b} <= self.scores.keys():
            return math.nan
        at = [*self.scores].index(a), [*self.scores].index(b)
        return float(self.within[at] if measure == "within" else getattr(self.agreement, measure)[at])

    def interval(self, a: str, b: str) -> tuple[float, float]:
        """The 95% interval of the rank correlation of two rankings."""
        at = [*self.scores].index(a), [*self.scores].index(b)
        return float(self.agreement.low[at]), float(self.agreement.high[at])

    def pairs(self, measure: str) -> dict[tuple[str, str], float]:
        """The values of every two rankings, lowest first: each pair once, but for costs, which have a direction."""
        names = [*self.scores]
        found = {(a, b): self.value(a, b, measure) for a in names for b in names
                 if a != b and (measure == "cost" or names.index(a) < names.index(b))}  # fmt: skip
        return dict(sorted(((pair, each) for pair, each in found.items() if each == each), key=lambda each: each[1]))


def rankings_part(of: Rankings, labels: Sequence[str], measure: str, pair: tuple[str, str], selects: str) -> Part:
    """How far every two of these rankings agree; a cell is empty if one is not measured."""
    rows = []
    for a in labels:
        for b in labels:
            value = of.value(a, b, measure)
            known = a != b and {a, b} <= of.scores.keys() and measure == "srcc"
            low, high = of.interval(a, b) if known else (math.nan, math.nan)
            row = {"a": a, "b": b, "value": None if math.isnan(value) else value, "low": low, "high": high}
            rows.append(row | {"selected": (a, b) == pair})
    is_cost = measure == "cost"
    columns = {"a": Column("Judged on (validation)" if is_cost else "Ranking"),
               "b": Column("Pruned by the order of (train)" if is_cost else "Other ranking"),
               "value": MEASURES[measure]} | (interval(".2f") if measure == "srcc" else {})  # fmt: skip
    title = MEASURES[measure].title.partition(",")[0]
    title += f", {percent(of.permille / 1000, 0)} of heads pruned" if is_cost else ""
    draw = partial(maps.matrix, x="b", y="a", value="value", signed=measure != "overlap", selects=selects)
    return Part(title, rows, columns, draw, width=0.55)


def rankings_in_words(of: Rankings, measure: str, noun: str) -> str:
    """What the drawn pairs say: how alike they are, the smallest and the largest number, and whether another's order
    costs."""
    pairs = of.pairs(measure)
    if not pairs:
        return "No two rankings can be compared yet."
    if measure == "cost":
        return f"{capitalized(_cost_in_words(of))}."
    (least, low), *_, (_, high) = [*pairs.items()] * (2 if len(pairs) == 1 else 1)
    form = MEASURES[measure].text
    kind = {"srcc": "rank correlation", "within": "rank correlation within a layer", "overlap": "share of the top 30%"}
    over = f"to {form(high)} over {len(pairs)} pairs" if len(pairs) > 1 else f"of {_both(least)}"
    said = f"{kind[measure]} {form(low)} {over}"
    if measure in ("srcc", "within"):
        mean, within = (float(np.mean([*of.pairs(each).values()] or [math.nan])) for each in ("srcc", "within"))
        said = f"**{_alike(mean, within, noun)}**: {said}"
        said += f", {number(within)} within a layer on average" if measure == "srcc" and within == within else ""
    cost = f"; {_cost_in_words(of)}" if of.costs and measure != "overlap" else ""
    return f"{capitalized(said)}{cost}."


def pair_in_words(of: Rankings, a: str, b: str, noun: str) -> str:
    """Whether two tasks need the same components: how alike they rank them, and what the other's order costs."""
    missing = [plain(each) for each in (a, b) if each not in of.scores]
    if missing:
        return f"Not measured yet: {' and '.join(missing)}."
    srcc, (low, high) = of.value(a, b, "srcc"), of.interval(a, b)
    if math.isnan(srcc):
        return "Rank correlation undefined: all scores of one are equal."
    within, overlap, n = of.value(a, b, "within"), of.value(a, b, "overlap"), of.scores[a].size
    likely = "" if math.isnan(low) else f" (95% {number(low)} to {number(high)})"
    said = f"**{_alike(srcc, within, noun)}**: rank correlation {number(srcc)}{likely}"
    said += "" if math.isnan(within) else f", {number(within)} within a layer"
    if not math.isnan(overlap):
        said += f"; {round(overlap * n_top(n))} of the {n_top(n)} in each top 30% are shared"
        said += f" (by chance {number(n_top(n) ** 2 / n, 1)})"
    costs = []
    for one, other in ((a, b), (b, a)):
        if (one, other) in of.costs:
            points, is_clear = of.costs[one, other]
            costs.append(f"{plain(one)} loses {f'{number(points, 0)} points' if is_clear else 'nothing clear'}")
    return f"{said}." + (f" Pruned by the other's order, {listed(costs)}." if costs else "")


def ranks_part(of: Rankings, a: str, b: str, noun: str) -> Part:
    """The ranks of every component by two rankings."""
    both = [ranks(of.scores[each]).ravel() for each in (a, b)]
    shape = of.scores[a].shape
    names = [f"L{at[0]}H{at[1]}" if len(at) == 2 else f"F{at[0]}" for at in np.ndindex(shape)]
    layers = [at[0] for at in np.ndindex(shape)]
    rows = [
        {"name": name, "layer": layer, "rank_a": float(one), "rank_b": float(other)}
        for name, layer, one, other in zip(names, layers, *both, strict=True)
    ]
    columns = RANKS | {"rank_a": Column(f"Rank on {a} (1 = most important)"), "rank_b": Column(f"Rank on {b}")}
    draw = partial(kit.scatter, x="rank_a", y="rank_b")
    return Part(f"{counted(len(rows), noun)} by both", rows, columns, draw, width=0.45)


def ranks(scores: np.ndarray) -> np.ndarray:
    """The rank of every component; 1 is the most important, and equal scores share their mean."""
    from scipy.stats import rankdata

    return rankdata(-scores, axis=None).reshape(scores.shape)


def _cost_in_words(of: Rankings) -> str:
    (a, b), worst = max(of.pairs("cost").items(), key=lambda each: each[1])
    at = f"with {percent(of.permille / 1000, 0)} of heads pruned by the order of"
    if not of.costs[a, b][1]:
        return f"{at} another task, no task clearly loses accuracy"
    return f"{at} {plain(b)}, {plain(a)} loses **{number(worst, 0)} points**"


def _both(pair: tuple[str, str]) -> str:
    return f"{plain(pair[0])} and {plain(pair[1])}"


def _alike(srcc: float, within: float, noun: str) -> str:
    """Whether rankings need the same components: alike over all layers may only mean the same layers."""
    if srcc >= PARTLY_ALIKE and within < PARTLY_ALIKE:
        return f"The same layers matter, but other {noun}s in them"
    least = srcc if math.isnan(within) else min(srcc, within)
    how = "Largely the same" if least >= ALIKE else "Partly the same" if least >= PARTLY_ALIKE else "Other"
    return f"{how} {noun}s matter"


def correlation_view(
    rows: Sequence[Mapping[str, Any]],
    means: Mapping[str, float | None],
    mean: Part | None,
    failed: Mapping[TaskSpec, str],
) -> View:
    """How far every two rankings agree. `rows`: of every two, as in files; `means`: of two tasks by shot count;
    `mean`: the mean scores of all tasks (`mean_scores_part`)."""
    parts = [Part("Two rankings", rows, COLUMNS, ranked_by="srcc")]
    for at in dict.fromkeys(row["at"] for row in rows if row["kind"] == "tasks"):
        pairs = square([row for row in rows if row["kind"] == "tasks" and row["at"] == at])
        draw = partial(maps.matrix, x="a", y="b", value="srcc", signed=True)
        parts.append(Part(f"Rankings of tasks, {shots_in_words(int(at))}", pairs, COLUMNS, draw))
    known = [
        f"{number(mean, 3)} with {shots_in_words(int(shots))}" for shots, mean in means.items() if mean is not None
    ]
    highest = mean.caption if mean else ""
    if known:
        finding = f"**Mean rank correlation of two tasks: {listed(known, len(known))}**; {highest}"
    else:
        finding = f"**No two tasks could be compared**; {highest}" if mean else ""
    parts += [mean] if mean else []
    notes = not_measured({describe_task(task): reason for task, reason in failed.items()})
    return View(finding, parts, notes, on_slide=2)


def square(pairs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a matrix: every pair of `a` and `b` in both directions, and each name with itself, without
    numbers."""
    names = dict.fromkeys(row[side] for side in ("a", "b") for row in pairs)
    known = {(row["a"], row["b"]): row for row in pairs}
    return [{**known.get((a, b), known.get((b, a), {})), "a": a, "b": b} for a in names for b in names]

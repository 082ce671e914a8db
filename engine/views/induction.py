"""Induction scores of every head."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from engine.heads.induction import INDUCTION_FROM, SCORES, InductionScores, retained
from engine.importance.rankings import agreement, order, random_order
from engine.views.forms import kit, maps
from engine.views.importance import component_rows
from engine.views.view import Column, Part, View
from engine.views.words import counted, number, percent, plain

COLUMNS = {
    "prefix_matching": Column("Prefix matching, share", ".2f"),
    "copying": Column("Copying, no unit", "+.2f"),
    "previous_token": Column("Previous token, share", ".2f"),
    "duplicate_token": Column("Duplicate token, share", ".2f"),
    "ov_eigen": Column("OV copying eigenvalues, −1 to 1", "+.2f"),
    "qk_trace": Column("QK trace, no unit", "+.3g"),
}
SIGNED = {"copying", "ov_eigen", "qk_trace"}
BOTH = "Prefix matching and copying"
LEVELS, N_RANDOM = np.linspace(0, 1, 51), 20
RANDOM = "random orders, 95% of them"
LEFT = {"line": Column("Order of"), "level": Column("Heads pruned", ".0%"), "left": Column("Left", ".0%"),
        "low": Column("95% from", ".0%"), "high": Column("to", ".0%")}  # fmt: skip


def induction_view(found: InductionScores) -> View:
    """Which heads are induction heads, and a map of the heads by each score."""
    errors = {f"{name}_standard_error": found.standard_error[name] for name in SCORES if found.n[name] > 1}
    rows = component_rows(found.mean | errors)
    columns = {"name": Column("Head")} | COLUMNS
    parts = [
        Part(
            column.title.partition(",")[0],
            rows,
            columns,
            partial(maps.head_map, value=name, signed=name in SIGNED),
            ranked_by=name,
            width=1 / 3,
        )
        for name, column in COLUMNS.items()
        if not np.isnan(found.mean[name]).all()
    ]
    best, n = parts[0].first(1)[0], int(found.is_induction_head.sum())
    share = percent(best["prefix_matching"], 0)
    if n:
        are = "is an induction head" if n == 1 else "are induction heads"
        finding = f"**{n} of {counted(len(rows), 'head')} {are}**, {best['name']} most: {share} of its attention goes "
        finding += "to what followed an earlier copy."
    else:
        finding = f"**No head is an induction head**: {best['name']} comes closest, with {share} of its attention to "
        finding += f"what followed an earlier copy (from {percent(INDUCTION_FROM, 0)}, if it copies more than chance)."
    return View(finding, [*parts, both_part(found)], [found.note] if found.note else [])


def both_part(found: InductionScores) -> Part:
    """A dot for each head: prefix matching against copying."""
    share = component_rows({"prefix_matching": found.mean["prefix_matching"], "copying_share": found.copying_share})
    columns = {"name": Column("Head"), "prefix_matching": COLUMNS["prefix_matching"],
               "copying_share": Column(f"Copying, share (chance {percent(found.chance, 0)})", ".0%"),
               "layer": Column("Layer")}  # fmt: skip
    draw = partial(kit.scatter, x="prefix_matching", y="copying_share")
    return Part(BOTH, share, columns, draw, f"Induction heads: matching from {INDUCTION_FROM}, copying above chance.")


def capacity_view(found: InductionScores, scores: Mapping[str, np.ndarray], chosen: str) -> View:
    """How much of all heads' prefix matching and copying is left as heads are pruned, the least important first: by the
    scores of importance of each ranking, the `chosen` one first, and at random."""
    capacities = {"Prefix matching": found.mean["prefix_matching"], "Copying": found.copying_share}
    orders = {name: order(scores[name]) for name in dict.fromkeys([chosen, *scores])}
    drawn = [random_order(found.copying_share.size, seed) for seed in range(N_RANDOM)]
    parts, half = [], list[str]()
    for title, capacity in capacities.items():
        rows = [row for name, each in orders.items() for row in _left(name, _at_levels(retained(capacity, each)))]
        at_random = np.stack([_at_levels(retained(capacity, each)) for each in drawn])
        rows += _left(RANDOM, at_random.mean(0), *np.quantile(at_random, [0.025, 0.975], axis=0))
        draw = partial(
            kit.curves, x="level", y="left", by="line", low="low", high="high", share=True, roles={"random": RANDOM}
        )
        parts.append(Part(f"{title} left", rows, LEFT, draw, width=0.5))
        mine, middle = _at_levels(retained(capacity, orders[chosen])), len(LEVELS) // 2
        half.append(f"{percent(mine[middle], 0)} of {title.lower()}")
    matching = np.nan_to_num(found.mean["prefix_matching"])
    srcc = float(agreement({"a": scores[chosen], "b": matching}, permutations=0).srcc[0, 1])
    finding = f"**With half of the heads pruned by the order of {plain(chosen)}, {' and '.join(half)} are left**; rank "
    return View(f"{finding}correlation of importance and prefix matching: {number(srcc)}.", parts)


def _at_levels(left: np.ndarray) -> np.ndarray:
    """What is left after 0, 1, 2, ... pruned heads, read at LEVELS."""
    return left[np.floor(LEVELS * (len(left) - 1) + 1e-9).astype(int)]


def _left(line: str, left: np.ndarray, low: Any = None, high: Any = None) -> list[dict[str, Any]]:
    return [
        {"line": line, "level": float(level), "left": float(left[at]),
         "low": None if low is None else float(low[at]), "high": None if high is None else float(high[at])}
        for at, level in enumerate(LEVELS)
    ]  # fmt: skip

"""Scores of heads, FFNs or layers for one task."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from engine.importance.criteria import part_of
from engine.importance.importance import ORACLES, Scores
from engine.views import kit
from engine.views.view import Column, Part, View
from engine.views.words import NOUNS, counted, listed, number, with_interval

N_NAMED, N_BEST = 4, 5  # of one task, and of many


def importance_view(scores: Scores, task: str) -> View:
    """The scores of one task as a map, and which are highest."""
    is_oracle = scores.what in ORACLES
    column = _column(scores.what)
    rows = component_rows({"score": scores.scores, "gold_log_likelihood_drop_nats": scores.tie_break})
    columns = {"name": Column("Name"), "score": column}
    if scores.tie_break is not None:
        columns["gold_log_likelihood_drop_nats"] = Column("Log-likelihood lost, nats", "+.3f")
    part = score_part(column.title, rows, columns, "score", signed=is_oracle)
    top = [row["name"] for row in part.first(N_NAMED)]
    on = f"on {task}, {counted(scores.n, 'question')}"
    highest = float(part.first(1)[0]["score"])
    if is_oracle and highest <= 0:
        finding = f"**No component matters alone**: nothing is lost without any single one {on}."
    elif is_oracle:
        lost = f"{number(100 * highest, 1)} points lost without it"
        finding = f"**{top[0]} matters most alone: {lost}** {on}."
    else:
        finding = f"**{listed(top)} score highest** by {scores.what} {on}."
    return View(finding, [part])


def layers_view(
    rows: Sequence[Mapping[str, Any]], orders: Mapping[str, Any], spearman: Mapping[str, Mapping[str, float]], on: str
) -> View:
    """What each layer costs alone (a row of `rows` each), in which orders they are dropped, and how far block influence
    agrees with what they cost. `on`: the task and its questions, in words."""
    columns = {
        "layer": Column("Layer"),
        "influence": Column("Block influence", ".4f"),
        "accuracy_lost": Column("Accuracy lost without it", "+.1%"),
        "gold_nats_lost": Column("Log-likelihood lost, nats", "+.3f"),
    }
    if "greedy" in orders:
        columns |= {"greedy_step": Column("Greedy step"), "greedy_accuracy": Column("Accuracy after it", ".1%")}
    least, most = orders["oracle"][0], orders["oracle"][-1]
    points = {at: f"{number(100 * rows[at]['accuracy_lost'], 1)} points" for at in (least, most)}
    finding = f"**Layer {least} costs least: {points[least]} lost without it** {on}; layer {most} costs most, "
    finding += f"{points[most]}."
    notes = [f"Order by {name}, dropped first to last: {' '.join(map(str, order))}." for name, order in orders.items()]
    notes += [f"Rank correlation of block influence and {name}: {_correlation(each)}."
              for name, each in spearman.items()]  # fmt: skip
    draw = partial(kit.bars, y="layer", x="accuracy_lost")
    return View(finding, [Part("Accuracy lost without each layer", rows, columns, draw)], notes)


def _correlation(found: Mapping[str, float]) -> str:
    if math.isnan(found["srcc"]):
        return "undefined, one of them is the same for all layers"
    size = with_interval(found["srcc"], found["low"], found["high"])
    return size if math.isnan(found["low"]) else f"{size}, p {found['p']:.3f}"


def component_rows(scores: Mapping[str, np.ndarray | None]) -> list[dict[str, Any]]:
    """A row for each head, or FFN: its layer, head and name, and its scores; an array that is None is left out."""
    known = {name: array for name, array in scores.items() if array is not None}
    rows = []
    for at in np.ndindex(next(iter(known.values())).shape):
        place = dict(zip(("layer", "head"), at, strict=False))
        name = f"L{at[0]}H{at[1]}" if len(at) == 2 else f"F{at[0]}"
        rows.append(place | {"name": name} | {score: float(array[at]) for score, array in known.items()})
    return rows


def score_part(
    title: str, rows: list[dict[str, Any]], columns: Mapping[str, Column], score: str, signed: bool = False
) -> Part:
    """A map of heads by one of their scores, or bars of FFNs."""
    is_map = "head" in rows[0]
    draw = partial(kit.head_map, value=score, signed=signed) if is_map else partial(kit.bars, y="name", x=score)
    return Part(title, rows, columns, draw, ranked_by=score)


def mean_scores_part(scores: Scores) -> Part:
    """The mean scores of many tasks as a map of heads, or bars of FFNs."""
    columns = {"name": Column("Name"), "score": _column(scores.what)}
    rows, title = component_rows({"score": scores.scores}), f"Mean score of {NOUNS[part_of(scores.what)]}"
    part = score_part(title, rows, columns, "score", signed=scores.what in ORACLES)
    names = listed([row["name"] for row in part.first(N_BEST)], N_BEST)
    return replace(part, caption=f"{names} score highest on average.")


def _column(what: str) -> Column:
    """The column of a score by its name."""
    return Column("Accuracy lost without it", "+.1%") if what in ORACLES else Column(f"{what}, no unit", ".3g")

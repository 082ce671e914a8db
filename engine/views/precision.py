"""What a lower precision disturbs, and what it costs."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from engine.models.loading import LoadSpec
from engine.studies.precision import PARTS, PrecisionEffects, name_of
from engine.views import kit
from engine.views.importance import component_rows
from engine.views.view import MAGNITUDE, Column, Part, View, interval
from engine.views.words import Effect, listed, number, percent, plain, with_interval

N_MOST = 5  # disturbed components that are named
COMPONENTS = {
    "name": Column("Name"),
    "disturbed": Column("Difference of its output", ".2%", "Each layer reads what it reads in the reference model."),
    "end_to_end": Column("End to end", ".2%"),
    "importance": Column("Importance, no unit", MAGNITUDE),
    "rank": Column("Rank by importance"),
}
MODELS = {
    "name": Column("Precision"),
    "disturbed_heads": Column("Heads", ".2%", "Mean difference of their outputs, as a share."),
    "disturbed_ffns": Column("FFNs", ".2%"),
    "disturbed_heads_end_to_end": Column("Heads, end to end", ".2%"),
    "disturbed_ffns_end_to_end": Column("FFNs, end to end", ".2%"),
    "heads_srcc": Column("Rank correlation of heads", "+.2f", "Of difference and importance."),
    **interval("+.2f", "heads_"),
    "points_lost": Column("Points lost", "+.1f"),
    **interval("+.1f", "points_"),
    "nats_lost": Column("Log-likelihood lost, nats", "+.4f", "Of the right choice of a question."),
    **interval("+.4f", "nats_"),
    "perplexity": Column("Perplexity a token", ".3f"),
    "loss_change": Column("Change of the loss, nats a token", "+.5f"),
    **interval("+.5f", "loss_"),
}


def precision_view(found: PrecisionEffects, task: str) -> View:
    """How far the outputs of heads and FFNs differ from those in the reference precision, whether those that matter
    differ more, and what each precision loses on the task and on the text."""
    spec, rows = next(iter(found.disturbed)), [found.row(spec) for spec in found.disturbed]
    first, each = rows[0], components(found, spec)
    heads = [row for row in each if row["head"] is not None]
    by = {f"{part}{way}": percent(first[f"disturbed_{part}{way}"]) for part in PARTS for way in ("", "_end_to_end")}
    finding = f"**{spec.precision} changes the output of heads by {by['heads']} and of FFNs by {by['ffns']}** on "
    finding += f"average (end to end {by['heads_end_to_end']} and {by['ffns_end_to_end']}); {_matter(first)}. "
    lost = Effect(first["points_lost"], first["points_low"], first["points_high"], first["n"], digits=1, p=first["p"])
    finding += f"{plain(task)}: {lost.in_words()}; perplexity {number(first['perplexity'])}, in "
    finding += f"{found.reference.precision} {number(found.perplexity[found.reference].a_token)}."
    title = f"Difference of outputs, {name_of(spec)} against {name_of(found.reference)}"
    part = Part(title, each, COMPONENTS, partial(kit.head_map, value="disturbed"), ranked_by="disturbed")
    most = [
        f"{row['name']} ({percent(row['disturbed'])}, rank {row['rank']} by importance)" for row in part.first(N_MOST)
    ]
    parts = [
        replace(part, caption=f"Most disturbed: {listed(most, N_MOST)}."),
        Part("Difference and importance of heads", heads, COMPONENTS | {"layer": Column("Layer")},
             partial(kit.scatter, x="importance", y="disturbed")),
        Part("What each precision changes and loses", rows, MODELS),
    ]  # fmt: skip
    return View(finding, parts)


def components(found: PrecisionEffects, spec: LoadSpec) -> list[dict[str, Any]]:
    """A row for each head and FFN: how far its output differs, its importance, and its rank by that (1: highest)."""
    disturbed, rows = found.disturbed[spec], list[dict[str, Any]]()
    for part in PARTS:
        scores = found.importance[part]
        arrays = {"disturbed": disturbed[part], "end_to_end": disturbed[f"{part}_end_to_end"], "importance": scores}
        for row in component_rows(arrays):
            rank = 1 + int((scores > row["importance"]).sum())
            rows.append({"precision": name_of(spec), "head": None} | row | {"rank": rank})
    return rows


def _matter(row: Mapping[str, Any]) -> str:
    """Whether the heads that matter are disturbed more."""
    rho, low, high = (row[f"heads_{name}"] for name in ("srcc", "low", "high"))
    if math.isnan(low):
        return "whether heads that matter differ more is undefined"
    how = "differ more" if low > 0 else "differ less" if high < 0 else "do not clearly differ more or less"
    return f"heads that matter {how}, rank correlation {with_interval(rho, low, high)}"

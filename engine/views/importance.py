"""Scores of heads, FFNs or layers for one task, and how far another precision changes what they output."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from engine.importance.criteria import part_of
from engine.importance.scores import ORACLES, Scores
from engine.models.loading import LoadSpec
from engine.models.masks import Mask
from engine.studies.precision import PARTS, PrecisionEffects, name_of
from engine.views.forms import kit, maps
from engine.views.view import MAGNITUDE, Column, Part, View, interval
from engine.views.words import NOUNS, Effect, counted, listed, number, percent, plain, with_interval

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
    draw = partial(maps.head_map, value=score, signed=signed) if is_map else partial(kit.bars, y="name", x=score)
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
    return Column("Accuracy lost without it", "+.1%") if what in ORACLES else Column(f"{what}, no unit", MAGNITUDE)


@dataclass(frozen=True)
class MapMarks:
    """Marks on a map of scores: the `chosen` head; a `mask`, whose pruned components are crossed out; and, as bool
    arrays or None, the heads that are `outlined` or have dots."""

    chosen: str
    mask: Mask
    outlined: np.ndarray | None = None
    dots: np.ndarray | None = None


def map_part(
    title: str,
    columns: tuple[Column, Column],
    scores: tuple[Scores | None, Scores | None],
    marks: MapMarks,
    selects: str,
    width: float = 1.0,
) -> Part:
    """The map of scores of heads, and of FFNs if they are known: each shaded by its own largest score. `columns`: of a
    score of heads and of FFNs. Accuracies lost are in points, and the clear ones have their number."""
    rows = list[dict[str, Any]]()
    for each, kept, column in zip(scores, (marks.mask.heads, marks.mask.ffns), columns, strict=True):
        if each is not None:
            rows += _rows(each, np.array(kept), column, marks)
    rows.sort(key=lambda row: (row["layer"], row["head"] is None))
    first = scores[0]
    draw = partial(
        maps.head_map,
        value="score",
        signed=first is not None and first.what in ORACLES,
        crosses="pruned",
        outlined="outlined",
        shade="shade",
        words="written",
        dots="dot" if marks.dots is not None else "",
        selects=selects,
    )
    return Part(title, rows, {"name": Column("Name"), "text": Column("Score")}, draw, ranked_by="score", width=width)


def _rows(of: Scores, kept: np.ndarray, column: Column, marks: MapMarks) -> list[dict[str, Any]]:
    clear, rows = of.is_clear, list[dict[str, Any]]()
    values = 100 * of.scores if of.what in ORACLES else of.scores  # in points
    top = float(np.nanmax(np.abs(values), initial=0.0)) or 1.0
    arrays: Mapping[str, np.ndarray | None] = {"score": values, "gold_log_likelihood_drop_nats": of.tie_break}
    for at, row in zip(np.ndindex(values.shape), component_rows(arrays), strict=True):
        number, is_head, is_clear = column.text(float(values[at])), len(at) == 2, clear is None or bool(clear[at])
        rows.append(
            {"head": None} | row | {
                "text": f"{column.title}: {number}" + ("" if is_clear else " (no clear loss)"),
                "written": number if is_clear else "",
                "shade": np.sign(values[at]) * np.sqrt(abs(values[at]) / top),  # most score far below the best few
                "is_clear": is_clear,
                "pruned": not kept[at],
                "outlined": is_head and marks.outlined is not None and bool(marks.outlined[at]),
                "dot": is_head and marks.dots is not None and bool(marks.dots[at]),
                "selected": row["name"] == marks.chosen,
            }
        )  # fmt: skip
    return rows


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
    part = Part(title, each, COMPONENTS, partial(maps.head_map, value="disturbed"), ranked_by="disturbed")
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

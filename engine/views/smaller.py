"""A model made smaller: pruned models as folders, their speed, memory and perplexity; and a lower precision."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from engine.accuracy.speed import Speed
from engine.export.card import Exported
from engine.models.loading import LoadSpec
from engine.models.masks import Mask
from engine.studies.precision import PARTS, PrecisionEffects, name_of
from engine.texts.perplexity import Change, Perplexity
from engine.views import kit
from engine.views.accuracy import cut_notes
from engine.views.importance import component_rows
from engine.views.view import MAGNITUDE, Column, Part, View, interval
from engine.views.words import Effect, counted, listed, number, percent, plain, with_interval

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


def exported_view(made: Exported, mask: Mask) -> View:
    """What was written where, how far it equals the masked model, and how to load it."""
    (params_before, params), (bytes_before, n_bytes) = made.n_params, made.n_bytes
    finding = (
        f"**{params:,} of {params_before:,} parameters, {n_bytes / 1e6:,.1f} of {bytes_before / 1e6:,.1f} MB** in "
        f"{plain(made.folder)}: {counted(mask.n_heads_pruned, 'head')} and "
        f"{counted(mask.n_ffns_pruned, 'FFN')} pruned, form {made.form}."
    )
    notes = [f"Largest logit difference from the masked model: {made.checked.difference:.3g} on "
             f"{counted(made.checked.n_tokens, 'token')}, {made.checked.precision}."]  # fmt: skip
    if made.judged is not None:
        found = made.judged.fields()
        sides = " and ".join(f"{percent(found[name]['acc'])} {name}" for name in ("full", "pruned"))
        notes.append(f"Accuracy on {found['task']}: {sides}, {counted(found['n'], 'question')}.")
        notes += cut_notes({made.base: made.judged.full})
    return View(finding, notes=[*notes, made.to_load])


def speed_view(found: Speed, mask: Mask) -> View:
    """Tokens per second and memory of the model, and of the pruned one if the mask prunes anything."""
    rows = found.rows()
    at = {row["quantity"]: row for row in rows}
    if mask.is_full:
        written, read = (f"{at[name]['full']:,.0f}" for name in ("Generated", "Prompt"))
        finding = f"**It generates {written} tokens a second**, and reads {read} of a prompt; its weights take "
        finding += f"{at['Weights']['full'] / 1e6:,.1f} MB."
    else:
        finding = f"**Pruned, it generates {at['Generated']['ratio']:.2f} times as many tokens a second**, and reads "
        finding += f"{at['Prompt']['ratio']:.2f} times as many of a prompt; its weights take "
        finding += f"{percent(at['Weights']['ratio'], 0)} of the full model's memory."
    columns = {"quantity": Column("Quantity"), "unit": Column("Unit"), "full": Column("Full, median", ",.0f"),
               "full_low": Column("from", ",.0f"), "full_high": Column("to", ",.0f")}  # fmt: skip
    if not mask.is_full:
        columns |= {"pruned": Column("Pruned, median", ",.0f"), "pruned_low": Column("from", ",.0f"),
                    "pruned_high": Column("to", ",.0f"), "ratio": Column("Pruned divided by full", ".2f")}  # fmt: skip
    draw = None if mask.is_full else partial(kit.bars, y="quantity", x="ratio")
    how = (
        f"A prompt of {found.n_prompt} tokens and {found.n_new} behind it, in {len(found.prompt['full'])} turns each; "
    )
    how += f"the machine's load was {found.load:.1f} on {found.n_cpus} cores."
    return View(finding, [Part("Speed and memory", rows, columns, draw)], [how])


def perplexity_view(sides: Mapping[str, Perplexity], rows: Sequence[Mapping[str, Any]], change: Change | None) -> View:
    """The perplexity of a text by the full model, and by the pruned one with the change in nats. `rows`: one of each
    of the `sides`."""
    full = sides["full"]
    if change is None:
        finding = f"**Perplexity {full.a_token:.2f} a token.**"
    else:
        finding = f"**Perplexity {sides['pruned'].a_token:.2f} a token, full model {full.a_token:.2f}**: "
        finding += f"{with_interval(change.nats, change.low, change.high, 'nats a token', 4)}."
    columns = {"model": Column("Model"), "perplexity": Column("Perplexity a token", ",.2f"),
               "word_perplexity": Column("a word", ",.2f"), "byte_perplexity": Column("a byte", ".3f"),
               "nats": Column("Nats a token", ".4f")}  # fmt: skip
    scored = f"{len(full):,} of {full.n_tokens:,} tokens scored, in windows of {full.window:,}."
    return View(finding, [Part("Perplexity", rows, columns, partial(kit.bars, y="model", x="perplexity"))], [scored])


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

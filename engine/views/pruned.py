"""What comes of pruning: an exported model, its speed and memory, and the perplexity of a text."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from engine.accuracy.speed import Speed
from engine.export.card import Exported
from engine.models.masks import Mask
from engine.texts.perplexity import Change, Perplexity
from engine.views.accuracy import cut_notes
from engine.views.forms import kit
from engine.views.view import Column, Part, View
from engine.views.words import counted, percent, plain, with_interval


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

"""What models make of texts: losses, heads that the in-context score needs, continuations, attention, and the lens."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.texts.continuation import Continuation
from engine.views import kit
from engine.views.importance import component_rows
from engine.views.view import Column, Part, View, interval
from engine.views.words import counted, listed, number, percent, plain, visible, with_interval

if TYPE_CHECKING:
    from engine.texts.incontext import MeanOverTexts

LEAST_SHOWN = 0.005  # the least attention that a chart shows
LOSSES = {
    "index": Column("Index"),
    "token": Column("Token"),
    "loss_full_nats": Column("Loss, nats", ".3f"),
    "loss_masked_nats": Column("Masked", ".3f"),
    "diff_nats": Column("Change", "+.3f"),
}
IN_CONTEXT = {
    "model": Column("Model"),
    "nats": Column("In-context score, nats", "+.3f"),
    **interval("+.3f"),
    "n": Column("Texts"),
}
SIDES = {"full": "loss_full_nats", "masked": "loss_masked_nats"}


def losses_view(
    rows: Sequence[Mapping[str, Any]], n_texts: int, scores: "Mapping[str, MeanOverTexts]", notes: Sequence[str]
) -> View:
    """What pruning changes the losses by, a row of `rows` for each token, and the in-context scores by side."""
    full, masked = (float(np.nanmean([row[field] for row in rows])) for field in SIDES.values())
    on = f"over {counted(len(rows), 'token')}" + (f" of {n_texts} texts" if n_texts > 1 else "")
    is_changed = any(abs(row["diff_nats"]) > 0 for row in rows)
    if is_changed:
        finding = (
            f"**The loss changes by {number(masked - full, 4, sign=True)} nats a token**, from {number(full, 4)} to "
            f"{number(masked, 4)}, {on}."
        )
    else:
        finding = f"**The loss is {number(full, 4)} nats a token** {on}."
    sides, columns, largest = SIDES, LOSSES, "diff_nats"
    if not is_changed:
        sides, largest = {"full": SIDES["full"]}, SIDES["full"]
        columns = {name: LOSSES[name] for name in ("index", "token", largest)}
    title = f"Tokens with the largest {'change' if is_changed else 'loss'}"
    parts = [Part(title, rows, columns, ranked_by=largest)]
    if scores:
        known = [{"model": name, "nats": found.value, "low": found.low, "high": found.high, "n": found.n}
                 for name, found in scores.items() if is_changed or name == "full"]  # fmt: skip
        parts.append(Part("In-context score", known, IN_CONTEXT))
    loss = Column("Loss, nats" if n_texts == 1 else "Mean loss of the texts, nats", ".3f")
    columns = {"index": Column("Token of the text"), "loss": loss, "model": Column("Model")}
    draw = partial(kit.curves, x="index", y="loss", by="model")
    parts.append(Part("Loss of each token", _by_index(rows, sides), columns, draw))
    return View(finding, parts, notes, on_slide=len(parts))


def _by_index(rows: Sequence[Mapping[str, Any]], sides: Mapping[str, str]) -> list[dict[str, Any]]:
    """The means over the texts at each index, by side."""
    losses: dict[tuple[str, int], list[float]] = {}
    for name, field in sides.items():
        for row in rows:
            losses.setdefault((name, row["index"]), []).append(row[field])
    return [{"index": index, "model": name, "loss": float(np.mean(each))} for (name, index), each in losses.items()]


def attribution_view(found: Mapping[str, np.ndarray], n_texts: int) -> View:
    """By how much the in-context score rises without each head."""
    rows = component_rows(found)
    columns = {
        "name": Column("Head"),
        "icl_score_change_nats": Column("Change of the in-context score without it, nats", "+.3f"),
        **interval("+.3f"),
        "before_and_after_nats": Column("Of the change between the masks, nats", "+.3f"),
    }
    columns = {name: column for name, column in columns.items() if name in rows[0]}
    draw = partial(kit.head_map, value="icl_score_change_nats", signed=True)
    part = Part("Change of the in-context score", rows, columns, draw, ranked_by="icl_score_change_nats")
    best = part.first(1)[0]
    nats = with_interval(best["icl_score_change_nats"], best["low"], best["high"], "nats", 3)
    return View(
        f"**Without {best['name']} the in-context score rises most: {nats}**, {counted(n_texts, 'text')}.", [part]
    )


def continuation_view(said: Mapping[str, Continuation], following: Sequence[Mapping[str, Any]]) -> View:
    """How each side continues a prompt, and its probabilities of the likeliest next tokens, a row of `following`
    each."""
    names = {"full": "The full model", "masked": "The pruned model", "vector": "The model with the vector"}
    texts = [{"model": name, "text": found.text, "ended": found.ended} for name, found in said.items()]
    (_, full), (name, last) = [*said.items()][0], [*said.items()][-1]
    pairs = list(zip(full.token_ids.tolist(), last.token_ids.tolist(), strict=False))
    differs = next((at for at, (a, b) in enumerate(pairs, start=1) if a != b), len(pairs) + 1)
    first = following[0]
    if len(said) == 1:
        finding = f"**“{plain(visible(first['token']))}” is the likeliest next token ({percent(first['full'])}).**"
    elif last.text == full.text:
        finding = f"**{names[name]} says the same as the full model.**"
    else:
        finding = f"**{names[name]} differs from the full model from token {differs} on.**"
    rows = [{"token": f"{visible(row['token'])} ({side})", "p": row[side]}
            for row in following for side in said if side in row]  # fmt: skip
    columns = {"token": Column("Next token (model)"), "p": Column("Probability", ".1%")}
    of_texts = {"model": Column("Model"), "text": Column("Continuation")}
    draw = partial(kit.bars, y="token", x="p")
    parts = [Part("Continuation", texts, of_texts), Part("Likeliest next tokens", rows, columns, draw)]
    return View(finding, parts, on_slide=2)


def attention_view(heads: Sequence[str], pieces: Sequence[str], pattern: np.ndarray, n_left_out: int) -> View:
    """Where heads attend: `pattern` (token that looks, token looked at) is the mean of theirs. A table that is cut has
    the most attention that is on neither the first token nor the token itself."""
    shares = {
        "the first token": pattern[1:, 0],
        "the token before": np.diagonal(pattern, -1),
        "the token itself": np.diagonal(pattern)[1:],
    }
    means = {name: float(each.mean()) if len(each) else 1.0 for name, each in shares.items()}
    most, *others = sorted(means, key=lambda name: -means[name])
    rest = " and ".join(f"{percent(means[name], 0)} to {name}" for name in others)
    give = "gives" if len(heads) == 1 else "give"
    finding = f"**{listed(heads)} {give} {percent(means[most], 0)} of attention to {most}**, {rest}, on average over "
    finding += f"{counted(len(pieces), 'token')}."
    rows = [
        {"to": source, "from": destination, "looks_from": pieces[destination], "at": pieces[source],
         "attention": float(pattern[destination, source]),
         "elsewhere": float(pattern[destination, source]) if 0 < source < destination else 0.0}
        for destination, source in np.argwhere(pattern >= LEAST_SHOWN).tolist()
    ]  # fmt: skip
    columns = {
        "from": Column("Token that looks"),
        "looks_from": Column("Its text"),
        "to": Column("Token looked at"),
        "at": Column("Its text"),
        "attention": Column("Attention, mean of the heads" if len(heads) > 1 else "Attention", ".1%"),
    }
    draw = partial(kit.matrix, x="to", y="from", value="attention")
    return View(
        finding, [Part("Attention of each token", rows, columns, draw, ranked_by="elsewhere")], _left_out(n_left_out)
    )


def lens_view(names: Sequence[str], shares: Sequence[float], n_tokens: int, n_left_out: int) -> View:
    """How often the likeliest token after each layer is the next one."""
    rows = [{"after": name, "right": share} for name, share in zip(names, shares, strict=True)]
    half = next(name for name, share in zip(names, shares, strict=True) if share >= shares[-1] / 2)
    finding = f"**After the last layer {percent(shares[-1])} of the next tokens are the likeliest**, over "
    finding += f"{counted(n_tokens - 1, 'token')}; half of that is reached "
    finding += "before the first layer." if half == "start" else f"after layer {half}."
    columns = {"after": Column("After layer"), "right": Column("Next token is the likeliest", ".1%")}
    draw = partial(kit.bars, y="after", x="right")
    return View(finding, [Part("Next tokens guessed after each layer", rows, columns, draw)], _left_out(n_left_out))


def _left_out(n: int) -> list[str]:
    return [f"{counted(n, 'token')} at the end did not fit the window."] if n else []

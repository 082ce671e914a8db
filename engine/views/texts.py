"""What models make of texts: losses, heads that the in-context score needs, continuations, attention, and the lens."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.errors import HeadroomError
from engine.texts.continuation import Continuation
from engine.texts.incontext import CURVE_BINS, EARLY, LATE, loss_by_index
from engine.views.forms import kit, maps
from engine.views.importance import component_rows
from engine.views.view import Column, Part, View, interval
from engine.views.words import counted, listed, number, percent, plain, visible, with_interval

if TYPE_CHECKING:
    from engine.heads.logit_lens import LogitLens
    from engine.texts.incontext import MeanOverTexts

LEAST_SHOWN = 0.005  # the least attention that a chart shows
LOSSES = {
    "index": Column("Index"),
    "token": Column("Token"),
    "loss_full_nats": Column("Loss, nats", ".3f"),
    "loss_masked_nats": Column("Masked", ".3f"),
    "diff_nats": Column("Change", "+.3f"),
}
BAND_TEXTS = 3  # the interval of two is 13 standard errors either way: wider than any curve
FIRST = 10  # token of the curve
BY_INDEX = "Loss by token index"
GAIN_IS = f"The in-context gain, the loss at token {EARLY} minus that at token {LATE}: what more context helps."
IN_CONTEXT = {
    "model": Column("Model"),
    "nats": Column("In-context gain, nats", "+.3f"),
    **interval("+.3f"),
    "n": Column("Texts"),
}
SIDES = {"full": "loss_full_nats", "masked": "loss_masked_nats"}
SERIES = {"full": "full model", "masked": "pruned model"}
ROLES = {"full": SERIES["full"], "now": SERIES["masked"]}  # orange: in a text blue is better when pruned


def losses_view(
    rows: Sequence[Mapping[str, Any]], n_texts: int, scores: "Mapping[str, MeanOverTexts]", notes: Sequence[str]
) -> View:
    """What pruning changes the losses by, a row of `rows` for each token, and the in-context gains: the in-context
    `scores` by side with their sign reversed. The finding is on the gain if there is more than one text."""
    full, masked = (float(np.nanmean([row[field] for row in rows])) for field in SIDES.values())
    on = f"over {counted(len(rows), 'token')}" + (f" of {n_texts} texts" if n_texts > 1 else "")
    is_changed = any(abs(row["diff_nats"]) > 0 for row in rows)
    if scores and n_texts > 1:
        finding = gain_in_words(scores, is_changed)
    elif is_changed:
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
        known = [{"model": name, "nats": -found.value, "low": -found.high, "high": -found.low, "n": found.n}
                 for name, found in scores.items() if is_changed or name == "full"]  # fmt: skip
        parts.append(Part("In-context gain", known, IN_CONTEXT))
    losses = {SERIES[name]: _by_text(rows, field) for name, field in sides.items()}
    parts.append(by_index_part(losses, bool(scores)))
    return View(finding, parts, notes, on_slide=len(parts))


def _by_text(rows: Sequence[Mapping[str, Any]], field: str) -> list[np.ndarray]:
    """The losses of each text."""
    found = dict[Any, list[float]]()
    for row in rows:
        found.setdefault(row.get("text"), []).append(row[field])
    return [np.array(losses) for losses in found.values()]


def gain_in_words(scores: "Mapping[str, MeanOverTexts]", is_changed: bool) -> str:
    """Such as "**The in-context gain falls from 1.78 to −1.11 nats**: −2.89 (95% −3.61 to −2.18), 6 texts.", from the
    in-context scores of the full and the pruned model and their change."""
    of = scores["change" if is_changed else "full"]
    n, full = counted(of.n, "text"), number(-scores["full"].value)
    if not is_changed:
        within = "" if math.isnan(of.low) else f" (95% {number(-of.high)} to {number(-of.low)})"
        return f"**The in-context gain is {full} nats**{within}, {n}."
    is_clear = of.low > 0 or of.high < 0
    moves = ("falls" if of.value > 0 else "rises") if is_clear else "does not clearly change:"
    change = with_interval(-of.value, -of.high, -of.low)
    return f"**The in-context gain {moves} from {full} to {number(-scores['masked'].value)} nats**: {change}, {n}."


def by_index_part(losses: Mapping[str, Sequence[np.ndarray]], has_gain: bool) -> Part:
    """The mean loss of some texts by token index, in bins of equal width in ln(index), with intervals over texts;
    `losses` by series (SERIES). Of a text long enough, its first tokens are left out: they are few, and all noise."""
    points = list[dict[str, Any]]()
    for name, texts in losses.items():
        try:
            found = loss_by_index(texts, CURVE_BINS)
        except HeadroomError:  # of a single token, which has no loss
            continue
        columns = [np.asarray(each).tolist() for each in vars(found).values()]
        points += [{"model": name, **dict(zip(vars(found), row, strict=True))} for row in zip(*columns, strict=True)]
    points = [point for point in points if point["first"] >= FIRST] or points
    n_texts = max(map(len, losses.values()))
    band = {"low": "low", "high": "high"} if n_texts >= BAND_TEXTS else {}
    columns = {
        "index": Column("Token index (log scale)", ".0f"),
        "mean": Column("Loss, nats" if n_texts == 1 else "Mean loss, nats", ".3f"),
        **(interval(".3f") if band else {}),
        "model": Column("Model"),
    }
    draw = partial(kit.curves, x="index", y="mean", by="model", log=True, roles=ROLES, **band)
    caption = GAIN_IS if has_gain else ""
    return Part(BY_INDEX, points, columns, draw, caption)


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
    draw = partial(maps.head_map, value="icl_score_change_nats", signed=True)
    part = Part("Change of the in-context score", rows, columns, draw, ranked_by="icl_score_change_nats")
    best = part.first(1)[0]
    nats = with_interval(best["icl_score_change_nats"], best["low"], best["high"], "nats", 3)
    return View(
        f"**Without {best['name']} the in-context score rises most: {nats}**, {counted(n_texts, 'text')}.", [part]
    )


def continuation_view(continuations: Mapping[str, Continuation], following: Sequence[Mapping[str, Any]]) -> View:
    """How each side continues a prompt, and its probabilities of the likeliest next tokens, a row of `following`
    each."""
    names = {"full": "The full model", "masked": "The pruned model", "vector": "The model with the vector"}
    texts = [{"model": name, "text": each.text, "ended": each.ended} for name, each in continuations.items()]
    (_, full), (name, last) = [*continuations.items()][0], [*continuations.items()][-1]
    pairs = list(zip(full.token_ids.tolist(), last.token_ids.tolist(), strict=False))
    differs = next((at for at, (a, b) in enumerate(pairs, start=1) if a != b), len(pairs) + 1)
    first = following[0]
    if len(continuations) == 1:
        finding = f"**“{plain(visible(first['token']))}” is the likeliest next token ({percent(first['full'])}).**"
    elif last.text == full.text:
        finding = f"**{names[name]} says the same as the full model.**"
    else:
        finding = f"**{names[name]} differs from the full model from token {differs} on.**"
    rows = [{"token": f"{visible(row['token'])} ({side})", "p": row[side]}
            for row in following for side in continuations if side in row]  # fmt: skip
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
    draw = partial(maps.matrix, x="to", y="from", value="attention")
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


def token_lens_view(found: "Mapping[str, LogitLens]", token: int) -> View:
    """The guess of each side for one token of the text (from 0) after each layer, and the probability of the token."""
    rows = list[dict[str, Any]]()
    for name, lens in found.items():
        at = token + lens.first_text - 1
        columns = (lens.guess_ids[:, at, 0], lens.guess_p[:, at, 0], lens.next_p[:, at], lens.next_rank[:, at])
        for layers, (ids, p, next_p, rank) in enumerate(zip(*columns, strict=True)):
            rows.append({"layers": layers, "model": name, "p": float(next_p), "rank": int(rank),
                         "guess": visible(lens.guesses[int(ids)]), "guess_p": float(p)})  # fmt: skip
    words, (any_lens, *_) = [], found.values()
    for name in found:
        ranks = [row["rank"] for row in rows if row["model"] == name]
        last_wrong = max((layers for layers, rank in enumerate(ranks) if rank != 1), default=-1)
        if ranks[-1] != 1:
            words.append(f"in the {name} it ends at rank {ranks[-1]:,}")
        else:
            since = f"after {counted(last_wrong + 1, 'layer')}" if last_wrong >= 0 else "from the start"
            words.append(f"in the {name} it is the likeliest {since}")
    piece = plain(visible(any_lens.pieces[token + any_lens.first_text]))
    columns = {
        "layers": Column("After layer"),
        "model": Column("Model"),
        "p": Column("Probability of the token", ".1%"),
        "rank": Column("Its rank", ",d"),
        "guess": Column("Likeliest token"),
        "guess_p": Column("Its probability", ".1%"),
    }
    draw = partial(kit.curves, x="layers", y="p", by="model", roles=ROLES, share=True)
    part = Part("Probability of the token after each layer", rows, columns, draw)
    return View(f"**“{piece}”**: {'; '.join(words)}.", [part])


def _left_out(n: int) -> list[str]:
    return [f"{counted(n, 'token')} at the end did not fit the window."] if n else []

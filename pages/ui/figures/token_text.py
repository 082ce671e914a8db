"""The component for tokens: a text as text, each token tinted, with a readout next to it and the locked token, and
below that how two models write on."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from engine.heads.attention import AttendedText, HeadView
from engine.texts.continuation import Continuation
from engine.texts.tokenloss import TokenLosses
from pages.ui.page.address import MOST, nearest, unseen_field
from pages.ui.page.components import component_of
from pages.ui.page.streamlit_internals import is_back_or_forward
from pages.ui.page.widget_writes import write

HTML = """
<div class="reading">
  <div class="legend"></div>
  <div class="columns">
    <div>
      <div class="text" role="group"></div>
      <div class="landmarks"></div>
    </div>
    <div class="beside">
      <div class="readout"></div>
      <div class="written"></div>
    </div>
  </div>
  <div class="said unseen" role="status" aria-live="polite"></div>
</div>
"""
_COMPONENT = component_of("token_text", HTML, Path(__file__).parent, "token_text")
TOKENS = "tokens"
CHANGE, LOSS, ATTENTION = "change", "loss", "attention"  # what the tint is of
LOSS_NATS = 10.0  # full color of a loss; guessing among 50,000 tokens costs 10.8
PART_TOKENS = 1500  # more spans at once make a browser slow
FIRST, LEAST_GAIN_NATS = 150, 1.0  # tokens of a first screenful; how much better a repetition is predicted
KNOWN_NATS = np.log(2)  # the most loss of a token that is predicted: with a probability of a half
MOST_LOOKS, LEAST_LOOK = 24, 0.002  # sources of a token, and the least share of one
WORDS = {"a": "full", "b": "pruned", "change": "change", "better": "better when pruned", "worse": "worse"}


def token_text(
    data: Mapping[str, Any],
    view: str,
    full_nats: float,
    name: str,
    n_total: int,
    note: str,
    words: Mapping[str, str] = WORDS,
    lock: str = "",
    turn: Callable[[int], None] | None = None,
) -> None:
    """Draws the text of `component_data`, tinted by `view` (CHANGE, LOSS or ATTENTION); `words` name the two sides.

    `full_nats` is the difference that gets full color. The text is rebuilt only when other tokens are shown.
    `lock`: query parameter of the locked token, if it is kept in the address. `turn` is called with 1 or -1 when the
    keys ask for another head.
    """
    tokens = repr((name, data["start"], data["pieces"], data["ids"])).encode(errors="surrogatepass")
    key, full = hashlib.blake2b(tokens, digest_size=16).hexdigest(), full_nats if view == CHANGE else LOSS_NATS
    shown = {"view": view, "full": full, "name": name, "n_total": n_total, "note": note, "text_key": key}
    shown |= {"words": dict(words), "first_shown": first_shown(data)}
    if lock:
        shown["locked"] = {"token": token_field(lock, name), "number": _last_report("locked").get("number", 0)}
    reports: dict[str, Any] = {"on_locked_change": partial(_on_locked, lock), "on_turn_change": partial(_on_turn, turn)}
    _COMPONENT(key=TOKENS, data={**data, **shown}, **reports)


def first_shown(data: Mapping[str, Any]) -> int | None:
    """Returns the token that is shown while none is chosen, by its place in the data: of the first ones, that of which
    the loss falls most from the first occurrence of it and the token before it, whatever is pruned, one that is then
    predicted before others; without such a repetition that of the largest change, or loss. None without any."""
    a, b = (np.array(data["loss"].get(side, data["loss"]["a"])[:FIRST], np.float64) for side in ("a", "b"))
    before, best, most = dict[tuple[int, int], float](), None, (False, LEAST_GAIN_NATS)
    for at, pair in enumerate(pairwise(data["ids"][: len(a)]), 1):
        gain = before.setdefault(pair, a[at]) - a[at]
        rank = a[at] < KNOWN_NATS, gain
        if gain > LEAST_GAIN_NATS and rank > most:
            best, most = at, rank
    sizes = np.nan_to_num(np.abs(b - a) if "b" in data["loss"] else a)
    return best if best is not None else int(sizes.argmax()) if sizes.any() else None


def written_data(after: str, sides: Mapping[str, Continuation]) -> dict[str, Any]:
    """Returns the component's data of how each side, by its name, writes on `after` some words."""
    written = [
        {"who": who, "pieces": list(each.pieces), "ids": each.token_ids.tolist(),
         "p": _json_numbers(np.exp(each.log_p), 4), "note": f"It ended: {each.ended}." if each.ended else ""}
        for who, each in sides.items()
    ]  # fmt: skip
    return {"after": after, "sides": written}


def _on_locked(lock: str) -> None:
    """Writes the token locked in the browser into the address."""
    token = _last_report("locked").get("token")
    if lock:
        write(lock, "" if token is None else str(token))


def _on_turn(turn: Callable[[int], None] | None) -> None:
    by = _last_report("turn").get("by")
    if turn is not None and by in (1, -1):
        turn(by)


def _last_report(what: str) -> dict[str, Any]:
    return (st.session_state.get(TOKENS) or {}).get(what) or {}


def component_data(
    a: TokenLosses, b: TokenLosses | None, tokens: range, landmarks: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Returns the component's data of these tokens: text, losses, and likeliest tokens of one or both models."""
    losses = {"a": a} if b is None else {"a": a, "b": b}
    start, stop = tokens.start, min(tokens.stop, *map(len, losses.values()))
    shown = slice(start, stop)
    pieces = a.pieces[shown]
    strings = {**a.strings, **(b.strings if b is not None else {})}
    likely = {name: side.top_ids[shown] for name, side in losses.items()}
    seen = {int(token) for ids in likely.values() for token in np.unique(ids)}
    return {
        "start": start,
        "pieces": pieces,
        "ids": a.token_ids[shown].tolist(),
        "strings": {str(token): strings[token] for token in seen if token in strings},
        "loss": {name: _json_numbers(side.loss_nats[shown], 6) for name, side in losses.items()},
        "likely": {name: ids.tolist() for name, ids in likely.items()},
        "p": {name: _json_numbers(np.exp(side.top_log_p[shown]), 6) for name, side in losses.items()},
        "landmarks": [dict(mark) for mark in landmarks],
    }


def looks_data(heads: str, text: AttendedText, view: HeadView, tokens: range) -> dict[str, Any]:
    """Returns where `heads` look to predict each of these tokens, from the token before it: the token looked at by its
    index in the text (-1: the beginning token), the share of attention, what that adds to the token's logit in nats,
    and the text of the token looked at."""
    first, pieces, found = text.first_text, text.pieces, list[list[tuple[int, float, float, str]]]()
    for token in range(tokens.start, min(tokens.stop, len(text.ends))):
        at = token + first - 1
        row = view.pattern[at] if at >= 0 else np.zeros(0, np.float32)
        best = [int(source) for source in np.argsort(-row, kind="stable")[:MOST_LOOKS] if row[source] >= LEAST_LOOK]
        found.append([(source - first, round(float(row[source]), 3), round(float(view.raised_nats[at, source]), 2),
                       pieces[source]) for source in best])  # fmt: skip
    return {"heads": heads, "first": first, "at": found}


def _json_numbers(values: np.ndarray, decimals: int) -> list[Any]:
    """Returns rounded values, None for nan, which JSON lacks."""
    rounded = np.round(values.astype(np.float64), decimals).astype(object)
    rounded[~np.isfinite(values)] = None
    return rounded.tolist()


def token_field(key: str, of: str) -> int | None:
    """Returns the token locked in the text `of`, by its number in a component; None in a text that is new."""
    state = st.session_state
    if state.get(f"{key} of", of) != of and not is_back_or_forward():
        write(key, "")
    state[f"{key} of"] = of
    text = unseen_field("Locked token", key, lambda text: nearest(text, (0, MOST)))
    return int(text) if text else None

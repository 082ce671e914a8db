"""The Continue screen's controls, all in the address, and both models side by side."""

import re
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from engine.demo import PROMPT
from engine.models.masks import Mask
from engine.texts.continuation import MOST_TOKENS, Continuation, How, NextTokens
from pages.ui.continuation import charts
from pages.ui.continuation.said import said
from pages.ui.continuation.setting import Said
from pages.ui.controls.controls import one_of, settings_menu
from pages.ui.figures.sheet import Sheet
from pages.ui.page.address import number_field
from pages.ui.page.presentation import presenting
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.tables import plain, probability, pruned_counts, visible

SAYING = {0: "likeliest", 700: "T 0.7", 1000: "T 1"}  # permille
BLANK, PART = visible(" "), "\ufffd"  # a part of a character has this text
N_DRAWN, N_ON_SLIDE = 10, 5  # tokens of the chart
PROMPT_HELP = "The exact text that both models continue: a blank at its end is a token. It is part of the address."
SAYING_HELP = (
    "Likeliest: the token of highest probability, each time. T: sampled at this temperature (below 1, likely tokens "
    "are favored). Both models use the same noise, so the texts differ only where the predictions do."
)
SEED_HELP = "Seed of the sampling."


def choose() -> tuple[str, How, DeltaGenerator]:
    """Draws and returns the prompt, the settings of its continuation, and the menu that they are in."""
    prompt_at, settings_at = st.columns([10, 2], gap="medium", vertical_alignment="bottom")
    how_at = settings_menu(settings_at, "continue")
    bound: dict[str, Any] = {"bind": "query-params"}
    prompt = prompt_at.text_area("Prompt", PROMPT, 80, key="continue_prompt", help=PROMPT_HELP, **bound)
    permille = one_of(how_at, "Each token", SAYING, "continue_by", SAYING_HELP, width="stretch")
    tokens_at, seed_at = how_at.columns(2)
    about = "How many tokens each model generates."
    n = number_field(tokens_at, "Tokens", (1, MOST_TOKENS), "continue_tokens", value=24, step=8, help=about)
    more: dict[str, Any] = {"value": 0, "help": SEED_HELP, "disabled": not permille}
    seed = number_field(seed_at, "Seed", (0, 9999), "continue_seed", **more)
    return prompt or "", How(int(n), permille, int(seed) if permille else 0), how_at


def next_frame(found: NextTokens, said: Sequence[Continuation | None] = ()) -> pd.DataFrame:
    """Returns one row per token and model: place (by the full model), readable token, token_id, model, p, rank among
    these tokens (of equals first the one that the model `said`), and p as text."""
    tokens = [visible(text) or f"({token})" for text, token in zip(found.strings, found.token_ids, strict=True)]
    tokens = [text if tokens.count(text) == 1 else f"{text} ({token})"
              for text, token in zip(tokens, found.token_ids, strict=True)]  # fmt: skip
    parts = []
    for who, log_p, own in zip_longest(
        (charts.FULL, charts.PRUNED)[: len(found.log_p)], found.log_p, said[: len(found.log_p)]
    ):
        p = np.exp(log_p.astype(float))
        part = pd.DataFrame(
            {"place": range(len(p)), "token": tokens, "token_id": found.token_ids, "model": who, "p": p}
        )
        first = own.token_ids[0] if own is not None and len(own.token_ids) else -1
        ordered = part.assign(other=part["token_id"] != first).sort_values(["p", "other"], ascending=[False, True])
        rank = pd.Series(range(1, len(part) + 1), ordered.index)
        parts.append(part.assign(rank=rank, said=[probability(each) for each in p]))
    return pd.concat(parts, ignore_index=True)


def likeliest(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of `next_frame` of the tokens that one of the models finds likeliest, in the same order."""
    top = frame.groupby("token_id")["p"].max().nlargest(N_ON_SLIDE if presenting() else N_DRAWN).index
    return frame[frame["token_id"].isin(top)]


def finding(frame: pd.DataFrame, mask: Mask | None, said: Sequence[Continuation | None] = ()) -> str:
    """Returns how pruning changes the probability of the full model's likeliest token, and the pruned model's likeliest
    token if it is another one."""
    full, pruned = (
        frame[frame["model"].eq(who)].set_index("token_id", drop=False) for who in (charts.FULL, charts.PRUNED)
    )
    best = full.nsmallest(1, "rank").iloc[0]
    if pruned.empty or mask is None:
        return f"The full model continues with {_token_of(best['token'], said)}, {best['said']}"
    other, first = pruned.loc[best["token_id"]], pruned.nsmallest(1, "rank").iloc[0]
    now = ""
    if other["p"] < first["p"]:
        now = f"; now likeliest: {_token_of(first['token'], said)}, {first['said']}"
    return f"Without {pruned_counts(mask)}, {_token_of(best['token'], said)} {_move(best, other)}{now}"


def _move(full: pd.Series, pruned: pd.Series) -> str:
    """Returns the change of a token's probability, such as "falls from 90.0% to 2.0%"."""
    if full["said"] == pruned["said"]:
        return f"stays at {full['said']}"
    return f"{'falls' if pruned['p'] < full['p'] else 'rises'} from {full['said']} to {pruned['said']}"


def draw_finding(found: Said) -> None:
    """Draws the finding, once it is known."""
    if found.next is not None:
        said = found.full, found.pruned
        st.header(finding(next_frame(found.next, said), found.mask, said))


def draw(found: Said, prompt: str, sheet: Sheet) -> None:
    """Draws what is known so far: on the left the full model, on the right the pruned one."""
    nothing = found.mask is not None and found.mask.is_full
    frame = None if found.next is None else next_frame(found.next, (found.full, found.pruned))
    sides = {charts.FULL: found.full, charts.PRUNED: found.pruned}
    parts = _first_difference(found.full, found.pruned)
    # rows of two, so that what belongs together is on one height
    first_at, said_at, bars_at = (st.columns(2, gap="medium") for _ in range(3))
    for (who, each), above, at, below in zip(sides.items(), first_at, said_at, bars_at, strict=True):
        if who == charts.PRUNED and nothing:
            at.info("Nothing is pruned: move a slider, or type a mask.", icon=":material/info:")
            continue
        _draw_first(who, frame, above, [each])
        with at:
            _draw_said(who, each, prompt, parts)
        if frame is not None and who in set(frame["model"]):
            title = f"Next token, {who}"
            mine = frame[frame["model"].eq(who)].nsmallest(3, "rank")
            words = ", ".join(f"{row.token} {row.said}" for row in mine.itertuples())
            sheet.draw(
                title, charts.next_bars(likeliest(frame), who), f"continue_next {who}", f"{title}: {words}", below
            )


def _draw_first(who: str, frame: pd.DataFrame | None, at: DeltaGenerator, said: Iterable[Continuation | None]) -> None:
    """Draws a model's first token, large, with its probability by each model."""
    word, about = "…", "not measured yet"
    if frame is not None and who in set(frame["model"]):
        best = frame[frame["model"].eq(who)].nsmallest(1, "rank").iloc[0]
        others = frame[frame["token_id"].eq(best["token_id"]) & frame["model"].ne(who)]
        word, about = _word(best["token"], said), best["said"]
        about = about if word == _named(best["token"]) else f"“{_named(best['token'])}”, its first token: {about}"
        about += "".join(f" ({one.said} in the {one.model})" for one in others.itertuples())
    at.metric(f"{who[:1].upper()}{who[1:]}, next token", plain(word), about, delta_color="off", delta_arrow="off")


def _draw_said(who: str, each: Continuation | None, prompt: str, parts: int | None) -> None:
    """Draws a prompt and its continuation by `who`, marked from the token where it `parts` from another one."""
    data: dict[str, Any] = {"who": who[:1].upper() + who[1:], "prompt": prompt, "pieces": [], "p": [], "note": "…"}
    if each is not None:
        note = f"It ended: {each.ended}." if each.ended else ""
        p = [probability(float(np.exp(log_p))) for log_p in each.log_p]
        data |= {"pieces": list(each.pieces), "p": p, "note": note}
    said(f"continue_said {who}", data | {"parts": parts})


def _first_difference(full: Continuation | None, pruned: Continuation | None) -> int | None:
    """Returns the first token at which the two differ, or None while they agree."""
    if full is None or pruned is None:
        return None
    n = min(len(full.token_ids), len(pruned.token_ids))
    apart = np.flatnonzero(full.token_ids[:n] != pruned.token_ids[:n])
    return int(apart[0]) if len(apart) else None


def said_in_words(found: Said, prompt: str) -> list[str]:
    """Returns the prompt and each model's continuation."""
    said = [(who, each.text) for who, each in ((charts.FULL, found.full), (charts.PRUNED, found.pruned)) if each]
    return [f"After “{prompt}”", *(f"The {who}: “{text.strip()}”" for who, text in said)]


def said_frame(found: Said) -> pd.DataFrame:
    """Returns one row per generated token and model: model, index from 1, token_id, token, p."""
    parts = []
    for who, each in ((charts.FULL, found.full), (charts.PRUNED, found.pruned)):
        if each is not None:
            about = {"model": who, "index": range(1, 1 + len(each.pieces)), "token_id": each.token_ids}
            parts.append(pd.DataFrame(about | {"token": each.pieces, "p": np.exp(each.log_p.astype(float))}))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _word(token: str, said: Iterable[Continuation | None]) -> str:
    """Returns a readable token by its name, or the whole word that it begins in a continuation: "Merton" for "M"."""
    for each in said:
        if each is not None and each.pieces and visible(each.pieces[0]) == token and token[-1:].isalpha():
            rest = re.match(r"\w*", "".join(each.pieces[1:]))
            return _named(token) + (rest[0] if rest else "")
    return _named(token)


def _token_of(token: str, said: Iterable[Continuation | None]) -> str:
    """Returns a token between code marks, with the word that it begins: "`M` of Merton"."""
    if PART in token:
        return "a part of a character"
    word = _word(token, said)
    return _quoted(_named(token)) + ("" if word == _named(token) else f" of {plain(word)}")


def _named(token: str) -> str:
    """Returns a readable token without the blank before its word."""
    return token[1:] if token[:1] == BLANK and token[1:].strip(BLANK) else token


def _quoted(token: str) -> str:
    """Returns a token between code marks, whatever characters it holds."""
    if "`" not in token:
        return f"`{token}`"
    marks = "`" * (1 + max(map(len, re.findall("`+", token))))
    return f"{marks} {token} {marks}"

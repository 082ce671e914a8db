"""Heads by name, several heads combined, and their pattern as tables: one row per destination and source."""

import re
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from engine.heads.attention import Head, HeadView, Overview
from engine.heads.induction import InductionScores
from engine.heads.logit_lens import N_GUESSES, LogitLens
from engine.models.masks import Mask
from engine.texts.tokenloss import repeated_tokens
from pages.ui.page.tables import number, percent, whole_percent

WORD = re.compile(r"[^\W\d_]{4,}")  # not a title, such as Mrs
TITLE_BEFORE = re.compile(r"\b(?:Mrs?|Ms|Dr|St)\.$")
SENTENCE_ENDS, AFTER_THEM = ".!?:…\n", " \t\"'“”‘’()"
NO_LETTER = re.compile(r"[\W\d_]")
CONTEXT = 16  # characters before a word that show whether a sentence begins there
FEWEST_REPEATS = 8  # tokens
READABLE = 3  # letters from which a token is readable by itself
MAP_CELLS = 64  # along a side of the map; of a longer text several tokens share a cell


def names_of(heads: Iterable[Sequence[int]]) -> list[str]:
    """Returns names such as `L1H0`."""
    return [f"L{layer}H{head}" for layer, head in heads]


def default_heads(seen: Overview, scores: np.ndarray | None, rows: str) -> list[Head]:
    """Returns the head of the highest prefix matching, pruned or not. While that is unknown, the one that raised logits
    most on repeated tokens, compared with other tokens; if nothing repeats, or only some tokens (`rows`) can be pointed
    at, the one that raised them most on all tokens, or on those that follow `rows`."""
    raised = seen.raised_nats.astype(np.float32)
    if scores is not None and not rows:
        values = scores
    elif not rows and (repeats := repeated_tokens(seen.token_ids)).sum() >= FEWEST_REPEATS:
        values = raised[..., repeats].mean(-1) - raised[..., ~repeats].mean(-1)
    else:
        follows = np.array([False] + [not rows or piece.strip() == rows for piece in seen.pieces[:-1]])
        values = raised[..., follows].sum(-1)
    layer, head = np.unravel_index(np.nanargmax(values), values.shape)
    return [(int(layer), int(head))]


def places_to_start(seen: Overview) -> list[int]:
    """Returns the tokens that the view may open at: of each name that returns, its longest token. Without such names
    all readable tokens, [] if there are none."""
    begins, ends = np.concatenate([[0], seen.ends[:-1]]), seen.ends
    n_letters = np.array([len(NO_LETTER.sub("", piece)) for piece in seen.pieces[seen.first_text :]])
    found, before = [], set()
    for word in WORD.finditer(seen.text):
        if word[0] in before and word[0][0].isupper() and not _begins_sentence(seen.text, word.start()):
            [inside] = np.nonzero((begins < word.end()) & (ends > word.start()))
            found += inside[np.argsort(-n_letters[inside], kind="stable")][:1].tolist()
        before.add(word[0])
    readable = {*np.flatnonzero(n_letters >= READABLE).tolist()}
    return [at + seen.first_text for at in sorted(readable & {*found} or readable)]


def _begins_sentence(text: str, at: int) -> bool:
    before = text[max(0, at - CONTEXT) : at].rstrip(AFTER_THEM)
    return before[-1:] in SENTENCE_ENDS and not TITLE_BEFORE.search(
        before
    )  # "", at the beginning of the text, is in it too


def kind_in_words(heads: Sequence[Head], scores: InductionScores) -> str:
    """Returns whether these are induction heads, the finding of the screen."""
    each = ", ".join(f"**{name}**" for name in names_of(heads))
    matching = ", ".join(number(float(scores.mean["prefix_matching"][head])) for head in heads)
    if all(bool(scores.is_induction_head[head]) for head in heads):
        return f"{each}: attention to what followed an earlier copy (induction; prefix matching {matching})."
    return f"{each}: prefix matching {matching}."


def pruned_in_words(heads: Sequence[Head], mask: Mask) -> str:
    """Returns which of these heads are pruned and what that means here, or ""."""
    gone = names_of([(layer, head) for layer, head in heads if not mask.heads[layer][head]])
    return f"Pruned, so that it adds nothing: **{', '.join(gone)}**." if gone else ""


def combined(views: Sequence[HeadView]) -> HeadView:
    """Returns several heads as one: the mean of their patterns, the sum of the logits they raised."""
    pattern = np.stack([view.pattern for view in views]).mean(0, dtype=np.float32)
    return HeadView(pattern, np.stack([view.raised_nats for view in views]).sum(0, dtype=np.float32))


def pattern_rows(seen: Overview, view: HeadView) -> pd.DataFrame:
    """destination, source (1 = the text's first token, 0 = BOS), their texts, the token that came after the
    destination, attention and raised_nats (of that next token's logit); only where one of the two is not 0."""
    destination, source = np.nonzero((view.pattern != 0) | (view.raised_nats != 0))
    pieces = np.array([*seen.pieces, ""], object)
    return pd.DataFrame(
        {
            "destination": destination + 1 - seen.first_text,
            "source": source + 1 - seen.first_text,
            "destination_token": pieces[destination],
            "source_token": pieces[source],
            "next_token": pieces[destination + 1],
            "attention": view.pattern[destination, source],
            "raised_nats": view.raised_nats[destination, source],
        }
    )


def map_cells(seen: Overview, view: HeadView) -> pd.DataFrame:
    """Returns rows for `charts.pattern_map`: destination, source (first token of the cell), until, tokens, attention.

    In a text of more than 64 tokens, each cell is the largest attention of a square of tokens.
    """
    n = len(view.pattern)
    width = -(-n // MAP_CELLS)
    side = -(-n // width)
    padded = np.zeros((side * width, side * width), np.float32)
    padded[:n, :n] = view.pattern
    largest = padded.reshape(side, width, side, width).max((1, 3))
    pieces, first = seen.pieces, 1 - seen.first_text
    names = ["".join(pieces[cell * width : (cell + 1) * width]) for cell in range(side)]
    destination, source = np.tril_indices(side)
    return pd.DataFrame(
        {
            "destination": destination * width + first,
            "destination_until": (destination + 1) * width + first,
            "source": source * width + first,
            "source_until": (source + 1) * width + first,
            "from": [names[cell] for cell in destination],
            "to": [names[cell] for cell in source],
            "attention": largest[destination, source],
        }
    )


def lens_rows(found: LogitLens) -> pd.DataFrame:
    """Returns one row for each layer and token: the layer that it comes `after`, `index` and text of the `token` and of
    the `next` one ("" after the last), the likeliest `guess` with its probability, all `guesses` in words, and the
    probability and rank of the next token."""
    layers, n = found.next_p.shape
    texts, pieces = {token: shown_token(text) for token, text in found.guesses.items()}, found.pieces
    likeliest = zip(found.guess_ids.reshape(-1, N_GUESSES).tolist(), found.guess_p.reshape(-1, N_GUESSES), strict=True)
    columns = {
        "after": np.repeat(found.names, n),
        "index": np.tile(np.arange(n), layers),
        "token": [shown_token(each) for each in pieces] * layers,
        "next": [*(shown_token(each) for each in pieces[1:]), ""] * layers,
        "guess": [texts[token] for token in found.guess_ids[..., 0].ravel().tolist()],
        "guess_p": found.guess_p[..., 0].ravel(),
        "guesses": [", ".join(f"{texts[token]} {percent(float(p))}" for token, p in zip(ids, each, strict=True))
                    for ids, each in likeliest],
        "next_p": found.next_p.ravel(),
        "next_rank": found.next_rank.ravel(),
    }  # fmt: skip
    return pd.DataFrame(columns)


def lens_in_words(found: LogitLens) -> str:
    """Returns for how many tokens the model's guess is the next one, and after which layer half of these are there."""
    right = found.next_rank[:, :-1] == 1
    words = f"The model's guess is the next token for **{whole_percent(float(right[-1].mean()))}** of tokens"
    if not right[-1].any():
        return f"{words}."
    share = right[:, right[-1]].mean(1)
    at = found.names[int(np.argmax(share >= 0.5))]
    return f"{words}; half of these it has {'before any layer' if at == 'start' else f'after layer {at}'}."


def lens_of_token_in_words(rows: pd.DataFrame) -> str:
    """Returns after which layer the next token becomes the likeliest for good, of one token's `lens_rows`."""
    first, ranks = rows.iloc[0], rows["next_rank"].to_numpy()
    words = f"After “{first['token']}”, “{first['next']}” follows"
    if ranks[-1] != 1:
        return f"{words}; it ends at rank **{ranks[-1]:,}**, with {percent(float(rows['next_p'].iloc[-1]))}."
    since = len(ranks) - int(np.argmax(ranks[::-1] != 1)) if (ranks != 1).any() else 0
    at = rows["after"].iloc[since]
    when = "from the start" if at == "start" else f"from layer {at} on"
    return f"{words}: the likeliest **{when}**, in the end with {percent(float(rows['next_p'].iloc[-1]))}."


def shown_token(text: str) -> str:
    """Returns a token as a cell shows it: without blanks around it, and a line break as a sign."""
    return text.strip(" ").replace("\n", "⏎") or "␣"


def in_words(seen: Overview, view: HeadView, names: Sequence[str]) -> str:
    """Returns the pattern as a sentence, for screen readers."""
    n = len(view.pattern)
    to_first = float(view.pattern[1:, 0].mean())
    before = float(view.pattern[np.arange(1, n), np.arange(n - 1)].mean())
    total = float(view.raised_nats.sum()) / (n - 1)
    goes = f"{whole_percent(to_first)} of the attention goes to the first of them, {whole_percent(before)} to the token"
    raised = f"a token's logit is raised by {number(total, sign=True)} nats on average."
    return f"{', '.join(names)} on {n:,} tokens: {goes} just before; {raised}"

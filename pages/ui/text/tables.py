"""The losses of a text by two models as tables and sentences: nats, one row per token."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from engine.demo import Landmark
from engine.texts.tokenloss import TokenLosses, repeated_tokens, same_tokens
from engine.views.pictures import Picture
from engine.views.text_picture import text_picture
from engine.views.view import Column, Part
from pages.ui.figures.token_text import LOSS_NATS, PART_TOKENS
from pages.ui.page.tables import number, percent, visible, whole_percent

ALIKE_NATS = 0.1  # a probability that is 10% larger or smaller
FEWEST_REPEATS = 3  # tokens
MOST_WORD = 30  # characters
FULL_NATS = 4  # where the color of a change is full
N_HARDEST = 2  # words that are named
HARDLY, MANY = 1.05, 10  # times: nearly alike; from here on without decimals
LIKELY_HELP = "“times” is the ratio of the two."
REPEATS_HELP = " Repetitions: tokens that came after the same token earlier in the text."


def token_frame(full: TokenLosses, pruned: TokenLosses | None) -> pd.DataFrame:
    """Returns one row per token that has been read so far, by both if there are two; `token` shows blanks."""
    n = min(len(full), len(pruned or full))
    frame = pd.DataFrame({"index": np.arange(1, n + 1), "token": [visible(piece) for piece in full.pieces[:n]]})
    frame = frame.assign(token_id=full.token_ids[:n], end_character=full.ends[:n])
    frame = frame.assign(loss_full_nats=full.loss_nats[:n])
    if pruned is None:
        return frame.assign(rank_full=full.rank[:n])
    frame = frame.assign(loss_pruned_nats=pruned.loss_nats[:n])
    frame = frame.assign(change_nats=frame["loss_pruned_nats"] - frame["loss_full_nats"])
    return frame.assign(rank_full=full.rank[:n], rank_pruned=pruned.rank[:n])


def words_of(full: TokenLosses) -> list[str]:
    """Returns the word that each token is in, or begins, without the punctuation around it; "" for blanks, and if it is
    long, as a text without blanks."""
    spans = [match.span() for match in re.finditer(r"\S+", full.text)]
    begins, ends = np.array([*spans, (len(full.text), len(full.text) + 1)]).T
    first = np.searchsorted(ends, np.concatenate([[0], full.ends[:-1]]), side="right")
    is_in = (begins[first] < full.ends) & (ends[first] - begins[first] <= MOST_WORD)
    words = (full.text[begins[k] : ends[k]] if is_one else "" for k, is_one in zip(first, is_in, strict=True))
    return [_stripped(word) for word in words]


def _stripped(word: str) -> str:
    return re.sub(r"^\W+|\W+$", "", word)


def hardest_words(full: TokenLosses, pruned: TokenLosses) -> str:
    """Returns the words whose losses rise most from the full to the pruned model, in all, of those that get full color,
    such as "Hardest hit: Pettigrove (6 times, +21.9 nats each)."; "" without any."""
    rise = dict[str, float]()
    changes = np.nan_to_num(pruned.loss_nats - full.loss_nats)
    for word, piece, change in zip(words_of(full), full.pieces, changes, strict=True):
        if word and re.search(r"\w", piece):
            rise[word] = rise.get(word, 0) + float(change)
    times = Counter(_stripped(word) for word in full.text.split())
    means = {word: nats / times[word] for word, nats in rise.items() if nats >= FULL_NATS * times[word]}
    hardest = [
        f"{word} ({times[word]} times, +{means[word]:.1f} nats each)"
        if times[word] > 1
        else f"{word} (+{means[word]:.1f} nats)"
        for word in sorted(means, key=lambda word: -rise[word])[:N_HARDEST]
    ]
    return f"Hardest hit: {', '.join(hardest)}." if hardest else ""


def tinted_text(frame: pd.DataFrame, full: TokenLosses) -> Picture:
    """Returns the text with its tints as a picture; `frame` of `token_frame`."""
    rows: list[Any] = frame.assign(piece=full.pieces[: len(frame)]).to_dict("records")
    columns = {"token": Column("Token"), "loss_full_nats": Column("Loss, nats", ".3f")}
    tints: dict[str, Any] = {"value": "loss_full_nats", "full": LOSS_NATS, "signs": ("loss of the full model",)}
    if "change_nats" in frame:
        columns |= {"loss_pruned_nats": Column("Pruned, nats", ".3f"), "change_nats": Column("Change, nats", "+.3f")}
        tints = {"value": "change_nats", "full": FULL_NATS, "signs": ("better when pruned", "worse")}
    return text_picture(Part("Text", rows, columns), **tints)


def extended(pruned: TokenLosses, full: TokenLosses) -> TokenLosses:
    """Returns the pruned model's losses, as long as the full one's, nan for tokens it has not reached; HeadroomError if
    their tokens differ."""
    same_tokens(full, pruned)
    more = len(full) - len(pruned)
    if more <= 0:
        return pruned

    def longer(array: np.ndarray, fill: float = 0) -> np.ndarray:
        return np.concatenate([array, np.full((more, *array.shape[1:]), fill, array.dtype)])

    read = {"token_ids": full.token_ids, "ends": full.ends, "rank": longer(pruned.rank)}
    read |= {"top_ids": longer(pruned.top_ids), "top_log_p": longer(pruned.top_log_p, np.nan)}
    return replace(pruned, **read, loss_nats=longer(pruned.loss_nats, np.nan))


def n_parts(n_total: int) -> int:
    """Returns the number of parts in which a text of `n_total` tokens is shown."""
    return max(1, -(-n_total // PART_TOKENS))


def part_range(part: int, n_total: int) -> range:
    """Returns the tokens of part 1, 2, …"""
    return range((part - 1) * PART_TOKENS, min(n_total, part * PART_TOKENS))


def means(full: TokenLosses, pruned: TokenLosses) -> tuple[float, float, int]:
    """Returns (mean loss of both, number of tokens) over the tokens that both have read and that have a loss."""
    n = min(len(full), len(pruned))
    has = np.isfinite(full.loss_nats[:n]) & np.isfinite(pruned.loss_nats[:n])
    if not has.any():
        return float("nan"), float("nan"), 0
    return float(full.loss_nats[:n][has].mean()), float(pruned.loss_nats[:n][has].mean()), int(has.sum())


def landmarks_of(full: TokenLosses, pruned: TokenLosses | None, landmarks: Sequence[Landmark]) -> list[dict[str, Any]]:
    """Returns the landmarks that have been read: tokens `first` to `last`, summed losses in nats, and their meaning."""
    n = min(len(full), len(pruned or full))
    ends = full.ends[:n]
    starts = np.concatenate([[0], ends[:-1]])
    rows = []
    for begin, landmark in sorted((landmark.start(full.text), landmark) for landmark in landmarks):
        inside = np.flatnonzero((starts < begin + len(landmark.text)) & (ends > begin))
        if not len(inside) or ends[-1] < begin + len(landmark.text):
            continue
        loss = float(np.nansum(full.loss_nats[inside]))
        row = {"first": int(inside[0]), "last": int(inside[-1]), "loss_full": loss}
        row |= {"text": landmark.text.strip(), "about": landmark.about, "measured": f"The model gives it {_p(loss)}."}
        if pruned is not None and not np.isnan(pruned.loss_nats[inside]).all():
            row["loss_pruned"] = other = float(np.nansum(pruned.loss_nats[inside]))
            whole = f" for its {len(inside)} tokens together" if len(inside) > 1 else ""
            row["measured"] = _measured_in_words(loss, other, whole)
        rows.append(row)
    return rows


def _measured_in_words(full: float, pruned: float, whole: str) -> str:
    """Describes two losses in nats of a place: its probability in each model, and whether they differ; `whole` says of
    what the nats are the sum."""
    words, change = f"The full model gives it {_p(full)}, the pruned one {_p(pruned)}", number(pruned - full, sign=True)
    if abs(pruned - full) < ALIKE_NATS:
        return f"{words}: about alike ({change} nats{whole})."
    return f"{words}: {'worse' if pruned > full else 'better'} ({change} nats{whole})."


def _p(loss_nats: float) -> str:
    return probability(float(np.exp(-loss_nats)))


def losses_finding(full: TokenLosses, pruned: TokenLosses | None, without: str) -> tuple[str, str]:
    """Returns the mean loss, or what it does from the full to the pruned model, naming repetitions if these are mainly
    predicted worse; and help on that. `without` is what is pruned, "" if that is not all that the two differ in."""
    mean, other, n = means(full, pruned or full)
    if not n:
        return "No token has a loss, as nothing precedes it", "Take a longer text, or begin it with BOS."
    help = f"Over {n:,} tokens. Loss: −ln of the probability. Average: the geometric mean of the probabilities. "
    help += f"Perplexity, the exponential of the mean loss: {np.exp(mean):,.1f}"
    help += "." if pruned is None else f", pruned {np.exp(other):,.1f}; {LIKELY_HELP}"
    if full.n_total > full.window:
        help += f" Read in windows of {full.window:,} tokens, a new one every {full.stride:,}."
    if pruned is None:
        return f"**The right token gets {_p(mean)} on average** (mean loss {number(mean)} nats)", help
    words = f"Without {without}, " if without else "From A to B, "
    if number(mean) == number(other):
        return f"**{words}the mean loss stays at {number(mean)} nats a token**", help
    factor = np.exp(abs(other - mean))
    from_to = f"mean loss {number(mean)} to {number(other)} nats"
    if factor < HARDLY:
        return f"**{words}hardly anything changes** ({from_to})", help
    share = _share_of_repeats(full, pruned) if other > mean else None
    if share is not None:
        from_to += f", **{whole_percent(share)} of the rise on repetitions**"
        help += REPEATS_HELP
    times = f"{_factor(factor)} times {'less' if other > mean else 'more'} likely"
    return f"**{words}the right token is {times}** ({from_to})", help


def _factor(value: float) -> str:
    return number(value, 2) if value < 2 else number(value, 1) if value < MANY else f"{value:,.0f}"


def _share_of_repeats(full: TokenLosses, pruned: TokenLosses) -> float | None:
    """Returns the share of the rise of the loss that repetitions hold; None if they or others are few."""
    n = min(len(full), len(pruned))
    rise = (pruned.loss_nats[:n] - full.loss_nats[:n]).astype(np.float64)
    has, repeats = np.isfinite(rise), repeated_tokens(full.token_ids[:n])
    on, off = rise[has & repeats], rise[has & ~repeats]
    if min(len(on), len(off)) < FEWEST_REPEATS:
        return None
    return float(np.clip(on.sum() / (on.sum() + off.sum()), 0, 1))


def probability(p: float) -> str:
    """Such as "4.0%" or "0.03%"; "< 0.0001%" where it is less."""
    if p < 1e-6:
        return "< 0.0001%"
    return percent(p) if p >= 0.001 else f"{float(f'{100 * p:.1g}'):.4f}".rstrip("0") + "%"

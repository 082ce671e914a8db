"""Two readings of a text as tables and sentences: nats, one row per token."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from engine.demo import Landmark
from engine.texts.tokenloss import TokenLosses, repeated_tokens, same_tokens
from pages.ui.figures.token_text import PART_TOKENS
from pages.ui.page.tables import number, probability, visible, whole_percent

CONTEXT_CHARACTERS = 32
N_LARGEST = 10
ALIKE_NATS = 0.1  # a probability that is 10% larger or smaller
FEWEST_REPEATS = 8  # tokens
MAIN_SHARE, MAIN_FACTOR = 0.5, 2.0  # repetitions are named if they hold this of the rise, and rise by this factor more
REPEATS_HELP = "A repetition: a token that followed the same token earlier in the text. These hold {} of the rise."
VIEWS = ("B − A", "A", "B")


def token_frame(a: TokenLosses, b: TokenLosses) -> pd.DataFrame:
    """Returns one row per token that both have read so far; `token` shows blanks, `difference_nats` is B - A."""
    n = min(len(a), len(b))
    frame = pd.DataFrame({"index": np.arange(1, n + 1), "token": [visible(piece) for piece in a.pieces[:n]]})
    frame = frame.assign(token_id=a.token_ids[:n], end_character=a.ends[:n])
    frame = frame.assign(loss_a_nats=a.loss_nats[:n], loss_b_nats=b.loss_nats[:n])
    frame = frame.assign(difference_nats=frame["loss_b_nats"] - frame["loss_a_nats"])
    return frame.assign(rank_a=a.rank[:n], rank_b=b.rank[:n])


def largest(frame: pd.DataFrame, text: str, gains: bool) -> pd.DataFrame:
    """Returns the ten tokens whose loss fell (gains) or rose most, with the text just before them."""
    found = frame.query("difference_nats < 0" if gains else "difference_nats > 0")
    found = found.sort_values(by="difference_nats", ascending=gains, kind="stable").head(N_LARGEST)
    starts = frame["end_character"].shift(fill_value=0)[found.index]
    context = [visible(text[max(0, start - CONTEXT_CHARACTERS) : start]).replace("␣", " ") for start in starts]
    return found.assign(context=context)


def extended(b: TokenLosses, a: TokenLosses) -> TokenLosses:
    """Returns B extended to A's length, nan for tokens it has not reached; HeadroomError if their tokens differ."""
    if b is a:
        return a
    same_tokens(a, b)
    more = len(a) - len(b)
    if more <= 0:
        return b

    def longer(array: np.ndarray, fill: float = 0) -> np.ndarray:
        return np.concatenate([array, np.full((more, *array.shape[1:]), fill, array.dtype)])

    read = {"token_ids": a.token_ids, "ends": a.ends, "rank": longer(b.rank), "top_ids": longer(b.top_ids)}
    return replace(b, **read, loss_nats=longer(b.loss_nats, np.nan), top_log_p=longer(b.top_log_p, np.nan))


def unread(a: TokenLosses) -> TokenLosses:
    """Returns the losses of a model that has read none of A's tokens: nan."""
    return replace(a, loss_nats=np.full_like(a.loss_nats, np.nan))


def n_parts(n_total: int) -> int:
    """Returns the number of parts in which a text of `n_total` tokens is shown."""
    return max(1, -(-n_total // PART_TOKENS))


def part_range(part: int, n_total: int) -> range:
    """Returns the tokens of part 1, 2, …"""
    return range((part - 1) * PART_TOKENS, min(n_total, part * PART_TOKENS))


def means(a: TokenLosses, b: TokenLosses) -> tuple[float, float, int]:
    """Returns (mean loss of A, of B, number of tokens) over the tokens that both have read and that have a loss."""
    n = min(len(a), len(b))
    has = np.isfinite(a.loss_nats[:n]) & np.isfinite(b.loss_nats[:n])
    if not has.any():
        return float("nan"), float("nan"), 0
    return float(a.loss_nats[:n][has].mean()), float(b.loss_nats[:n][has].mean()), int(has.sum())


def landmarks_of(a: TokenLosses, b: TokenLosses, landmarks: Sequence[Landmark]) -> list[dict[str, Any]]:
    """Returns the landmarks that both have read: tokens `first` to `last`, summed losses in nats, and their meaning."""
    n = min(len(a), len(b))
    ends = a.ends[:n]
    starts = np.concatenate([[0], ends[:-1]])
    found = []
    places = sorted((landmark.start(a.text), landmark) for landmark in landmarks)
    for mark, (begin, landmark) in enumerate(places, 1):
        inside = np.flatnonzero((starts < begin + len(landmark.text)) & (ends > begin))
        if not len(inside) or ends[-1] < begin + len(landmark.text):
            continue
        losses = [float(np.nansum(side.loss_nats[inside])) for side in (a, b)]
        tokens = {"mark": mark, "first": int(inside[0]), "last": int(inside[-1])}
        said = {"text": landmark.text.strip(), "about": landmark.about}
        if b is a or np.isnan(b.loss_nats[inside]).all():  # alone, or what B predicts is not known yet
            said["measured"] = f"{'The model' if b is a else 'A'} gives it {_p(losses[0])}."
        else:
            whole = f" for its {len(inside)} tokens together" if len(inside) > 1 else ""
            said["measured"] = measured_in_words(losses[0], losses[1], whole)
        found.append({**tokens, **said, "loss_a": losses[0], "loss_b": losses[1]})
    return found


def measured_in_words(loss_a: float, loss_b: float, whole: str = "") -> str:
    """Describes two losses in nats of a place: its probability in each model, and whether they differ; `whole` says of
    what the nats are the sum."""
    words, change = f"A gives it {_p(loss_a)}, B {_p(loss_b)}", number(loss_b - loss_a, sign=True)
    if abs(loss_b - loss_a) < ALIKE_NATS:
        return f"{words}: about alike ({change} nats{whole})."
    return f"{words}: B predicts it {'worse' if loss_b > loss_a else 'better'} ({change} nats{whole})."


def _p(loss_nats: float) -> str:
    return probability(float(np.exp(-loss_nats)))


def finding(a: TokenLosses, b: TokenLosses, without: str) -> tuple[str, str | None]:
    """Returns what the mean loss does from A to B, naming repetitions if these are mainly predicted worse, and help on
    that; "" if no token has a loss. `without` is what B lacks, "" if that is not all that A and B differ in."""
    mean_a, mean_b, n = means(a, b)
    if not n:
        return "", None
    said_a, said_b, help = number(mean_a), number(mean_b), None
    words = f"Without {without}, " if without else "From A to B, "
    if said_a == said_b:
        words += f"the mean loss stays at {said_a} nats"
    else:
        share = _share_of_repeats(a, b) if mean_b > mean_a else None
        if share is not None:
            words += "mainly repetitions get harder to predict: "
            help = REPEATS_HELP.format(whole_percent(share))
        words += f"the mean loss {'rises' if mean_b > mean_a else 'falls'} from {said_a} to {said_b} nats"
    return f"**{words}**", help


def _share_of_repeats(a: TokenLosses, b: TokenLosses) -> float | None:
    """Returns the share of the rise of the loss that repetitions hold; None if they are few or hold no more than
    others."""
    n = min(len(a), len(b))
    rise = (b.loss_nats[:n] - a.loss_nats[:n]).astype(np.float64)
    has, repeats = np.isfinite(rise), repeated_tokens(a.token_ids[:n])
    on, off = rise[has & repeats], rise[has & ~repeats]
    if len(on) < FEWEST_REPEATS or not len(off):
        return None
    share = float(on.sum() / (on.sum() + off.sum()))
    return min(share, 1.0) if share > MAIN_SHARE and on.mean() >= MAIN_FACTOR * off.mean() else None


def summary(a: TokenLosses, b: TokenLosses | None = None) -> tuple[str, str]:
    """Returns text such as "Mean loss of A 5.090, of B 6.312 nats, change +1.222, over 304 tokens.", and the
    perplexities; `b` is None if B is A."""
    mean_a, mean_b, n = means(a, b or a)
    if not n:
        return "Mean loss: no token has one, as nothing precedes it", "Take a longer text, or begin it with BOS."
    words, help = f"Mean loss of A **{mean_a:.3f}**", f"A {np.exp(mean_a):,.1f}"
    if b is not None:
        words += f", of B **{mean_b:.3f}** nats, change **{number(mean_b - mean_a, 3, sign=True)}**"
        help += f", B {np.exp(mean_b):,.1f}"
    else:
        words += " nats"
    words += f", over {n:,} tokens."
    if a.n_total > a.window:
        words += f" Read in windows of {a.window:,} tokens, a new one every {a.stride:,}."
    return words, f"Of all tokens that have a loss. Perplexity, the exponential of the mean: {help}."


def in_words(frame: pd.DataFrame) -> str:
    """Returns the differences along a text as a sentence, for screen readers."""
    difference = frame["difference_nats"].to_numpy()
    if not np.isfinite(difference).any():
        return "No token has two losses yet."
    most = []
    for at in (int(np.nanargmax(difference)), int(np.nanargmin(difference))):
        most.append(f"token {at + 1}, {frame['token'].iat[at]}, by {number(difference[at], 3, sign=True)} nats")
    n_worse, n = int((difference > 0).sum()), int(np.isfinite(difference).sum())
    return f"B is worse on {n_worse} of {n} tokens; most on {most[0]}; least on {most[1]}."

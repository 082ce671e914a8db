"""In-context learning as tables and sentences: the data of the charts and files of the In context screen."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from engine.heads.ablation import KINDS, HeadAblations
from engine.heads.induction import InductionScores
from engine.importance.rankings import agreement
from engine.models.masks import Mask
from engine.shapes import ModelShape
from engine.statistics import over_texts
from engine.texts.incontext import (
    CURVE_BINS,
    EARLY,
    LATE,
    ByIndex,
    MeanOverTexts,
    loss_by_index,
    mean_of,
    scores,
    slope,
)
from pages.ui.in_context.setting import Losses, LossesSoFar
from pages.ui.page.tables import number, p_in_words, pruned_counts, to_csv

INDUCTION = ("prefix_matching", "copying")
FULL, PRUNED = "full model", "pruned model"
N_NEEDED = 3  # heads that the sentence names
CLEAR_SHARE = 0.1  # of the largest change, from which that of a head is named
COLUMNS = ["series", "index", "first", "last", "mean", "low", "high", "n"]


def curves(losses: Mapping[str, Sequence[np.ndarray]], bins: int | None = CURVE_BINS) -> pd.DataFrame:
    """Returns loss by index: COLUMNS, one row for each series and point."""
    return _stacked({name: loss_by_index(texts, bins) for name, texts in losses.items() if texts})


def with_ends(frame: pd.DataFrame, losses: Mapping[str, Sequence[np.ndarray]], around: int) -> pd.DataFrame:
    """Returns the `curves`, and on them (`is_end`) the two points whose difference is the gain."""
    found = [frame.assign(is_end=False)]
    for name, texts in losses.items():
        for index in (EARLY, LATE):
            first, last = index - around, index + around
            of = mean_of(np.array([np.mean(text[first - 1 : last], dtype=float) for text in texts])) if texts else None
            if of is not None:
                row = {"series": name, "index": index, "first": first, "last": last, "mean": of.value}
                found.append(pd.DataFrame([row | {"low": of.low, "high": of.high, "n": of.n, "is_end": True}]))
    return pd.concat(found, ignore_index=True).sort_values("index", kind="stable")


def slopes(losses: Mapping[str, Sequence[np.ndarray]]) -> pd.DataFrame:
    """Returns d loss / d ln(index): COLUMNS, one row for each series and point."""
    return _stacked({name: slope(texts) for name, texts in losses.items() if texts})


def scores_csv(found: LossesSoFar, texts: Sequence[str], around: int) -> bytes:
    """Returns a table of one row per text: the text, its tokens and its score with both models, in nats."""
    frame = pd.DataFrame({"text": texts[: len(found.full)], "tokens": [len(losses) for losses in found.full]})
    for name, losses in ((FULL, found.full), (PRUNED, found.pruned)):
        frame[f"{name}, nats"] = pd.Series(scores(losses, around) if losses else [], dtype=float)
    return to_csv(frame)


def head_frame(
    shape: ModelShape,
    found: Mapping[str, HeadAblations],
    losses: LossesSoFar,
    kind: str,
    around: int,
    induction: InductionScores | None,
) -> pd.DataFrame:
    """Returns one row per head: layer, head, name, pruned; by each kind of ablation the change of the score without it
    (nats) with its interval, over n texts; the before-and-after vector by `kind` where pruning changes some of the
    `losses` and both models have read all these texts; prefix matching and copying where they are known."""
    layer, head = np.divmod(np.arange(shape.n_heads_total), shape.n_heads)
    frame = pd.DataFrame({"layer": layer, "head": head, "name": shape.head_names})
    frame["pruned"] = False if losses.mask is None else ~np.array(losses.mask.heads).ravel()
    for name, attribution in found.items():
        without, plain = scores(attribution.ablated, around), scores(attribution.base, around)
        values = over_texts(without - plain[:, None, None])
        for column, value in zip((name, f"{name} low", f"{name} high"), values, strict=True):
            frame[column] = value.ravel()
        is_small = frame[name].abs() < CLEAR_SHARE * frame[name].abs().max()
        frame[f"{name} clear"] = ~is_small & ((frame[f"{name} low"] > 0) | (frame[f"{name} high"] < 0))
    n, difference = len(found[kind].base), [after - before for before, after in zip(*losses.in_both, strict=True)]
    frame["n"] = n
    if len(difference) >= n and any(np.any(change) for change in difference[:n]):
        frame["before_and_after"] = found[kind].before_and_after(difference[:n]).ravel()
    if induction is not None:
        frame["prefix_matching"], frame["copying"] = (induction.mean[name].ravel() for name in INDUCTION)
    return frame


def gain(score: MeanOverTexts) -> MeanOverTexts:
    """Returns the in-context gain: the score with its sign reversed, so that more is better."""
    return MeanOverTexts(-score.value, -score.high, -score.low, score.n)


def interval_in_words(found: MeanOverTexts, of: str = "") -> str:
    """Returns text such as "95% interval +0.63 to +4.08, 24 texts"; `of` what the interval is."""
    count = f"{found.n} text{'s' * (found.n > 1)}"
    if np.isnan(found.low):
        return f"{count}, so no interval"
    return f"95% interval{of} {number(found.low, sign=True)} to {number(found.high, sign=True)}, {count}"


def is_clear(found: MeanOverTexts) -> bool:
    """Returns whether there is an interval, and 0 is not in it."""
    return found.low > 0 or found.high < 0


def mean_losses_in_words(full: Losses, pruned: Losses) -> str:
    """Returns the mean loss of both models over all tokens of these texts."""
    before, after = (float(np.nanmean(np.concatenate(losses))) for losses in (full, pruned))
    return f"Mean loss of all tokens: **{number(after)}**, full model {number(before)}."


def finding(full: MeanOverTexts, pruned: MeanOverTexts | None, change: MeanOverTexts | None, what: str) -> str:
    """Returns the finding from in-context gains: whether later tokens are predicted better, and what is left of that
    without the pruned parts, `what`; `change` is that of the gain. None: nothing is pruned."""
    if pruned is None or change is None:
        value = f"{number(abs(full.value))} nats {'better' if full.value >= 0 else 'worse'}"
        return f"Late tokens are predicted **{value}** than early ones ({interval_in_words(full)})."
    verb = "falls" if change.value < 0 else "rises"
    moves = f"{verb if is_clear(change) else 'does not clearly change:'} from {number(full.value)}"
    interval = interval_in_words(change, " of the change")
    return f"**Without {what}, the in-context gain {moves} to {number(pruned.value)} nats** ({interval})."


def pruned_in_words(mask: Mask, known: InductionScores | None) -> str:
    """Returns what is pruned, such as "4 induction heads", or "5 heads and 1 FFN"."""
    words, pruned = pruned_counts(mask), ~np.array(mask.heads)
    is_clear = known is not None and (known.is_induction_head & ~known.copies_hardly)[pruned].all()
    return words.replace("head", "induction head", 1) if mask.n_heads_pruned and is_clear else words


def heads_in_words(frame: pd.DataFrame) -> str:
    """Returns the heads of which each, removed alone, clearly lowers the gain."""
    names = _needed(frame)["name"].tolist()
    if not names:
        return "Without any one head, no gain is clearly lost: others do the same, or more texts are needed."
    more = f" and {len(names) - N_NEEDED} more" if len(names) > N_NEEDED else ""
    return f"Removed one at a time, gain is clearly lost without **{', '.join(names[:N_NEEDED])}**{more}."


def _needed(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the heads without which gain is clearly lost, the most first."""
    full = KINDS[0]
    return frame[frame[f"{full} clear"] & (frame[full] > 0)].sort_values(full, ascending=False)


def curve_in_words(frame: pd.DataFrame) -> str:
    """Returns the curves as a sentence, for screen readers."""
    lines = []
    for series, rows in frame.groupby("series", sort=False):
        low, high = rows.iloc[0], rows.iloc[-1]
        begins = f"{series}: {low['mean']:.2f} nats at token {low['index']:.0f}"
        lines.append(f"{begins}, {high['mean']:.2f} around token {high['index']:.0f}")
    return "Loss by token index. " + "; ".join(lines) + "."


def slope_in_words(frame: pd.DataFrame) -> str:
    """Returns the slopes as a sentence."""
    lines = []
    for series, rows in frame.groupby("series", sort=False):
        last = rows.iloc[-1]
        lines.append(f"{series}: {number(last['mean'])} nats for each factor of e around token {last['index']:.0f}")
    return "Slope of the loss. " + "; ".join(lines) + "."


def map_in_words(frame: pd.DataFrame, column: str) -> str:
    """Describes the heads with the largest values of a column, with their signs."""
    largest = frame.reindex(frame[column].abs().sort_values(ascending=False).index).head(3)
    named = [f"{name} {number(value, sign=True)}" for name, value in zip(largest["name"], largest[column], strict=True)]
    return f"Largest: {', '.join(named)} nats."


def scatter_in_words(frame: pd.DataFrame, column: str) -> str:
    """Describes whether the heads that match prefixes are those that matter: Spearman's rank correlation."""
    found = agreement({name: frame[name].to_numpy() for name in ("prefix_matching", column)})
    srcc, p = float(found.srcc[0, 1]), float(found.p[0, 1])
    return f"Rank correlation of the two: {number(srcc, sign=True)} ({p_in_words(p)}, {len(frame):,} heads)."


def _stacked(found: Mapping[str, ByIndex]) -> pd.DataFrame:
    rows = [pd.DataFrame({"series": name, **vars(points)}) for name, points in found.items()]
    return pd.concat(rows, ignore_index=True)[COLUMNS] if rows else pd.DataFrame(columns=COLUMNS)

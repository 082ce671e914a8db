"""In-context learning as tables and sentences: the data of the charts and files of the In context screen."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from engine.heads.ablation import KINDS, HeadAblations
from engine.heads.induction import INDUCTION_FROM, InductionScores
from engine.importance.rankings import agreement
from engine.models.masks import Mask
from engine.shapes import ModelShape
from engine.statistics import over_texts
from engine.texts.incontext import CURVE_BINS, ByIndex, MeanOverTexts, loss_by_index, scores, slope
from pages.ui.in_context.setting import LossesSoFar
from pages.ui.page.tables import number, p_in_words, to_csv

INDUCTION = ("prefix_matching", "copying")
FULL, PRUNED = "full model", "pruned model"
CLEAR_SHARE = 0.1  # of the largest change, from which that of a head is named
COLUMNS = ["series", "index", "first", "last", "mean", "low", "high", "n"]


def curves(losses: Mapping[str, Sequence[np.ndarray]], bins: int | None = CURVE_BINS) -> pd.DataFrame:
    """Returns loss by index: COLUMNS, one row for each series and point."""
    return _stacked({name: loss_by_index(texts, bins) for name, texts in losses.items() if texts})


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


def lost(change: MeanOverTexts) -> MeanOverTexts:
    """Returns the size of a change of the score, above 0 whichever way it goes (`change_title`)."""
    return change if change.value >= 0 else gain(change)


def change_title(change: MeanOverTexts | None) -> str:
    """Returns which way a change of the score goes, in which + is worse, and whether it may be chance."""
    chance = " (may be chance)" if change and change.low <= 0 <= change.high else ""
    return f"Gain {'won' if change and change.value < 0 else 'lost'} by pruning{chance}"


def interval_in_words(found: MeanOverTexts, n_texts: int = 0) -> str:
    """Returns text such as "95% interval +0.63 to +4.08, 24 texts", or "2 of 24 texts" if there are `n_texts`."""
    count = f"{found.n} of {n_texts} texts" if found.n < n_texts else f"{found.n} text{'s' * (found.n > 1)}"
    if np.isnan(found.low):
        return f"{count}, so no interval"
    return f"95% interval {_signed(found.low)} to {_signed(found.high)}, {count}"


def finding(full: MeanOverTexts, pruned: MeanOverTexts | None, change: MeanOverTexts | None, what: str, n: int) -> str:
    """Returns the finding from in-context gains: whether later tokens are predicted better, and whether the pruned
    parts, `what`, `n` in number, carry that; `change` is that of the score. None: nothing is pruned."""
    if pruned is None or change is None:
        is_clear = full.low > 0 or full.high < 0
        said = f"late tokens are predicted **{_gain_in_words(full.value)}** than early ones ({interval_in_words(full)})"
        return f"{said[0].upper()}{said[1:]}{'' if is_clear else ': no clear difference'}."
    it, verb = ("it", "carries") if n == 1 else ("them", "carry")
    if not full.low > 0:
        leads, it = "**There is no clear in-context gain to lose here**", what
    elif change.low > 0:
        part = "" if pruned.value <= full.value / 2 else "part of "
        leads = f"**{what[0].upper()}{what[1:]} {verb} {part}in-context learning here**"
    elif change.high < 0:
        leads = f"**The model learns more in context without {what}**"
    else:
        leads = f"**It is not clear that {what} {verb} in-context learning here**"
    moves = f"with {it}, late tokens are predicted {_gain_in_words(full.value)} than early ones; without"
    moves += f"{'' if it == what else f' {it}'}, {_gain_in_words(pruned.value)}"
    if it == what:  # a gain lost or made of what is no gain says nothing
        return f"{leads}: {moves}."
    return f"{leads}: {moves} (**{lost_in_words(change.value)}**, {interval_in_words(lost(change))})."


def pruned_in_words(mask: Mask, known: InductionScores | None) -> str:
    """Returns what is pruned, such as "4 induction heads and 15 others"; all are "pruned heads" without the scores."""
    pruned = ~np.array(mask.heads)
    n_induction = int((pruned & known.is_induction_head).sum()) if known is not None else 0
    others = mask.n_heads_pruned - n_induction
    parts = [(n_induction, "induction head"), (others, "other" if n_induction else "pruned head")]
    named = [f"{n} {name}{'s' * (n > 1)}" for n, name in [*parts, (mask.n_ffns_pruned, "FFN")] if n]
    return _listed(named)


def change_in_words(change: MeanOverTexts) -> str:
    """Returns a change of the score as gain, such as "2.90 nats lost", and whether it may be chance."""
    return lost_in_words(change.value) + (", may be chance" if change.low <= 0 <= change.high else "")


def lost_in_words(change: float) -> str:
    """Returns a change of the score, in which + is worse, such as "2.90 nats lost"."""
    return f"{number(abs(change))} nats {'lost' if change >= 0 else 'gained'}"


def _gain_in_words(value: float) -> str:
    return f"{number(abs(value))} nats {'better' if value >= 0 else 'worse'}"


def heads_in_words(frame: pd.DataFrame) -> str:
    """Concludes from both ablations which heads the gain needs, and which of them act through later patterns."""
    full, kept = KINDS
    clear = frame[frame[f"{full} clear"] & (frame[full] > 0)].sort_values(full, ascending=False)
    if clear.empty:
        return "Without any one head, no gain is clearly lost: others do the same, or more texts are needed."
    first = clear.head(3)
    named = ", ".join(f"{number(value)} ({name})" for name, value in zip(first["name"], first[full], strict=True))
    heads = "one head alone" if len(clear) == 1 else f"any one of {len(clear)} heads"
    words = f"**Removing {heads} clearly lowers the gain**: by {named} nats."
    if "prefix_matching" not in first:
        return words
    others = first[first["prefix_matching"] < INDUCTION_FROM]
    if others.empty:
        return f"{words} {'They match' if len(first) > 1 else 'It matches'} prefixes, as induction heads do."
    is_one, names = len(others) == 1, _listed(others["name"])
    words += f" {names} {'is not an induction head' if is_one else 'are not induction heads'}"
    if (others[f"{kept} low"] <= 0).all():
        they, one = ("it acts", "it") if is_one else ("they act", "either" if len(others) == 2 else "any of them")
        words += f": **{they} through later heads**. If later heads keep looking where they looked, "
        words += f"removing {one} costs no clear gain"
    return f"{words}."


def _listed(each: Iterable[str]) -> str:
    *most, last = each
    return f"{', '.join(most)} and {last}" if most else last


def _signed(value: float) -> str:
    return number(value, sign=True)


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

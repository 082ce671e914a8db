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
from pages.ui.page.tables import number, p_in_words, plain, to_csv

INDUCTION = ("prefix_matching", "copying")
FULL, PRUNED = "full model", "pruned model"
N_NEEDED = 3  # heads that the sentence names
TOGETHER = "Induction heads may count only together: see “Top heads together”."
NAMED = 4  # induction heads that the finding names, at most
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


def interval_in_words(found: MeanOverTexts, long_text: str = "", of: str = "") -> str:
    """Returns text such as "95% interval +0.63 to +4.08, 24 texts", or "24 windows of “The ferry”" if they are from a
    `long_text`; `of` what the interval is."""
    plural = "s" * (found.n > 1)
    count = f"{found.n} window{plural} of “{plain(long_text)}”" if long_text else f"{found.n} text{plural}"
    if np.isnan(found.low):
        return f"{count}, so no interval"
    return f"95% interval{of} {_signed(found.low)} to {_signed(found.high)}, {count}"


def change_in_words(change: MeanOverTexts, long_text: str = "") -> str:
    """Returns the interval of a change of the gain, and whether the change may be chance."""
    return interval_in_words(change, long_text, " of the change") + "; may be chance" * (not is_clear(change))


def is_clear(found: MeanOverTexts) -> bool:
    """Returns whether there is an interval, and 0 is not in it."""
    return found.low > 0 or found.high < 0


def gain_in_words(found: MeanOverTexts, n_texts: int) -> str:
    """Returns what a gain means, or why it means little: some of the `n_texts` are missing, or it may be chance."""
    if found.n < n_texts:
        return f"{found.n} of {n_texts} texts so far."
    if not is_clear(found):
        return "It may be chance."
    return f"Later tokens are predicted {'better' if found.value > 0 else 'worse'} than early ones."


def mean_losses_in_words(full: Losses, pruned: Losses) -> str:
    """Returns the mean loss of both models over all tokens of these texts."""
    before, after = (float(np.nanmean(np.concatenate(losses))) for losses in (full, pruned))
    return f"Mean loss of all tokens: **{number(after)}**, full model {number(before)}."


def finding(
    full: MeanOverTexts,
    pruned: MeanOverTexts | None,
    change: MeanOverTexts | None,
    what: str,
    long_text: str = "",
    why: str = "",
) -> str:
    """Returns the finding from in-context gains: whether later tokens are predicted better, and what is left of that
    without the pruned parts, `what`; `change` is that of the gain. None: nothing is pruned. `long_text`: the name of
    that whose windows are the texts. `why`: the reason, if it is known, that late tokens are not easier."""
    if pruned is None or change is None:
        value = f"{number(abs(full.value))} nats {'better' if full.value >= 0 else 'worse'}"
        said = f"Late tokens are predicted **{value}** than early ones ({interval_in_words(full, long_text)})"
        because = f", as {why}" if why and full.value < 0 else ""
        return f"{said}{'' if is_clear(full) else ': no clear difference'}{because}."
    before, after = number(full.value), number(pruned.value)
    interval = interval_in_words(change, long_text, " of the change")
    if not full.low > 0:
        late = "harder" if full.high < 0 else "not clearly easier"
        because = f", as {why}" if why else ""
        leads = f"**The full model has no in-context gain here**{because}: late tokens are {late} than early ones"
        return f"{leads} ({before} nats; {after} without {what}; {interval})."
    if not is_clear(change):
        moves = f"**Without {what}, the in-context gain does not clearly change**: from {before} to {after} nats"
    else:
        verb = "falls" if change.value < 0 else "rises"
        moves = f"**Without {what}, the in-context gain {verb} from {before} to {after} nats**"
    return f"{moves} ({interval})."


def pruned_in_words(mask: Mask, known: InductionScores | None) -> str:
    """Returns what is pruned, such as "these 19 heads (4 are induction heads) and this FFN"; few induction heads by
    name, and none that copies hardly more than chance. Without the scores, no head is known as one."""
    pruned, n, n_ffns = ~np.array(mask.heads), mask.n_heads_pruned, mask.n_ffns_pruned
    clear = known.is_induction_head & ~known.copies_hardly if known is not None else np.zeros_like(pruned)
    n_induction = int((pruned & clear).sum())
    name = "induction head" if n_induction == n else "head"
    parts = [f"this {name}" if n == 1 else f"these {n} {name}s"] if n else []
    if 0 < n_induction == n <= NAMED:
        names = [f"L{layer}H{head}" for layer, head in np.argwhere(pruned)]
        parts = [f"the induction head{'s' * (n > 1)} {_listed(names)}"]
    if 0 < n_induction < n:
        parts[0] += f" ({n_induction} {'is an induction head' if n_induction == 1 else 'are induction heads'})"
    if n_ffns:
        parts.append("this FFN" if n_ffns == 1 else f"these {n_ffns} FFNs")
    return _listed(parts)


def heads_in_words(frame: pd.DataFrame) -> str:
    """Returns the heads of which each, removed alone, clearly lowers the gain."""
    names = _needed(frame)["name"].tolist()
    if not names:
        return "Without any one head, no gain is clearly lost: others do the same, or more texts are needed."
    others = len(names) - N_NEEDED
    named = [*names[:N_NEEDED], f"{others} others"] if others > 1 else names
    return f"Removed one at a time, only **{_listed(named)}** clearly lower{'s' * (len(named) == 1)} the gain."


def kind_in_words(frame: pd.DataFrame) -> str:
    """Returns how many of the heads whose removal clearly lowers the gain are induction heads, what the others do, and
    that induction heads may count only together."""
    needed = _needed(frame)
    n, n_induction = len(needed), int((needed["prefix_matching"] >= INDUCTION_FROM).sum())
    if not n:
        return "Induction heads are on the right."
    are = "is an induction head" if n_induction == 1 else "are induction heads"
    words = [f"**{n_induction} of {n} {are}** (on the right).", mechanism_in_words(frame) if n_induction < n else ""]
    return " ".join(filter(None, [*words, TOGETHER]))


def mechanism_in_words(frame: pd.DataFrame) -> str:
    """Concludes from both ablations whether the heads that the gain needs are induction heads, and whether they act
    through later patterns: then nothing is clearly lost while these stay as they were."""
    first = _needed(frame).head(N_NEEDED)
    if first.empty or "prefix_matching" not in first:
        return ""
    others = first[first["prefix_matching"] < INDUCTION_FROM]
    if others.empty:
        return f"{'They match' if len(first) > 1 else 'It matches'} prefixes, as induction heads do."
    is_one, kept = len(others) == 1, KINDS[1]
    words = f"{_listed(others['name'])} {'is not an induction head' if is_one else 'are not induction heads'}"
    if (others[f"{kept} low"] <= 0).all():
        words += f": {'it steers' if is_one else 'they steer'} where later heads look, as nothing is clearly lost if "
        words += "these look where they looked"
    return f"{words}."


def _needed(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the heads without which gain is clearly lost, the most first."""
    full = KINDS[0]
    return frame[frame[f"{full} clear"] & (frame[full] > 0)].sort_values(full, ascending=False)


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

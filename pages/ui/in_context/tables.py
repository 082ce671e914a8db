"""In-context learning as tables and sentences: what the charts of the In context screen draw and its files hold."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from engine.heads.ablation import Attribution
from engine.heads.induction import InductionScores
from engine.models.masks import Mask
from engine.shapes import ModelShape
from engine.texts.incontext import CURVE_BINS, EARLY, LATE, ByIndex, Estimate, loss_by_index, over_texts, scores, slope
from pages.ui.in_context.setting import Measured
from pages.ui.prune.tables import p_in_words, to_csv

FULL, PRUNED = "full model", "pruned model"
COLUMNS = ["series", "index", "first", "last", "mean", "low", "high", "n"]


def curves(losses: Mapping[str, Sequence[np.ndarray]], bins: int | None = CURVE_BINS) -> pd.DataFrame:
    """Loss by index: COLUMNS, a row for each series and point."""
    return _stacked({name: loss_by_index(texts, bins) for name, texts in losses.items() if texts})


def slopes(losses: Mapping[str, Sequence[np.ndarray]]) -> pd.DataFrame:
    """d loss / d ln(index): COLUMNS, a row for each series and point."""
    return _stacked({name: slope(texts) for name, texts in losses.items() if texts})


def scores_csv(found: Measured, texts: Sequence[str], around: int) -> bytes:
    """A table of one row a text: the text, its tokens and its score with both models, in nats."""
    frame = pd.DataFrame({"text": texts[: len(found.full)], "tokens": [len(losses) for losses in found.full]})
    for name, losses in ((FULL, found.full), (PRUNED, found.pruned)):
        frame[f"{name}, nats"] = pd.Series(scores(losses, around) if losses else [], dtype=float)
    return to_csv(frame)


def heads(
    shape: ModelShape, found: Mapping[str, Attribution], difference: Sequence[np.ndarray], kind: str, around: int,
    mask: Mask | None, induction: InductionScores | None,
) -> pd.DataFrame:  # fmt: skip
    """One row a head: layer, head, name, pruned; by each kind of ablation the change of the score without it (nats)
    with its interval, over n texts; the before-and-after vector by `kind` where all these texts have a `difference`
    that is not nothing; prefix matching and copying where they are known."""
    layer, head = np.divmod(np.arange(shape.n_heads_total), shape.n_heads)
    frame = pd.DataFrame({"layer": layer, "head": head, "name": shape.head_names})
    frame["pruned"] = False if mask is None else ~np.array(mask.heads).ravel()
    for name, attribution in found.items():
        without, plain = scores(attribution.ablated, around), scores(attribution.base, around)
        values = over_texts(without - plain[:, None, None])
        for column, value in zip((name, f"{name} low", f"{name} high"), values, strict=True):
            frame[column] = value.ravel()
    n = len(found[kind].base)
    frame["n"] = n
    if len(difference) >= n and any(np.any(change) for change in difference[:n]):
        frame["before_and_after"] = found[kind].before_and_after(difference[:n]).ravel()
    for score in ("prefix_matching", "copying") if induction is not None else ():
        frame[score] = induction.mean[score].ravel()
    return frame


def mask_in_words(shape: ModelShape, mask: Mask | None) -> str:
    """Such as "19 of 48 heads, 0 of 6 FFNs pruned"."""
    if mask is None:
        return "What is pruned is not known yet"
    return (
        f"{mask.n_heads_pruned} of {shape.n_heads_total:,} heads, {mask.n_ffns_pruned} of {shape.n_layers} FFNs pruned"
    )


def number(value: float, digits: int = 2, sign: bool = False) -> str:
    """A number with a real minus sign."""
    text = f"{value:+.{digits}f}" if sign else f"{value:.{digits}f}"
    return text.replace("-", "−")


def interval_in_words(found: Estimate) -> str:
    """Such as "95 % interval **−4.08 to −0.63**, 24 texts"."""
    if np.isnan(found.low):
        return f"{found.n} text, so no interval"
    return f"95 % interval **{number(found.low)} to {number(found.high)}**, {found.n} texts"


def score_in_words(found: Estimate, around: int) -> str:
    """What the score says."""
    late, early = (f"tokens {at - around} to {at + around}" if around else f"the {at}th token" for at in (LATE, EARLY))
    costs = "cost" if around else "costs"
    less = "less" if found.value < 0 else "more"
    return f"{late.capitalize()} {costs} {number(abs(found.value))} nats {less} than {early}."


def curve_in_words(frame: pd.DataFrame) -> str:
    """The curves as a sentence, for those who cannot see them."""
    lines = []
    for series, rows in frame.groupby("series", sort=False):
        low, high = rows.iloc[0], rows.iloc[-1]
        lines.append(f"{series}: {low['mean']:.2f} nats at token {low['index']:.0f}, "
                     f"{high['mean']:.2f} around token {high['index']:.0f}")  # fmt: skip
    return "Loss by token index. " + "; ".join(lines) + "."


def slope_in_words(frame: pd.DataFrame) -> str:
    """The slopes as a sentence."""
    lines = [f"{series}: {number(rows['mean'].iloc[-1])} nats for each factor of e around token "
             f"{rows['index'].iloc[-1]:.0f}" for series, rows in frame.groupby("series", sort=False)]  # fmt: skip
    return "How fast loss falls. " + "; ".join(lines) + "."


def map_in_words(frame: pd.DataFrame, column: str, count: int = 3) -> str:
    """Which heads have the largest values of a column, with their signs."""
    largest = frame.reindex(frame[column].abs().sort_values(ascending=False).index).head(count)
    named = [f"{name} {number(value, sign=True)}" for name, value in zip(largest["name"], largest[column], strict=True)]
    return f"Largest: {', '.join(named)} nats."


def scatter_in_words(frame: pd.DataFrame, column: str) -> str:
    """Whether the heads that match prefixes are those that matter: Spearman's rank correlation."""
    from scipy.stats import spearmanr

    rho, p = spearmanr(frame["prefix_matching"], frame[column])
    return (f"Prefix matching and what the score loses without the head agree at SRCC {number(float(rho), sign=True)} "
            f"({p_in_words(float(p))}, {len(frame):,} heads).")  # fmt: skip


def _stacked(found: Mapping[str, ByIndex]) -> pd.DataFrame:
    rows = [pd.DataFrame({"series": name, **vars(points)}) for name, points in found.items()]
    return pd.concat(rows, ignore_index=True)[COLUMNS] if rows else pd.DataFrame(columns=COLUMNS)

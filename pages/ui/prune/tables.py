"""Answers and scores of the Prune screen as DataFrames and sentences, for charts, files and screen readers."""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from engine.accuracy.evaluation import Answers, accuracy
from engine.importance.orders import Axis
from engine.importance.rankings import order
from engine.importance.scores import Scores
from engine.models.masks import Mask
from engine.shapes import ModelShape
from engine.views.forms import maps
from engine.views.view import MAGNITUDE, Column, Part
from engine.views.words import counted
from pages.ui.controls.coloring import LOST, Coloring
from pages.ui.page.defaults import LEVEL_NOUNS, LEVELS
from pages.ui.page.tables import RANK_TITLE, level_percent, mask_in_words, percent, pruned_counts, whole_percent
from pages.ui.prune.experiment import AnswersSoFar, Curve, Experiment

MAP = "Heads and FFNs"
UNRANKED = "Which ones are pruned is known once they are ranked."
MOST_NAMED = 36  # characters of a mask under a chart
POINT_COLUMNS = ["level", "acc", "low", "high", "n", "pruned"]


def curve_points(found: Curve) -> pd.DataFrame:
    """Returns one row for each level of a curve."""
    rows = [_point(answers, permille, mask) for permille, (mask, answers) in found.items()]
    return pd.DataFrame(rows, columns=POINT_COLUMNS)


def starting_from(x: Experiment, axis: Axis) -> str:
    """Returns the pruning at the start of the curve over `axis`, such as " in addition to “L1H0”, 20% of FFNs",
    or ""."""
    text = x.pruning.typed.text()
    named = f"“{text}”" if len(text) <= MOST_NAMED else named_in_words(x) or "parts kept"
    others = [f"{level_percent(x.pruning.level(each))} of {LEVEL_NOUNS[each]}"
              for each in LEVELS if each != axis and x.pruning.level(each)]  # fmt: skip
    parts = [named] * bool(text) + others
    return f" in addition to {', '.join(parts)}" if parts else ""


def named_in_words(x: Experiment) -> str:
    """Returns how much the typed or shared mask prunes, such as "4 heads and 1 FFN", or ""."""
    return pruned_counts(x.pruning.typed.alone)


def guesses_in_words(x: Experiment, axis: Axis, points: pd.DataFrame) -> str:
    """Returns why a curve over heads ends higher than it begins, or than chance where all heads are pruned, or ""."""
    acc, at_end = points.set_index("level")["acc"], x.pruning.level(axis) == 1000
    if axis != "heads" or not {0.0, 1.0} <= {*acc.index} or acc[1.0] <= (x.validation.chance if at_end else acc[0.0]):
        return ""
    return f"With no head left, the model reads no earlier word and guesses {whole_percent(acc[1.0])} right."


def now_point(x: Experiment, axis: Axis, measured: AnswersSoFar, mask: Mask | None) -> pd.DataFrame:
    """Returns the present position on the curve: one row, or none before all questions are answered, as the curve does
    not follow the figure."""
    answers, rows = measured.pruned, []
    if mask is not None and answers is not None and x.has_all(answers):
        rows.append(_point(answers, x.pruning.level(axis), mask))
    return pd.DataFrame(rows, columns=POINT_COLUMNS)


def full_accuracy(x: Experiment, measured: AnswersSoFar) -> float | None:
    """Returns the accuracy of the full model, 0-1; None before it has enough answers: a line through the first few
    would stand while the figure moves on."""
    return accuracy(measured.full).acc if measured.full is not None and x.has_all(measured.full) else None


def component_frame(shape: ModelShape, coloring: Coloring, mask: Mask, outlined: Collection[int] = ()) -> pd.DataFrame:
    """Returns one row per head, then one per FFN, which has no `head`. `rank` 1 is the most important by the scores
    shown, whatever the pruning order. `outlined`: heads, by flat index."""
    layer, head = np.divmod(np.arange(shape.n_heads_total), shape.n_heads)
    heads = _components(coloring.heads, np.array(mask.heads), shape.head_names).assign(layer=layer, head=head * 1.0)
    ffns = _components(coloring.ffns, np.array(mask.ffns), [f"F{at}" for at in range(shape.n_layers)])
    frame = pd.concat([heads, ffns.assign(layer=np.arange(shape.n_layers), head=np.nan)], ignore_index=True)
    return frame.assign(outlined=frame.index.isin([*outlined]))


def map_part(frame: pd.DataFrame, titles: Sequence[str]) -> Part:
    """Returns the map of these components, for files; `titles` of the scores of heads and of FFNs."""
    rows = [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]
    rows = [row | {"head": None if np.isnan(row["head"]) else int(row["head"])} for row in rows]
    form = ".1f" if LOST in titles else MAGNITUDE
    score = Column(" and ".join(dict.fromkeys(filter(None, titles))), form)
    columns = {"name": Column("Name"), "score": score, "rank": Column(RANK_TITLE), "pruned": Column("Pruned")}
    draw = partial(maps.head_map, value="score", shade="shade", crosses="pruned", outlined="outlined")
    return Part(MAP, rows, columns, draw)


def points_in_words(points: pd.DataFrame, label: str) -> str:
    """Returns the curve as a sentence, for screen readers."""
    if points.empty:
        return f"{label}: no level is measured yet."
    said = [
        f"at {whole_percent(at)} {percent(acc)} right" for at, acc in zip(points["level"], points["acc"], strict=True)
    ]
    return f"{label}: {', '.join(said)}."


def components_in_words(shape: ModelShape, frame: pd.DataFrame, mask: Mask, titles: Sequence[str]) -> str:
    """Returns the map as a sentence, for screen readers; `titles` of the scores of heads and of FFNs."""
    said = f"{mask_in_words(shape, mask)}."
    for title, is_of in zip(titles, (frame["head"].notna(), frame["head"].isna()), strict=True):
        best = frame[is_of & (frame["score"] > 0)].sort_values(["score", "rank"], ascending=[False, True])["name"]
        said += f" Top by {title.lower()}: {', '.join(best.head(3))}." if len(best) else ""
    return said


def _point(answers: Answers, permille: int, mask: Mask) -> dict[str, Any]:
    result = accuracy(answers)
    counts = f"{counted(mask.n_heads_pruned, 'head')}, {counted(mask.n_ffns_pruned, 'FFN')}"
    values = (permille / 1000, result.acc, result.ci_low, result.ci_high, result.n, counts)
    return dict(zip(POINT_COLUMNS, values, strict=True))


def _components(scores: Scores | None, kept: np.ndarray, names: list[str]) -> pd.DataFrame:
    """Returns the components of one kind, each shaded by the highest score of its kind."""
    score, rank = np.full((2, len(names)), np.nan)
    if scores is not None:
        score = scores.scores.ravel()
        rank[order(scores.scores, scores.tie_break)[::-1]] = np.arange(1, len(names) + 1)
    top = float(np.nanmax([0.0, *score])) or 1.0
    shade = np.sqrt(np.clip(score / top, 0.0, None))  # most score far below the best few; the root keeps them apart
    return pd.DataFrame({"name": names, "score": score, "shade": shade, "rank": rank, "pruned": ~kept.ravel()})

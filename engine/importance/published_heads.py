"""Published scores of single heads, and how far those measured here agree with them.

Papers measure on other prompts, so values are not compared: the orders of the heads are (Spearman), and how many of the
best heads are the same.
"""

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import HeadroomError
from engine.files import read_regular
from engine.importance.rankings import agreement, order
from engine.shapes import ModelShape

LAYER, HEAD = ("layer",), ("head", "head_idx", "head_index")  # names of columns
SCORE = "score"  # the name of scores that have none
MOST_TOP, FEWEST_TOP = 20, 3  # heads that count as the best; of a small model a tenth of all
ALPHA = 0.01
Series = dict[str, dict[tuple[int, int], float]]  # scores by layer and head, by name
FORMS = "a CSV file with the columns layer, head, and score, or JSON of the same rows, or of a list of scores per layer"


@dataclass(frozen=True)
class HeadsComparison:
    """Scores of all heads, measured here and published, compared.

    ours, published: (L, H)
    srcc: Spearman's rho, nan if one of them is constant
    p_srcc: its two-sided p-value, from permutations
    n_top: how many heads count as the best
    n_shared: how many of them are the best in both
    p_shared: probability of as many by chance (hypergeometric)
    """

    ours: np.ndarray
    published: np.ndarray
    srcc: float
    p_srcc: float
    n_top: int
    n_shared: int
    p_shared: float

    @property
    def agrees(self) -> bool:
        """Whether more of the best heads are shared than chance explains."""
        return self.p_shared < ALPHA

    def top(self, shape: ModelShape) -> list[dict[str, Any]]:
        """Returns one row per head among the best published: its name, both scores, and its rank in ours from 1."""
        ranks = np.empty(self.ours.size, int)
        ranks[order(-self.ours)] = np.arange(1, self.ours.size + 1)
        return [
            {"head": shape.head_names[head], "published": float(self.published.ravel()[head]),
             "ours": float(self.ours.ravel()[head]), "rank": int(ranks[head])}
            for head in order(-self.published)[: self.n_top].tolist()
        ]  # fmt: skip


def compare_heads(ours: np.ndarray, published: np.ndarray) -> HeadsComparison:
    """Returns the HeadsComparison of two arrays (L, H) of the same shape."""
    found, n = agreement({"ours": ours, "published": published}), ours.size
    n_top = min(MOST_TOP, max(FEWEST_TOP, n // 10), n)
    shared = len({*order(-ours)[:n_top].tolist()} & {*order(-published)[:n_top].tolist()})
    ways = [math.comb(n_top, k) * math.comb(n - n_top, n_top - k) for k in range(shared, n_top + 1)]
    return HeadsComparison(
        ours, published, float(found.srcc[0, 1]), float(found.p[0, 1]), n_top, shared, sum(ways) / math.comb(n, n_top)
    )


def read_heads(file: Path, shape: ModelShape, series: str = "") -> np.ndarray:
    """Reads the published scores (L, H) of a model; `series` names one if the file has several. HeadroomError: the
    file cannot be read, has several series or not this one, or not exactly one number for each head."""
    try:
        text = read_regular(file).decode("utf-8-sig")
        found = (
            _of_json(json.loads(text))
            if file.suffix.lower() == ".json"
            else _of_rows([*csv.DictReader(text.splitlines())])
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise HeadroomError(f"the scores of heads in {file} cannot be read ({error}); give {FORMS}") from error
    if not found:
        raise HeadroomError(f"{file} has no scores of heads; give {FORMS}")
    if series not in found and (series or len(found) > 1):
        what = f"has no {series!r}" if series else "has several scores"
        raise HeadroomError(f"{file} {what}; choose with --series one of {', '.join(found)}")
    scores = np.full((shape.n_layers, shape.n_heads), math.nan)
    for (layer, head), score in found[series or next(iter(found))].items():
        if not (0 <= layer < shape.n_layers and 0 <= head < shape.n_heads):
            raise HeadroomError(f"{file} has head L{layer}H{head}, but the model has {shape.n_layers} layers of "
                                f"{shape.n_heads} heads; choose the model that the scores are of")  # fmt: skip
        scores[layer, head] = score
    if not np.isfinite(scores).all():
        missing = shape.head_names[int(np.flatnonzero(~np.isfinite(scores).ravel())[0])]
        raise HeadroomError(f"{file} has no score of {missing}; give one number for each head")
    return scores


def _of_json(content: Any) -> Series:
    """Returns the scores of rows, of a list per layer, or of several of these by name."""
    if isinstance(content, Mapping):
        return {name: scores for name, each in content.items() for scores in _of_json(each).values()}
    if not content or isinstance(content[0], Mapping):
        return _of_rows(content)
    return {SCORE: {(i, j): float(score) for i, layer in enumerate(content) for j, score in enumerate(layer)}}


def _of_rows(rows: Sequence[Mapping[str, Any]]) -> Series:
    """Returns the scores in each column but those of the layer and the head."""
    found: Series = {}
    for row in rows:
        known = {str(name).strip().lower(): value for name, value in row.items()}
        layer, head = (int(known.pop(next(filter(known.__contains__, names), names[0]))) for names in (LAYER, HEAD))
        for name, value in known.items():
            found.setdefault(name, {})[layer, head] = float(value)
    return found

"""Kinds of heads as tables: takes Mechanisms, returns DataFrames."""

import pandas as pd

from engine.heads.induction import best_heads
from engine.shapes import ModelShape
from engine.studies.mechanisms import KINDS, Mechanisms, depths, overlaps
from pages.ui.page.tables import number, whole_percent

N_BEST = 10
DO = {  # what the heads of each kind do
    "induction": "look at what followed the same token before",
    "concept": "look at the end of the word that followed before",
    "function vector": "their mean output brings the answer back",
    "retrieval": "look at what the model copies from far back",
    "importance": "losing them changes the loss most",
}


def chart_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns those of `Mechanisms.rows` that are of kinds, with what the chart writes; the largest share comes
    first."""
    shown = rows[rows["kind"].isin(KINDS)].sort_values("share", ascending=False, kind="stable")
    ends = zip(shown["low"], shown["high"], strict=True)
    return shown.rename(columns={"points_lost": "lost"}).assign(
        row=[
            f"{kind}, {whole_percent(share)} ({n} head{'s' * (n != 1)})"
            for kind, share, n in zip(shown["kind"], shown["share"], shown["n_heads"], strict=True)
        ],
        points=[number(value, 1, sign=True) for value in shown["points_lost"]],
        interval=[f"{number(low, 1, sign=True)} to {number(high, 1, sign=True)}" for low, high in ends],
        which=shown["exclusive"].map({False: "top of the kind", True: "without heads of other kinds"}),
    )


def kind_rows(found: Mechanisms, shape: ModelShape) -> pd.DataFrame:
    """Returns one row per kind: what its heads do, the mean depth of its top 10% (0 first layer, 1 last), and its best
    heads."""
    depth = depths(shape, found.scores)
    return pd.DataFrame(
        [{"kind": kind, "does": DO[kind], "depth": depth[kind],
          "heads": " ".join(name for name, _ in best_heads(scores, N_BEST))}
         for kind, scores in found.scores.items()]
    )  # fmt: skip


def overlap_rows(found: Mechanisms, shape: ModelShape) -> pd.DataFrame:
    """Returns one row for every two kinds: how many heads the top 10% of both share, and Spearman's rho."""
    rows = overlaps(shape, found.scores)
    return pd.DataFrame([each | {"share": f"{each['shared']} of {each['n']}"} for each in rows])

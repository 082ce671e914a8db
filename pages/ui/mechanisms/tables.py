"""Kinds of heads as tables: takes Mechanisms, returns DataFrames."""

from collections.abc import Sequence

import pandas as pd

from engine.heads.induction import best_heads
from engine.shapes import ModelShape
from engine.studies.mechanisms import RANDOM, Mechanisms, depths, overlaps
from pages.ui.page.tables import level_percent, number

N_BEST, MOST_NAMED = 10, 4  # heads in a download; in a table, and of a random set in a chart
DO = {  # what the heads of each kind do
    "induction": "look at what followed this token before",
    "concept": "look at the end of the word that followed",
    "function vector": "their output carries the task",
    "retrieval": "look at what is copied from far back",
    "importance": "matter most for the loss (gradient)",
    RANDOM: "as many heads, one dot per draw",
}


def chart_rows(rows: pd.DataFrame, gain: float) -> pd.DataFrame:
    """Returns `Mechanisms.rows` with what the charts draw: what is `left` of the `gain` with its ends, and whether the
    loss `is_clear`; kinds by what is lost at the largest share, then random sets, of which the one that costs most at
    each share is `named` by its heads if they are few and its loss is clear."""
    drawn = rows[(rows["kind"] == RANDOM) & (rows["low"] > 0) & (rows["n_heads"] <= MOST_NAMED)]
    named = "drew " + drawn.loc[drawn.groupby("share")["points_lost"].idxmax(), "heads"].str.replace(" ", ", ")
    largest = rows[(rows["share"] == rows["share"].max()) & ~rows["exclusive"]]
    by_loss = largest[largest["kind"] != RANDOM].sort_values("points_lost", ascending=False, kind="stable")["kind"]
    left, low, high = (gain - rows[column] for column in ("points_lost", "high", "low"))
    found = rows.assign(
        left=left,
        left_low=low,
        left_high=high,
        is_clear=rows["low"] > 0,
        does=rows["kind"].map(DO),
        named=named.reindex(rows.index).fillna(""),
        points=[number(each, 0, sign=True) for each in left],
        interval=[f"{number(a, 1, sign=True)} to {number(b, 1, sign=True)}" for a, b in zip(low, high, strict=True)],
        beyond=rows["beyond_random"].map({True: "yes", False: "no"}),
        which=rows["exclusive"].map({False: "top heads", True: "top heads of one kind alone"}),
    )
    return found.sort_values("kind", key=lambda kinds: kinds.map([*by_loss, RANDOM].index), kind="stable")


def title(rows: pd.DataFrame) -> str:
    """Returns the title of the chart of these rows, which are of one share."""
    n, share = rows["n_heads"].iloc[0], rows["share"].iloc[0]
    return f"Without the top {f'{n} heads' if n > 1 else 'head'} ({level_percent(1000 * share)})"


def kind_rows(found: Mechanisms, shape: ModelShape) -> pd.DataFrame:
    """Returns one row per kind: what its heads do, the mean depth of its top 10% (0 first layer, 1 last), its mean
    layer in words, and its best heads."""
    depth, last = depths(shape, found.scores), shape.n_layers - 1
    rows = []
    for kind, scores in found.scores.items():
        best = " ".join(name for name, _ in best_heads(scores, N_BEST))
        row = {"kind": kind, "does": DO[kind], "depth": depth[kind]}
        rows.append(row | {"layer": f"{number(last * depth[kind], 1)} of 0–{last}", "heads": best})
    return pd.DataFrame(rows)


def shown_kinds(rows: pd.DataFrame, awaited: Sequence[str] = ()) -> pd.DataFrame:
    """Returns `kind_rows` as a table on screen: the first few heads, and a row without heads for each `awaited`
    kind."""
    shown = [
        {"kind": row["kind"], "layer": row["layer"], "heads": ", ".join(row["heads"].split()[:MOST_NAMED])}
        for row in rows.to_dict("records")
    ]
    shown += [{"kind": kind, "layer": "…", "heads": "…"} for kind in awaited]
    return pd.DataFrame(shown)


def overlap_rows(found: Mechanisms, shape: ModelShape) -> pd.DataFrame:
    """Returns one row for every two kinds: how many heads the top 10% of both share, and Spearman's rho."""
    return pd.DataFrame(overlaps(shape, found.scores))

"""Kinds of heads as tables: takes Mechanisms, returns DataFrames."""

import pandas as pd

from engine.heads.induction import best_heads
from engine.shapes import ModelShape
from engine.studies.mechanisms import FULL, KINDS, RANDOM, Mechanisms, depths, overlaps
from pages.ui.page.tables import number, whole_percent

N_BEST = 10


def set_rows(found: Mechanisms, shape: ModelShape) -> pd.DataFrame:
    """Returns one row per set of heads: kind, share (0-1), exclusive, draw, points lost with their interval, whether
    they are beyond random, and the heads."""
    rows = []
    for removed in found.answered:
        if removed.kind == FULL:
            continue
        lost = found.lost(removed)
        rows.append({
            "kind": removed.kind, "share": removed.share / 1000, "exclusive": removed.excludes, "draw": removed.draw,
            "lost": lost.points, "low": lost.low, "high": lost.high,
            "beyond_random": removed.kind != RANDOM and found.beyond_random(removed),
            "heads": " ".join(shape.head_names[head] for head in removed.heads),
        })  # fmt: skip
    return pd.DataFrame(rows)


def chart_rows(rows: pd.DataFrame, found: Mechanisms) -> pd.DataFrame:
    """Returns the rows of kinds, with the range of the random sets of as many heads (random_low, random_high, points)
    and what the chart writes; the largest share comes first."""
    shown = rows[rows["kind"].isin(KINDS)].sort_values("share", ascending=False, kind="stable")
    drawn = [found.at_random(round(1000 * share)) for share in shown["share"]]
    ends = zip(shown["low"], shown["high"], strict=True)
    return shown.assign(
        row=[f"{kind}, {whole_percent(share)}" for kind, share in zip(shown["kind"], shown["share"], strict=True)],
        points=[number(value, 1, sign=True) for value in shown["lost"]],
        interval=[f"{number(low, 1, sign=True)} to {number(high, 1, sign=True)}" for low, high in ends],
        which=shown["exclusive"].map({False: "top of the kind", True: "without heads of other kinds"}),
        random_low=[low for low, _ in drawn],
        random_high=[high for _, high in drawn],
    )


def kind_rows(found: Mechanisms, shape: ModelShape) -> pd.DataFrame:
    """Returns one row per kind: its best heads, and the mean depth of its top 10% (0 first layer, 1 last)."""
    depth = depths(shape, found.scores)
    return pd.DataFrame(
        [{"kind": kind, "heads": " ".join(name for name, _ in best_heads(scores, N_BEST)), "depth": depth[kind]}
         for kind, scores in found.scores.items()]
    )  # fmt: skip


def overlap_rows(found: Mechanisms, shape: ModelShape) -> pd.DataFrame:
    """Returns one row for every two kinds: how many heads the top 10% of both share, and Spearman's rho."""
    rows = overlaps(shape, found.scores)
    return pd.DataFrame([each | {"share": f"{each['shared']} of {each['n']}"} for each in rows])

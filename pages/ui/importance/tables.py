"""Importance of heads and FFNs over many tasks and shot counts: one row per component, and sentences.

A rank of 1 is the most important, which pruning removes last: equal scores in the order of their tie breaks.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from engine.importance.importance import Scores
from engine.importance.rankings import Agreement, n_top, order
from engine.questions.requests import TaskSpec
from engine.studies.surveys import in_words
from pages.ui.page.tables import number, p_in_words, whole_percent

ORACLE, ORACLE_HEADS = "heads-oracle", 200  # the most heads: it takes one evaluation of all questions per head
MOST_RANKS = 6  # tasks with a column of ranks
SHOWN = 10  # rows of a table of the most important heads
MAX_MARKS = 15_000  # cells of one chart: with more the page takes seconds to make it and the browser to draw it


def head_rows(scores: Mapping[TaskSpec, Scores]) -> pd.DataFrame:
    """Returns task, shots, layer, head, name, score, rank of every head for every task and shot count."""
    frames = [_ranked(found.scores, found.tie_break, task) for task, found in scores.items()]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def ffn_rows(scores: Mapping[TaskSpec, Scores]) -> pd.DataFrame:
    """Returns task, shots, layer, name, score (share of questions, 0-1) and rank of every FFN, task and count."""
    rows = head_rows(scores)  # one FFN per layer: as if it had one head
    return rows if rows.empty else rows.drop(columns="head").assign(name=[f"F{layer}" for layer in rows["layer"]])


def aggregate_rows(scores: Mapping[TaskSpec, Scores], mean: Scores) -> pd.DataFrame:
    """Returns layer, head, name, score and rank by `mean` (engine.studies.surveys.together), and `kept`: how many of
    the tasks and shot counts have the head among their 30% most important."""
    rows = _ranked(mean.scores, mean.tie_break)
    kept = np.zeros(len(rows), int)
    for found in scores.values():
        kept[order(found.scores, found.tie_break)[-n_top(len(rows)) :]] += 1
    return rows.assign(kept=kept)


def best_rows(scores: Mapping[TaskSpec, Scores], mean: pd.DataFrame) -> pd.DataFrame:
    """Returns the SHOWN first of `mean` (`aggregate_rows`), and their rank on each task in a column of its name, if
    there is room."""
    named = scores.items() if len(scores) <= MOST_RANKS else ()
    ranks = {in_words(task): _ranked(found.scores, found.tie_break)["rank"] for task, found in named}
    return mean.assign(**ranks).sort_values("rank").head(SHOWN)


def weight_rows(found: Scores) -> pd.DataFrame:
    """Returns layer, head, name, score and rank of scores that belong to no task."""
    return _ranked(found.scores, found.tie_break)


def weights_in_words(rows: pd.DataFrame) -> str:
    """Returns the finding of `weight_rows`."""
    best = rows.nsmallest(1, "rank").iloc[0]
    words = f"By weight magnitude alone, before any question is asked, **{best['name']}** is the largest head"
    return f"{words}. The top 30% of heads hold **{whole_percent(_top_share(rows))}** of the total."


def scatter_rows(found: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Returns layer, head, name and a column per head score; `oracle_points` is the accuracy lost, in points."""
    rows = _ranked(found["heads-oracle"], None).drop(columns=["score", "rank"])
    rows = rows.assign(**{what: scores.ravel() for what, scores in found.items()})
    return rows.assign(oracle_points=100 * rows["heads-oracle"])


def shown_maps(tasks: Sequence[TaskSpec], front: TaskSpec, n_heads: int) -> list[TaskSpec]:
    """Returns all of `tasks` up to MAX_MARKS cells, else those that fit, from the highlighted task on."""
    most = max(1, MAX_MARKS // n_heads)
    if len(tasks) <= most:
        return list(tasks)
    names = [task.name for task in tasks]
    at = names.index(front.name) if front.name in names else 0
    n_shots = len({task.shots for task in tasks})
    return [*tasks[at:], *tasks[:at]][: most - most % n_shots if most >= n_shots else most]


def heads_in_words(rows: pd.DataFrame, n_maps: int, how: str) -> str:
    """Returns the finding of `aggregate_rows` over `n_maps` tasks and shot counts."""
    if rows["score"].nunique() == 1:
        return "All heads have the same score: none stands out."
    best = rows.nsmallest(1, "rank").iloc[0]
    words = f"**{best['name']}** is the most important head"
    if n_maps > 1:
        words += f": in the top 30% in {_all_of(int(best['kept']), n_maps)} maps"
    if how != "ranks" and (rows["score"] >= 0).all() and rows["score"].sum() > 0:
        words += f". The top 30% of heads hold **{whole_percent(_top_share(rows))}** of the total importance"
    return words + "."


def _top_share(rows: pd.DataFrame) -> float:
    """Returns the share of the summed score that the top 30% of components hold."""
    return rows.nsmallest(n_top(len(rows)), "rank")["score"].sum() / rows["score"].sum()


def top_ffn_in_words(rows: pd.DataFrame) -> str:
    """Returns which FFN costs most accuracy, in the mean of `ffn_rows`."""
    mean = rows.groupby("name", sort=False)["score"].mean()
    if mean.max() <= 0:
        return "No FFN costs accuracy when it is removed alone."
    points = f"{100 * mean.max():.0f} points of accuracy are lost"
    return f"The most important FFN is **{mean.idxmax()}**: without it, {points}."


def ffns_in_words(rows: pd.DataFrame) -> str:
    """Describes which FFNs help when removed, and on which tasks."""
    n_maps = len(rows) // (int(rows["layer"].max()) + 1)
    helped = rows[rows["score"] < 0].groupby("name").size().sort_values(ascending=False, kind="stable")
    if (rows["score"] == 0).all():
        return f"Without any one FFN no answer is lost or gained: {n_maps} of {n_maps}."
    if helped.empty:
        return f"Removing an FFN never helps (0 of {n_maps})."
    worst = rows.nsmallest(1, "score").iloc[0]
    at = in_words(TaskSpec(worst["task"], int(worst["shots"])))
    words = f"Removing an FFN can help: without {worst['name']}, {at} gains {-100 * worst['score']:.1f} points"
    return f"{words}." if len(helped) == 1 else f"{words} ({len(helped)} FFNs help on some task)."


def agreement_in_words(found: Agreement, a: str, b: str) -> str:
    """Returns text such as "SRCC +0.62, 95% interval +0.31 to +0.81, p = 0.001"."""
    i, j = found.labels.index(a), found.labels.index(b)
    if np.isnan(found.srcc[i, j]):
        return "SRCC undefined: one of the two scores is the same for all heads."
    srcc, low, high = (number(table[i, j], sign=True) for table in (found.srcc, found.low, found.high))
    return f"SRCC **{srcc}**, 95% interval {low} to {high}, {p_in_words(found.p[i, j])}"


def _all_of(count: int, n: int) -> str:
    """Returns how many of at least two."""
    return f"{count} of {n}" if count < n else "both" if n == 2 else f"all {n}"


def _ranked(scores: np.ndarray, tie_break: np.ndarray | None, task: TaskSpec | None = None) -> pd.DataFrame:
    """Returns one row per component with its layer and head, or head 0 with one component per layer."""
    rank = np.empty(scores.size, int)
    rank[order(scores, tie_break)[::-1]] = np.arange(1, scores.size + 1)
    layer, head = np.divmod(np.arange(scores.size), scores.size // len(scores))
    names = [f"L{of}H{at}" for of, at in zip(layer, head, strict=True)]
    of = {} if task is None else {"task": task.name, "shots": task.shots}
    return pd.DataFrame(of | {"layer": layer, "head": head, "name": names, "score": scores.ravel(), "rank": rank})

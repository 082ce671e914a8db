"""Importance of heads and FFNs over many tasks and shot counts: one row per component, and sentences.

A rank of 1 is the most important, which pruning removes last: equal scores in the order of their tie breaks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from engine.importance.importance import Scores
from engine.importance.rankings import Agreement, n_top, order
from engine.questions.requests import TaskSpec
from engine.statistics import ALPHA, Paired, holm, mcnemar
from engine.studies.removal import Removal
from engine.studies.surveys import StudySettings, in_words, together
from engine.views.accuracy import together_rows, without_row
from pages.ui.page.tables import number, p_in_words, percent

ORACLE, ORACLE_HEADS = "heads-oracle", 200  # the most heads: it takes one evaluation of all questions per head
EVEN, PAPERS = "heads-one-divisor", "heads"  # gradient scores
NAMES = {EVEN: "Gradient", PAPERS: "Gradient (Bansal et al.)"}
GRADIENTS_HELP = (
    "Gradient: |z · dLoss/dz| summed over positions, all layers divided by all positions; the default order of Prune. "
    "Bansal et al.: as in their paper (2023), the last layer divided by the answer's tokens alone; the order "
    "“importance” of Prune."
)
MOST_RANKS = 6  # tasks with a column of ranks
MOST_ALONE = 6  # bars of heads removed alone
SHOWN = 10  # rows of a table of the most important heads
MAX_MARKS = 15_000  # cells of one chart: with more the page takes seconds to make it and the browser to draw it


def head_rows(scores: Mapping[TaskSpec, Scores]) -> pd.DataFrame:
    """Returns task, shots, layer, head, name, score, rank of every head for every task and shot count; `is_clear`
    of an oracle: whether its removal changes accuracy by exact McNemar, at 5% for all rows together (Holm)."""
    frames = [_ranked(found, task) for task, found in scores.items()]
    return _tested(pd.concat(frames, ignore_index=True)) if frames else pd.DataFrame()


def ffn_rows(scores: Mapping[TaskSpec, Scores]) -> pd.DataFrame:
    """Returns task, shots, layer, name, score (share of questions, 0-1) and rank of every FFN, task and count."""
    return _as_ffns(head_rows(scores)) if scores else pd.DataFrame()


def ffn_mean(setting: StudySettings, scores: Mapping[TaskSpec, Scores]) -> pd.DataFrame:
    """Returns layer, name, score and rank of every FFN in the mean over tasks, and `is_clear` as `head_rows` does."""
    return _as_ffns(_tested(_ranked(together(replace(setting, aggregate="scores"), scores))))


def aggregate_rows(scores: Mapping[TaskSpec, Scores], mean: Scores) -> pd.DataFrame:
    """Returns layer, head, name, score and rank by `mean` (engine.studies.surveys.together); `kept`: how many of the
    tasks and shot counts have the head among their 30% most important; `least`, `most`: its scores' range over them."""
    rows = _tested(_ranked(mean))
    kept = np.zeros(len(rows), int)
    for found in scores.values():
        kept[order(found.scores, found.tie_break)[-n_top(len(rows)) :]] += 1
    each = np.stack([found.scores.ravel() for found in scores.values()])
    return rows.assign(kept=kept, least=each.min(0), most=each.max(0))


def mean_rows(scores: Mapping[TaskSpec, Scores], mean: pd.DataFrame) -> pd.DataFrame:
    """Returns `mean` (`aggregate_rows`) of losses at one shot count as a map, with each head's by task in `each`."""
    [shots] = {task.shots for task in scores}
    lost = zip(*([f"{task.name} {number(100 * score, 1)}" for score in found.scores.ravel()]
                 for task, found in scores.items()), strict=True)  # fmt: skip
    return mean.assign(task=f"Mean of {len(scores)} tasks", shots=shots, each=[", ".join(head) for head in lost])


def best_rows(scores: Mapping[TaskSpec, Scores], mean: pd.DataFrame) -> pd.DataFrame:
    """Returns the SHOWN first of `mean` (`aggregate_rows`), and in a column named after each task, if there is room,
    their rank on it."""
    named = scores.items() if len(scores) <= MOST_RANKS else ()
    each = {in_words(task): _ranked(found)["rank"] for task, found in named}
    return mean.assign(**each).sort_values("rank").head(SHOWN)


def values_in_words(scores: Mapping[TaskSpec, Scores], mean: pd.Series, is_oracle: bool) -> str:
    """Returns the value of one head of `aggregate_rows` in each of up to MOST_RANKS maps, by an oracle in points."""
    at, parts, is_one_count = (int(mean["layer"]), int(mean["head"])), [], len({task.shots for task in scores}) == 1
    for task, found in [*scores.items()][:MOST_RANKS]:
        score = float(found.scores[at])
        share = score / (np.abs(found.scores).sum() or 1)
        value = number(100 * score, 0) if is_oracle else percent(share)
        parts.append(f"{task.name if is_one_count else in_words(task)} {value}")
    of = " in the mean over tasks" if len(scores) > 1 else ""
    rank = f" \nRank {mean['rank']}{of}. Share of the total:"  # by an oracle most heads tie
    if is_oracle:
        return f":small[{', '.join(parts)} points lost alone]"
    return "  \n".join([rank, *parts])


def agreement_rows(found: Mapping[str, np.ndarray], what: str) -> pd.DataFrame:
    """Returns layer, head, name, a column per head score, `oracle_points`, the accuracy lost in points, and the ranks
    by `what` and by the oracle, of which equal scores share their mean."""
    rows = _ranked(Scores(ORACLE, 0, found[ORACLE])).drop(columns="score")
    rows = rows.assign(**{name: scores.ravel() for name, scores in found.items()})
    ranks = {name: rows[by].rank(ascending=False) for name, by in (("rank", what), ("oracle_rank", ORACLE))}
    return rows.assign(oracle_points=100 * rows[ORACLE], **ranks)


def shown_maps(tasks: Sequence[TaskSpec], n_heads: int) -> list[TaskSpec]:
    """Returns all of `tasks` up to MAX_MARKS cells, else the first that fit, with all their shot counts."""
    most, n_shots = max(1, MAX_MARKS // n_heads), len({task.shots for task in tasks})
    return list(tasks[: most - most % n_shots if n_shots <= most < len(tasks) else most])


def heads_in_words(rows: pd.DataFrame, n_maps: int, task: str = "") -> str:
    """Returns the finding of `aggregate_rows` over `n_maps` tasks and shot counts; by an oracle also of the `head_rows`
    of one `task`."""
    if "is_clear" in rows:
        return _oracle_in_words(rows, f" on {task}" if task else " in the mean over tasks" if n_maps > 1 else "")
    best = rows.nsmallest(1, "rank").iloc[0]
    among = f" and is in the top 30% in {best['kept']} of {n_maps} maps" if n_maps > 1 else ""
    return f"**{best['name']}** has the highest score{among}."


def _oracle_in_words(rows: pd.DataFrame, on: str) -> str:
    """Returns which heads clearly cost accuracy when removed alone, `on` a task or in the mean."""
    clear = rows[_costs(rows)].sort_values("rank")
    if clear.empty:
        return f"No head clearly costs accuracy alone{on}."
    best = clear.iloc[0]
    cost = f"**{100 * best['score']:.0f} points**{on}."
    if len(clear) == 1:
        return f"Of {len(rows)} heads, only **{best['name']}** clearly costs accuracy alone: {cost}"
    return f"Of {len(rows)} heads, {len(clear)} clearly cost accuracy alone, most **{best['name']}**: {cost}"


def costs_only_together(mean: pd.DataFrame, rows: pd.DataFrame, found: Removal) -> bool:
    """Returns whether removing the induction heads together is a clear loss, and none of them clearly costs accuracy
    alone (`mean`: `aggregate_rows`, `rows`: `head_rows`)."""
    if found.removed is None or not found.removed.is_loss:
        return False
    alone = {*mean.loc[_costs(mean), "name"], *rows.loc[_costs(rows), "name"]}
    return alone.isdisjoint(mean.loc[list(found.heads), "name"])


def joint_in_words(found: Removal, on: str = "") -> str:
    """Returns what the induction heads of a removal that `costs_only_together` cost `on` a task, if it is to be
    named."""
    lost = -found.removed.points if found.removed else np.nan
    words = f"The {len(found.heads)} induction heads cost nothing clear alone"
    return f"{words}, but **{lost:.0f} points** together{on and f' on {on}'}."


def joint_rows(scores: Scores, rows: pd.DataFrame, found: Removal) -> pd.DataFrame:
    """Returns one row per set of heads, in points lost with their 95% interval: the costliest heads alone that are
    clear, the costliest induction heads alone, all of these together, and as many at random (mean and range).
    `scores`: of the oracle on one task, `rows`: its `head_rows`."""
    assert scores.flips is not None and found.removed is not None
    (gained, lost), rows = scores.flips.reshape(2, -1).tolist(), rows.reset_index(drop=True)
    clear = rows[_costs(rows)].nlargest(MOST_ALONE, "score")
    induction = rows.loc[list(found.heads)].nlargest(MOST_ALONE, "score", keep="first").sort_index()
    sets = [(name, at, is_clear) for at, name, is_clear in clear[["name", "is_clear"]].itertuples()]
    sets += [
        (f"induction head {name}", at, is_clear) for at, name, is_clear in induction[["name", "is_clear"]].itertuples()
    ]
    changes = [Paired(scores.n, gained[at], lost[at], mcnemar(gained[at], lost[at])) for _, at, _ in sets]
    alone = [
        without_row(f"{name} alone", change, is_clear)
        for (name, _, is_clear), change in zip(sets, changes, strict=True)
    ]
    return pd.DataFrame([*alone, *together_rows(found, "induction heads", True)])


def removed_rows(found: Removal, names: Sequence[str]) -> pd.DataFrame:
    """Returns the rows of `joint_rows` for the best heads by a gradient, whose `names` are by flat index: each alone as
    far as measured, at 5% for all of these together (Holm), then all together, and as many at random."""
    adjusted = holm([each.change.p_mcnemar for each in found.alone])
    alone = [
        without_row(f"{names[head]} alone", each.change, p < ALPHA)
        for head, each, p in zip(found.heads, found.alone, adjusted, strict=False)
    ]
    is_clear = found.removed is not None and found.removed.change.is_significant
    return pd.DataFrame([*alone, *together_rows(found, "heads", is_clear)])


def removed_in_words(rows: pd.DataFrame, n: int, task: str) -> str:
    """Describes what the n heads of complete `removed_rows` cost together."""
    together, at_random = (number(lost, 0) for lost in rows["lost"][n:])
    return f"On {task}, the top {n} heads together cost **{together} points**, {n} random heads {at_random}."


def n_unclear(mean: Scores) -> int:
    """Returns how many heads an oracle's mean finds no clear change for."""
    rows = _tested(_ranked(mean))
    return int((~rows["is_clear"]).sum()) if "is_clear" in rows else 0


def _costs(rows: pd.DataFrame) -> pd.Series:
    """Returns whether removing each head of an oracle clearly costs accuracy."""
    return rows["is_clear"] & (rows["score"] > 0)


def top_ffn_in_words(rows: pd.DataFrame, on: str) -> str:
    """Returns which FFN costs most accuracy `on` a task, or in the mean over tasks (`ffn_mean`)."""
    best = rows.nsmallest(1, "rank").iloc[0]
    if best["score"] <= 0 or not best["is_clear"]:
        return f"No FFN clearly costs accuracy alone {on}."
    return f"{on[:1].upper()}{on[1:]}, **{best['name']}** costs most: **{100 * best['score']:.0f} points**."


def ffns_in_words(rows: pd.DataFrame) -> str:
    """Returns how many results of `ffn_rows` are not clear."""
    return f"Gray: no clear change ({int((~rows['is_clear']).sum())} of {len(rows)} cells)."


def agreement_in_words(found: Agreement, a: str, b: str) -> str:
    """Returns text such as "rank correlation +0.62, 95% interval +0.31 to +0.81, p = 0.001"."""
    i, j = found.labels.index(a), found.labels.index(b)
    if np.isnan(found.srcc[i, j]):
        return "rank correlation undefined"
    srcc, low, high = (number(table[i, j], sign=True) for table in (found.srcc, found.low, found.high))
    return f"rank correlation **{srcc}**, 95% interval {low} to {high}, {p_in_words(found.p[i, j])}"


def trust_in_words(found: Agreement, what: str, n_unclear: int, n: int) -> str:
    """Returns how far a gradient score and the oracle agree, of whose `n` heads `n_unclear` are not clear."""
    if 2 * n_unclear > n:
        return f"Measured one by one, {n_unclear} of {n} heads show no clear loss, so these ranks are unchecked."
    return f"Gradients are an estimate. With measured losses: {agreement_in_words(found, what, ORACLE)}."


def _as_ffns(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns rows of one component a layer, ranked as if it were a head, as those of FFNs."""
    return rows.drop(columns="head").assign(name=[f"F{layer}" for layer in rows["layer"]])


def _tested(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows with `is_clear` in place of the questions gained and lost, if they have those."""
    if "gained" not in rows:
        return rows
    adjusted = holm([mcnemar(*flips) for flips in zip(rows["gained"], rows["lost"], strict=True)])
    return rows.drop(columns=["gained", "lost"]).assign(is_clear=np.array(adjusted) < ALPHA)


def _ranked(found: Scores, task: TaskSpec | None = None) -> pd.DataFrame:
    """Returns one row per component with its layer and head, or head 0 with one component per layer."""
    scores = found.scores
    rank = np.empty(scores.size, int)
    rank[order(scores, found.tie_break)[::-1]] = np.arange(1, scores.size + 1)
    layer, head = np.divmod(np.arange(scores.size), scores.size // len(scores))
    names = [f"L{of}H{at}" for of, at in zip(layer, head, strict=True)]
    of = {} if task is None else {"task": task.name, "shots": task.shots}
    flips = {} if found.flips is None else dict(zip(("gained", "lost"), found.flips.reshape(2, -1), strict=True))
    rows = {"layer": layer, "head": head, "name": names, "score": scores.ravel(), "rank": rank}
    return pd.DataFrame(of | rows | flips)

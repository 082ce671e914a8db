"""How much rankings agree, as tables and sentences: every two tasks at one shot count, every two counts of one task."""

import hashlib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from engine.importance.rankings import agreement, agreement_within_layers, n_top
from engine.questions.requests import TaskSpec
from engine.statistics import Z_95
from engine.studies.statements import few_and_zero
from engine.studies.surveys import AGGREGATE, RANDOM, Survey, agreement_rows, in_words, written_row
from pages.ui.page.tables import number, p_in_words

CONTROLS = (AGGREGATE, RANDOM)
SWAPPED = {"a": "b", "first": "second", "shots_a": "shots_b"}  # columns of a pair: one ranking's and the other's
NAMES = {"srcc": "rank correlation", "within": "rank correlation within a layer", "overlap": "top-30% overlap"}
ALIKE, PARTLY_ALIKE = 0.7, 0.3  # mean SRCC from which tasks rank components largely, or partly, alike
UNDEFINED = "undefined: all scores of one are equal"


@dataclass(frozen=True)
class ScoreAgreement:
    """How far tasks agree by one score, at one shot count."""

    pairs: pd.DataFrame  # one row for every two tasks
    scores: Mapping[str, np.ndarray]  # by task

    @property
    def n(self) -> int:
        """Components in each ranking."""
        return next(iter(self.scores.values())).size

    @property
    def ties(self) -> int:
        """Components of a task that share their score with another, at most."""
        return max(map(tied, self.scores.values()))

    @property
    def mostly_ties(self) -> bool:
        return mostly_tied(*self.scores.values())


def digest(found: Survey) -> str:
    """Returns a text that changes with any of the scores."""
    content = hashlib.blake2b(digest_size=16)
    for task, scores in found.scores.items():
        content.update(f"{task} {scores.scores.shape} {scores.scores.dtype} ".encode())
        content.update(np.ascontiguousarray(scores.scores).tobytes())
    return content.hexdigest()


def label(name: str, shots: int) -> str:
    """Returns a label such as "piqa, 5 shots"."""
    return in_words(TaskSpec(name, shots))


def rankings(found: Survey) -> dict[str, np.ndarray]:
    """Returns scores by label: of every task and count."""
    return {in_words(task): each.scores for task, each in found.scores.items()}


def labels(names: Sequence[str], counts: Sequence[int]) -> list[str]:
    """Returns every label that `rankings` can have for these tasks and shot counts, the largest count first."""
    return [label(name, count) for count in reversed(counts) for name in names]


def pair_rows(found: Survey, how: str) -> pd.DataFrame:
    """Returns every two rankings: `labelled` rows of `engine.studies.surveys.agreement_rows`, with the SRCC `within` a
    layer, which is nan for the controls, and for rankings of which most components tie."""
    scores = rankings(found)
    tied_at_cut = {name for name, each in scores.items() if ties_at_cut(each)}
    rows = labelled(agreement_rows(found, how), tied_at_cut)
    known = {name: each for name, each in scores.items() if not mostly_tied(each)}
    srcc = pd.DataFrame(agreement_within_layers(known) if known else [], [*known], [*known])
    is_known = ~rows["a"].isin(CONTROLS) & ~rows["b"].isin(CONTROLS)
    within = srcc.stack().reindex(pd.MultiIndex.from_frame(rows[["first", "second"]])).to_numpy()
    return rows.assign(within=np.where(is_known, within, math.nan))


def between_tasks(pairs: pd.DataFrame) -> pd.DataFrame:
    """Returns the pairs without the aggregate, which each task is part of, and without the random ranking; without an
    overlap where ties leave open which components are in it."""
    pairs = pairs[~pairs["a"].isin(CONTROLS) & ~pairs["b"].isin(CONTROLS)]
    return pairs.assign(overlap=pairs["overlap"].mask(pairs["cut_ties"] | pairs["srcc"].isna()))


def of_tasks(pairs: pd.DataFrame, shots: int) -> pd.DataFrame:
    """Returns every two tasks at one shot count."""
    pairs = between_tasks(pairs)
    return pairs[pairs["kind"].eq("tasks") & pairs["shots_a"].eq(shots)]


def labelled(found: Sequence[Mapping], tied_at_cut: Collection[str] = ()) -> pd.DataFrame:
    """Returns the rows in their file format, with the labels of both rankings, `first` and `second`, their shot counts,
    `shots_a` and `shots_b`, and whether one is in `tied_at_cut` as `cut_ties`."""
    rows = []
    for row in found:
        a, b = row["a"], row["b"]
        more = {"first": label(a.name, a.shots), "second": label(b.name, b.shots)}
        cut_ties = any(each in tied_at_cut for each in more.values())
        rows.append({**written_row(row), **more, "cut_ties": cut_ties, "shots_a": a.shots, "shots_b": b.shots})
    return pd.DataFrame(rows)


def cells(pairs: pd.DataFrame, column: str, order: Sequence[str]) -> pd.DataFrame:
    """Returns one row per cell of a matrix, every two rankings once, that later in `order` first: at, a, b, first,
    second, `value` (that of `column`) and the tooltip's columns. Equal scores are not a ranking and agree with none."""
    swapped = pairs["a"].map([*order].index) < pairs["b"].map([*order].index)
    back = pairs[swapped].rename(columns={**SWAPPED, **{back: there for there, back in SWAPPED.items()}})
    both = pd.concat([pairs[~swapped], back], ignore_index=True)
    words = [_tooltip(row) for row in both.to_dict("records")]
    both = both[["at", *SWAPPED, *SWAPPED.values(), "low", "high"]].assign(
        value=both[column], number=both[column].map(number)
    )
    return both.join(pd.DataFrame(words, index=both.index))


def shared_rows(scores: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Returns one row per head: layer, head, name, and the `n` tasks in whose top 30% it is, with their names as
    `tasks`; no rows for FFNs, for fewer than two tasks, or where ties leave open which heads those are."""
    if len(scores) < 2 or any(each.ndim != 2 or ties_at_cut(each) for each in scores.values()):
        return pd.DataFrame(columns=["layer", "head", "name", "n", "tasks"])
    first = next(iter(scores.values()))
    in_top = pd.DataFrame({name: each.ravel() for name, each in scores.items()}).rank(ascending=False) <= n_top(
        first.size
    )
    tasks = [", ".join(in_top.columns[list(row)]) or "none" for row in in_top.itertuples(index=False)]
    found = rank_rows(first, first)[["layer", "name"]]
    return found.assign(head=np.arange(first.size) % first.shape[1], n=in_top.sum(axis=1), tasks=tasks)


def count_cells(pairs: pd.DataFrame, column: str) -> pd.DataFrame:
    """Returns `cells` of two shot counts of a task: a and b are the counts alone, such as "5"."""
    pairs = pairs.assign(a=pairs["shots_a"].map(str), b=pairs["shots_b"].map(str))
    return cells(pairs, column, [str(count) for count in sorted({*pairs["shots_a"], *pairs["shots_b"]})])


def mean_cells(cross: pd.DataFrame) -> pd.DataFrame:
    """Returns the mean over tasks of `count_cells`, with the number of tasks and their lowest and highest."""
    rows = []
    for (a, b), group in cross.groupby(["a", "b"], sort=False):
        known = group.dropna(subset=["value"])
        row = {"a": a, "b": b, "value": known["value"].mean(), "n": len(known), "lowest": "–", "highest": "–"}
        if len(known):
            low, high = (find(1, "value").iloc[0] for find in (known.nsmallest, known.nlargest))
            row |= {"lowest": f"{low['number']} {low['at']}", "highest": f"{high['number']} {high['at']}"}
        rows.append(row)
    frame = pd.DataFrame(rows, columns=["a", "b", "value", "n", "lowest", "highest"])
    return frame.assign(number=frame["value"].map(number))


def names_in_order(pairs: pd.DataFrame, by: str) -> list[str]:
    """Returns the names in a matrix of tasks: as chosen, or by `similarity`, those that agree side by side (leaves of
    average linkage on 1 - SRCC, in the optimal order). [] without two tasks."""
    names = list(dict.fromkeys([*pairs["a"], *pairs["b"]]))
    return _by_similarity(pairs, sorted(names)) if by == "similarity" and len(names) > 2 else names


def _by_similarity(pairs: pd.DataFrame, names: list[str]) -> list[str]:
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    at = {name: place for place, name in enumerate(names)}
    apart = np.ones((len(names), len(names)))  # an undefined coefficient counts as 0
    for a, b, srcc in zip(pairs["a"], pairs["b"], pairs["srcc"], strict=True):
        if not math.isnan(srcc):
            apart[at[a], at[b]] = apart[at[b], at[a]] = 1 - srcc
    np.fill_diagonal(apart, 0)
    tree = linkage(squareform(apart, checks=False), "average", optimal_ordering=True)
    ordered = [names[leaf] for leaf in leaves_list(tree)]
    return ordered if ordered[0] < ordered[-1] else ordered[::-1]  # either end could come first


def rank_rows(a: np.ndarray, b: np.ndarray) -> pd.DataFrame:
    """Returns layer, name, rank_a and rank_b of every component, and the number `n` that have both ranks; 1 is the
    most important, and equal scores share their mean, as in SRCC."""
    layer, head = np.divmod(np.arange(a.size), a.size // len(a))
    names = [f"L{of}H{at}" if a.ndim == 2 else f"F{of}" for of, at in zip(layer, head, strict=True)]
    frame = pd.DataFrame({"layer": layer, "name": names, "rank_a": a.ravel(), "rank_b": b.ravel()})
    frame = frame.assign(rank_a=frame["rank_a"].rank(ascending=False), rank_b=frame["rank_b"].rank(ascending=False))
    return frame.assign(n=frame.groupby(["rank_a", "rank_b"])["name"].transform("size"))


def ties_in_words(of: ScoreAgreement, noun: str) -> str:
    """Returns that most components tie on a task; "" if they don't."""
    return f"{of.ties} of {of.n} {noun}s tie on a task: their order says nothing." if of.mostly_ties else ""


def takeaway(pairs: pd.DataFrame, column: str, n: int, noun: str = "head") -> str:
    """Returns how far tasks rank their `n` components alike by a coefficient, its mean and range; "" without one."""
    known = pairs[column].dropna()
    if known.empty:
        return ""
    mean, is_one = known.mean(), len(known) == 1
    said = f"{'' if is_one else 'mean '}{NAMES[column]} **{number(mean)}**"
    said += "" if is_one else f" over {len(known)} pairs of tasks, from {number(known.min())} to {number(known.max())}"
    if column == "srcc" and abs(mean) < chance(n):
        return f"Tasks show **no detectable agreement** on {noun}s: {said} (by chance within ±{chance(n):.2f})."
    if column in ("srcc", "within"):
        return f"Tasks rank {noun}s **{_likeness(mean)}**: {said}."
    return f"{said[0].upper()}{said[1:]}."


def shared_in_words(rows: pd.DataFrame, n_tasks: int) -> str:
    """Returns how many heads of `shared_rows` all tasks need, and how many they would by chance."""
    n, tasks = len(rows), "both tasks" if n_tasks == 2 else f"all {n_tasks} tasks"
    by_chance = n * (n_top(n) / n) ** n_tasks
    said = number(by_chance, 1) if by_chance >= 0.05 else "none"
    return f"{(rows['n'] == n_tasks).sum()} of {n} heads are in the top 30% of {tasks} (by chance {said})."


def _by_chance(n: int) -> str:
    """Returns how many of the top 30% of `n` components two random rankings share."""
    return number(n_top(n) ** 2 / n, 1)


def chance(n: int) -> float:
    """Returns the SRCC under which that of two random rankings of `n` components is in 95% of cases."""
    return Z_95 / math.sqrt(max(1, n - 1))


def tied(scores: np.ndarray) -> int:
    """Returns how many components share their score with another."""
    counts = np.unique(scores, return_counts=True)[1]
    return int(counts[counts > 1].sum())


def mostly_tied(*scores: np.ndarray) -> bool:
    """Returns whether more than half of the components of one ranking share their score with another."""
    return any(2 * tied(each) > each.size for each in scores)


def ties_at_cut(scores: np.ndarray) -> bool:
    """Returns whether components that tie are on both sides of the end of the top 30%."""
    falling, n = np.sort(scores, axis=None)[::-1], n_top(scores.size)
    return n < falling.size and bool(falling[n - 1] == falling[n])


def _likeness(srcc: float) -> str:
    return "largely alike" if srcc >= ALIKE else "partly alike" if srcc >= PARTLY_ALIKE else "differently"


def few_in_words(cross: pd.DataFrame, column: str) -> str:
    """Describes whether two few-shot rankings agree more than zero-shot and few-shot, as Bansal et al. found; with too
    few counts for that, the mean over tasks alone."""
    few, zero = few_and_zero(_coefficients(cross, column))
    if math.isnan(few) or math.isnan(zero):
        return f"Two shot counts of a task: mean {NAMES[column]} **{number(cross[column].mean())}**."
    more = "more than" if few > zero else "no more than"
    return f"Two few-shot rankings agree {more} zero-shot and few-shot: mean **{number(few)}** and **{number(zero)}**."


def _coefficients(cross: pd.DataFrame, column: str) -> Iterable[tuple[int, int, float]]:
    return zip(cross["shots_a"], cross["shots_b"], cross[column], strict=True)


def pair_in_words(pairs: pd.DataFrame, scores: Mapping[str, np.ndarray], first: str, second: str) -> str:
    """Describes SRCC of two rankings with its interval, that within a layer, and the overlap of their top 30%, unless
    ties reach across its end: from their row of `pairs`, or computed here if they differ in both task and shots."""
    known = pairs[[{first, second} == {*both} for both in zip(pairs["first"], pairs["second"], strict=True)]]
    row = known.iloc[0].to_dict() if len(known) else {}
    if not row:
        found = agreement({side: scores[side] for side in (first, second)})
        row = {name: float(getattr(found, name)[0, 1]) for name in ("srcc", "low", "high", "p", "overlap")}
    if math.isnan(row["srcc"]):
        return f"Rank correlation {UNDEFINED}."
    n, count = scores[first].size, n_top(scores[first].size)
    two = {side: scores[side] for side in (first, second)}
    words = f"Rank correlation **{number(row['srcc'])}** ({_interval(row)})"
    if not mostly_tied(*two.values()) and not math.isnan(within := agreement_within_layers(two)[0, 1]):
        words += f", **{number(within)}** within a layer"
    if any(map(ties_at_cut, two.values())):
        return f"{words}."
    shares = f"They share {round(row['overlap'] * count):,} of the {count:,} in each top 30%"
    return f"{words}. {shares} (chance {_by_chance(n)})."


def csv_rows(pairs: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows that `headroom correlate` writes."""
    return pairs.drop(columns=["first", "second", "shots_a", "shots_b", "cut_ties", "within"])


def _tooltip(row: dict) -> dict[str, str]:
    pair = f"{row['first']} and {row['second']}"
    if math.isnan(row["srcc"]):
        return {"pair": pair, "srcc": UNDEFINED, "interval": "–", "p": "–", "shared": number(row["overlap"])}
    interval, p = f"{number(row['low'])} to {number(row['high'])}", p_in_words(row["p"]).removeprefix("p = ")
    return {"pair": pair, "srcc": number(row["srcc"]), "interval": interval, "p": p, "shared": number(row["overlap"])}


def _interval(row: dict) -> str:
    if math.isnan(row["low"]):
        return "no interval, as the orders are equal or opposite"
    return f"95% interval {number(row['low'])} to {number(row['high'])}"

"""Induction scores as tables with one row per head, and the scores left as heads are pruned."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pandas as pd

from engine.heads.induction import N_ERRORS, SCORES, InductionScores, retained
from engine.importance.rankings import agreement, n_top, random_order
from engine.shapes import ModelShape
from pages.ui.figures.induction_scores import RULE
from pages.ui.induction.charts import shown
from pages.ui.page.tables import number, percent

N_RANDOM = 20  # random orders of the mean and the band
LEVELS = np.linspace(0, 1, 51)
MOST_NAMED = 8  # induction heads in the finding


def head_scores(shape: ModelShape, found: InductionScores, selected: Collection[str]) -> pd.DataFrame:
    """Returns layer, head, name, selected, in_corner, hardly_copies (in the corner, but not clearly above
    chance) and for each score its mean, standard error and rank; copying also as shown, `copying_share`."""
    layer, head = np.divmod(np.arange(shape.n_heads_total), shape.n_heads)
    names = shape.head_names
    columns = {"layer": layer, "head": head, "name": names}
    frame = pd.DataFrame(columns).assign(selected=[name in selected for name in names])
    each = {name: (found.mean[name], found.standard_error[name]) for name in SCORES}
    each["copying_share"] = found.copying_share, found.copying_share_error
    for name, (mean, se) in each.items():
        frame[name], frame[f"{name}_se"] = mean.ravel(), se.ravel()
        frame[f"{name}_rank"] = frame[name].rank(ascending=False, method="min")
    corner = found.is_induction_head.ravel()
    return frame.assign(in_corner=corner, hardly_copies=corner & found.copies_hardly.ravel())


def retained_lines(
    scores: np.ndarray, orders: Mapping[str, np.ndarray], chosen: str, aggregate: np.ndarray | None
) -> pd.DataFrame:
    """Returns rows for `charts.retained_chart`: every task's order, the chosen one first with its reverse, the
    aggregate's, and the mean of random orders with the band that holds 95% of them."""
    others = {task: order for task, order in orders.items() if task != chosen}
    left = {task: _at_levels(retained(scores, order)) for task, order in others.items()}
    rows = [pd.DataFrame({"line": task, "kind": "task", "left": share}) for task, share in left.items()]
    if aggregate is not None:
        left = _at_levels(retained(scores, aggregate))
        rows.append(pd.DataFrame({"line": "aggregate", "kind": "aggregate", "left": left}))
    if chosen in orders:
        for kind, order in (("chosen", orders[chosen]), ("reversed", orders[chosen][::-1])):
            line = chosen if kind == "chosen" else f"{chosen}, reversed"
            rows.append(pd.DataFrame({"line": line, "kind": kind, "left": _at_levels(retained(scores, order))}))
    drawn = np.stack([_at_levels(retained(scores, random_order(scores.size, seed))) for seed in range(N_RANDOM)])
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    rows.append(pd.DataFrame({"line": "random", "kind": "random", "left": drawn.mean(0), "low": low, "high": high}))
    return pd.concat([row.assign(level=LEVELS) for row in rows], ignore_index=True)


def _at_levels(left: np.ndarray) -> np.ndarray:
    """Returns `left` after 0, 1, 2, ... pruned heads, read at LEVELS."""
    return left[np.floor(LEVELS * (len(left) - 1) + 1e-9).astype(int)]


def in_words(frame: pd.DataFrame, score: str) -> str:
    """Returns a map as a sentence, for screen readers."""
    best, written = frame.dropna(subset=[score]).nlargest(3, score), percent if score == "copying" else number
    heads = ", ".join(f"{name} {written(value)}" for name, value in zip(best["name"], best[shown(score)], strict=True))
    return f"{len(frame)} heads; highest: {heads}." if heads else f"{len(frame)} heads; it is defined for none of them."


def corner_in_words(frame: pd.DataFrame) -> str:
    """Describes the heads in the induction corner, and where it begins; "none" if it is not drawn."""
    return f"Induction heads ({RULE}): {', '.join(frame.loc[frame['in_corner'], 'name']) or 'none'}."


def finding(frame: pd.DataFrame) -> str:
    """Describes how many heads are clear induction heads, and how many more copy hardly more than chance."""
    inside, hardly = frame["in_corner"], frame["hardly_copies"]
    names, of, kind = frame.loc[inside & ~hardly, "name"].tolist(), f"{len(frame):,} heads", "induction head"
    kind = f"clear {kind}" if hardly.any() else kind
    if names:
        said = f"**{len(names)} of {of} are {kind}s**: {_shortened(names)}"
    else:
        said = f"**None of {of} is {'a' if hardly.any() else 'an'} {kind}** ({RULE})"
    return f"{said}; in {hardly.sum()} more, copying is hardly above chance." if hardly.any() else f"{said}."


def finding_help(frame: pd.DataFrame) -> str:
    """Returns the rule of induction heads and the whole lists, of the clear ones and of the others."""
    inside, hardly = frame["in_corner"], frame["hardly_copies"]
    if not hardly.any():
        return corner_in_words(frame)
    clear, others = (", ".join(frame.loc[each, "name"]) for each in (inside & ~hardly, hardly))
    return (
        f"Induction heads: {RULE}. Clear: more than {N_ERRORS} standard errors above it ({clear or 'none'}). Hardly "
        f"more than chance: {others}."
    )


def _shortened(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"


def overlap_rows(frame: pd.DataFrame, importance: Mapping[str, np.ndarray], top: int = 10) -> pd.DataFrame:
    """Returns one row per ranking: SRCC of its importance with prefix matching and copying, each with the p of random
    relabellings, and how many of the `top` heads by prefix matching are among its 30% most important."""
    top = min(top, len(frame))
    best = set(frame.nlargest(top, "prefix_matching").index)
    induction = {name: frame[name].to_numpy() for name in ("prefix_matching", "copying")}
    found = agreement({**induction, **{line: scores.ravel() for line, scores in importance.items()}})
    rows = []
    for at, (line, scores) in enumerate(importance.items(), start=len(induction)):
        important = set(np.argsort(-scores.ravel(), kind="stable")[: n_top(len(frame))])
        row = {"ranking": line, "kept": len(best & important), "of": top}
        for of, name in enumerate(induction):
            row |= {f"{name}_srcc": float(found.srcc[at, of]), f"{name}_p": float(found.p[at, of])}
        rows.append(row)
    return pd.DataFrame(rows)

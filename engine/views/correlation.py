"""How far the importance of components agrees between tasks, shot counts, and other scores."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from engine.importance.rankings import TOP_SHARE
from engine.questions.requests import TaskSpec
from engine.studies.surveys import in_words, shots_in_words
from engine.views import kit
from engine.views.view import Column, Part, View, interval
from engine.views.words import listed, not_measured, number

COLUMNS = {
    "at": Column("Shots, or task"),
    "a": Column("Ranking"),
    "b": Column("Other ranking"),
    "srcc": Column("Rank correlation, −1 to 1", "+.3f", "Spearman's, over heads or FFNs."),
    **interval("+.2f"),
    "p": Column("p", ".3f"),
    "overlap": Column(f"Shared of the top {TOP_SHARE:.0%}", ".0%"),
}


def correlation_view(
    rows: Sequence[Mapping[str, Any]],
    means: Mapping[str, float | None],
    mean: Part | None,
    failed: Mapping[TaskSpec, str],
) -> View:
    """How far every two rankings agree. `rows`: of every two, as in files; `means`: of two tasks by shot count;
    `mean`: the mean scores of all tasks (`mean_scores_part`)."""
    parts = [Part("Two rankings", rows, COLUMNS, ranked_by="srcc")]
    for at in dict.fromkeys(row["at"] for row in rows if row["kind"] == "tasks"):
        pairs = square([row for row in rows if row["kind"] == "tasks" and row["at"] == at])
        draw = partial(kit.matrix, x="a", y="b", value="srcc", signed=True)
        parts.append(Part(f"Rankings of tasks, {shots_in_words(int(at))}", pairs, COLUMNS, draw))
    known = [
        f"{number(mean, 3)} with {shots_in_words(int(shots))}" for shots, mean in means.items() if mean is not None
    ]
    highest = mean.caption if mean else ""
    if known:
        finding = f"**Mean rank correlation of two tasks: {listed(known, len(known))}**; {highest}"
    else:
        finding = f"**No two tasks could be compared**; {highest}" if mean else ""
    parts += [mean] if mean else []
    notes = not_measured({in_words(task): reason for task, reason in failed.items()})
    return View(finding, parts, notes, on_slide=2)


def square(pairs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a matrix: every pair of `a` and `b` in both directions, and each name with itself, without
    numbers."""
    names = dict.fromkeys(row[side] for side in ("a", "b") for row in pairs)
    known = {(row["a"], row["b"]): row for row in pairs}
    return [{**known.get((a, b), known.get((b, a), {})), "a": a, "b": b} for a in names for b in names]

"""What in-context learning loses without kinds of heads, of one model and along a training run."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from engine.heads.induction import best_heads
from engine.shapes import ModelShape
from engine.studies.mechanism_findings import finding_of_scores, mechanisms_finding
from engine.studies.mechanisms import RANDOM, Mechanisms, depths, overlaps
from engine.views.correlation import square
from engine.views.forms import kit, maps
from engine.views.view import Column, Part, View, interval
from engine.views.words import counted, listed, not_measured, number, plain, with_interval

N_BEST = 10
PREDICTED = {"canceller": "likelier", "writer": "less likely"}  # of the right choice without these heads
LOST = {
    "points_lost": Column("Gain from examples lost, points", "+.1f"),
    **interval("+.1f"),
    "beyond_random": Column("Beyond random", help="Clear, and clearly more than without each random set."),
}


def mechanisms_view(found: Mechanisms, shape: ModelShape) -> View:
    """What is lost of the gain from examples without each kind of heads, next to as many random ones; the best heads of
    each kind; and how many two kinds share."""
    rows = [row | {"set": _name(row)} for row in found.rows(shape)]
    examples = f"{counted(found.settings.shots, 'example')}{found.settings.specs[0].manner}"
    parts = [
        Part(
            f"Heads removed, of a gain of {number(found.gain, 1, sign=True)} points from {examples}",
            rows,
            {"set": Column("Heads removed"), **LOST, "heads": Column("Which")},
            partial(kit.intervals, y="set", x="points_lost", low="low", high="high", clear="beyond_random"),
            "Points of the gain from examples that are lost, each random set a point; colored: beyond random.",
        ),
        _kinds(found, shape),
        _shared(found, shape),
    ]
    words = mechanisms_finding(found, shape) or finding_of_scores(found, shape)
    first, _, others = words.partition(". ")
    headline = f"**{first.removesuffix('.')}.** {others}".strip() if words else ""
    return View(headline, parts, not_measured(found.failed))


def _name(row: Mapping[str, Any]) -> str:
    """A set of heads, such as "induction alone, 10%"; random sets of as many heads share their name."""
    return f"{row['kind']}{' alone' * row['exclusive']}, {100 * row['share']:g}%"


def _kinds(found: Mechanisms, shape: ModelShape) -> Part:
    depth = depths(shape, found.scores)
    rows = [
        {"kind": kind, "depth": depth[kind], "heads": " ".join(name for name, _ in best_heads(scores, N_BEST))}
        for kind, scores in found.scores.items()
    ]
    columns = {"kind": Column("Kind"), "depth": Column("Mean depth, 0 to 1", ".2f"), "heads": Column("Best heads")}
    return Part("Heads of each kind", rows, columns)


def _shared(found: Mechanisms, shape: ModelShape) -> Part:
    pairs = overlaps(shape, found.scores)
    rows, n = square(pairs), pairs[0]["n"] if pairs else 0
    columns = {"a": Column("Kind"), "b": Column("Other kind"), "shared": Column(f"Shared of the top {n}"),
               "srcc": Column("Rank correlation", "+.2f")}  # fmt: skip
    draw = partial(maps.matrix, x="a", y="b", value="shared")
    return Part("Heads that two kinds share", rows, columns, draw, finding_of_scores(found, shape))


def signs_view(rows: Sequence[Mapping[str, Any]]) -> View:
    """How much likelier the right choice is without cancellers and without writers, task by task, next to as many
    random heads, and whether the prediction holds. `rows`: of `SignedHeads`."""
    shown = [{**row, "set": f"{row['task']}: {_counted(row)}"} for row in rows]
    columns = {"set": Column("Heads removed"), "nats": Column("Right choice likelier, nats", "+.3f"),
               **interval("+.3f"), "points": Column("Points gained", "+.1f"), **interval("+.1f", "points_"),
               "holds": Column("As predicted", help="Clearly, and clearly more than without each random set."),
               "heads": Column("Which")}  # fmt: skip
    draw = partial(kit.intervals, y="set", x="nats", low="low", high="high", clear="holds")
    caption = "Log-likelihood of the right choice, each random set a point; colored: as predicted."
    words = [_prediction([row for row in shown if row["kind"] == kind], kind, how) for kind, how in PREDICTED.items()]
    return View(" ".join(words), [Part("Right choice without writers and cancellers", shown, columns, draw, caption)])


def _prediction(rows: Sequence[Mapping[str, Any]], kind: str, how: str) -> str:
    if not rows:
        side = "above" if kind == "writer" else "below"
        return f"**There are no {kind}s**: no function-vector score is clearly {side} 0."
    where = [row["task"] for row in rows if row["holds"]]
    changes = [f"{plain(row['task'])} {with_interval(row['nats'], row['low'], row['high'], 'nats')}" for row in rows]
    says = f"holds on {listed([plain(task) for task in where])}" if where else "does not hold"
    return f"**That the right choice is {how} without the {_counted(rows[0])} {says}**: {', '.join(changes)}."


def _counted(row: Mapping[str, Any]) -> str:
    """The heads of a row, such as "3 cancellers", or "1 random head"."""
    return counted(row["n_heads"], "random head" if row["kind"] == RANDOM else row["kind"])


def series_view(
    found: Mapping[int, Mechanisms], rows: Sequence[Mapping[str, Any]], first: Mapping[str, Mapping[str, int | None]]
) -> View:
    """What is lost without the top heads of each kind at each step of a training run. `rows`: of the largest sets;
    `first`: by kind, the first steps with half of its highest score and with a loss beyond random."""
    columns = {"step": Column("Training step", ","), "gain": Column("Gain from examples, points", "+.1f"),
               "kind": Column("Heads removed"), "score": Column("Mean score", ".2g"), **LOST}  # fmt: skip
    draw = partial(kit.curves, x="step", y="points_lost", by="kind")
    rows = [{**row, "gain": found[row["step"]].gain} for row in rows]
    steps = {"kind": Column("Kind"), "half_of_highest_score": Column("Half of its highest score from step", ","),
             "beyond_random": Column("Beyond random from step", ",")}  # fmt: skip
    needed = {kind: step["beyond_random"] for kind, step in first.items() if step["beyond_random"] is not None}
    if needed:
        words = listed([f"{kind} heads from step {step:,}" for kind, step in needed.items()])
        words = f"**Examples need {words}**: without them, clearly more is lost than without random heads"
    else:
        words = f"**No kind of heads is needed beyond random heads** at any of {counted(len(found), 'snapshot')}"
    parts = [
        Part("Gain from examples lost, by training step", rows, columns, draw),
        Part("When each kind comes", [{"kind": kind, **step} for kind, step in first.items()], steps),
    ]
    failed = {f"step {step}, {kind}": why for step, each in found.items() for kind, why in each.failed.items()}
    return View(f"{words}.", parts, not_measured(failed))

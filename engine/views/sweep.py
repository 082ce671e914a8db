"""Accuracy over tasks and pruning levels, and which statements of a paper hold."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from engine.importance.rankings_of import Axis
from engine.questions.requests import TaskSpec
from engine.statistics import Paired, Statement, detectable, mcnemar, smallest_clear
from engine.studies.statements import AT_CHANCE, BreakPoint
from engine.studies.surveys import in_words
from engine.studies.sweeps import SweepRow, Swept
from engine.views import kit
from engine.views.view import Column, Part, View, interval
from engine.views.words import NOUNS, Effect, counted, not_measured, number, percent, plain

OTHER: dict[Axis, Axis] = {"heads": "ffns", "ffns": "heads"}
TITLES = {"heads": "Heads pruned", "ffns": "FFNs pruned"}


def sweep_view(swept: Swept, breaks: Mapping[Axis, Sequence[BreakPoint]]) -> View:
    """Accuracy over the level, a curve for each task, and how far pruning can go: `breaks`, by axis (heads or FFNs)
    that has several levels."""
    failed = _not_measured(swept.failed)
    if not swept.rows:
        return View("", notes=failed)
    axes: list[Axis] = [*breaks, "heads"]
    axis = axes[0]
    is_whole = all(row.point.permille(each) % 10 == 0 for row in swept.rows for each in NOUNS)
    form = ".0%" if is_whole else ".1%"
    parts = [_curves(swept.rows, axis, form), *(_breaks(each, breaks[each], form) for each in breaks)]
    powers = {describe_power(each.n, each.looks): None for points in breaks.values() for each in points if each.looks}
    return View(_finding(swept.rows, axis, breaks.get(axis, ())), parts, [*powers, *failed])


def _not_measured(failed: Mapping[TaskSpec, str]) -> list[str]:
    return not_measured({in_words(task): reason for task, reason in failed.items()})


def _finding(rows: Sequence[SweepRow], axis: Axis, points: Sequence[BreakPoint]) -> str:
    """How far pruning can go until a task loses accuracy, and the change of all questions there."""
    readable = [each for each in points if not each.reading]
    if not readable:
        n, right = sum(row.n for row in rows), sum(row.acc * row.n for row in rows)
        is_at_chance = any(each.reading == AT_CHANCE for each in points)
        why = "; no full model is clearly above chance, so there is nothing to lose" if is_at_chance else ""
        return f"**{percent(right / n)} of {counted(n, 'answer')} right**{why}."
    least = min(readable, key=lambda each: each.no_loss_up_to)
    alone = [row for row in rows if not row.point.permille(OTHER[axis])]
    level = round(1000 * least.no_loss_up_to) or min(filter(None, (row.point.permille(axis) for row in alone)))
    change = _change([row for row in alone if row.point.permille(axis) == level])
    share = f"{level / 10:g}% of {NOUNS[axis]}"
    if least.no_loss_up_to:
        return f"**No task clearly loses accuracy up to {share} pruned**: {change}."
    return f"**Pruning {share} already costs accuracy on {plain(in_words(least.task))}**; of all tasks {change}."


def _change(rows: Sequence[SweepRow]) -> str:
    """The accuracy on the questions of all rows, and its change; with its interval where no question counts twice, as
    it does at several shot counts."""
    n, gained, lost = (sum(getattr(row, name) for row in rows) for name in ("n", "gained", "lost"))
    acc, change = sum(row.acc * row.n for row in rows) / n, Paired(n, gained, lost, mcnemar(gained, lost))
    words = f"{percent(acc)} right there instead of {percent(acc - change.difference)}"
    is_paired = len({row.point.task.shots for row in rows}) == 1
    return f"{words}, {Effect.of_paired(change).in_words()}, {counted(n, 'question')}" if is_paired else words


def _curves(swept: Sequence[SweepRow], axis: Axis, form: str) -> Part:
    rows, other = list[dict[str, Any]](), OTHER[axis]
    for row in swept:
        cells = row.cells()
        at = f", {100 * cells[other]:g}% of {NOUNS[other]}" * bool(cells[other])
        rows.append(cells | {"curve": in_words(row.point.task) + at})
    columns = {"curve": Column("Task"), axis: Column(TITLES[axis], form),
               "acc": Column("Questions right", ".1%"), **interval(".1%"),
               "lost": Column("Questions lost"), "gained": Column("Gained")}  # fmt: skip
    chances, n_curves = {row["chance"] for row in rows}, len({row["curve"] for row in rows})
    look: dict[str, Any] = {"low": "low", "high": "high"} if n_curves == 1 else {}
    look |= {"rules": {"chance": chances.pop()}} if len(chances) == 1 else {}
    draw = partial(kit.curves, x=axis, y="acc", by="curve", share=True, **look)
    return Part("Accuracy by level", rows, columns, draw)


def _breaks(axis: Axis, points: Sequence[BreakPoint], form: str) -> Part:
    rows = list[dict[str, Any]]()
    for each in points:
        cliff = "" if each.reading else describe_cliff(each.cliff_from, each.cliff_to, each.cliff_points)
        rows.append(each.cells() | {"curve": in_words(each.task), "cliff": cliff})
    columns = {
        "curve": Column("Task"),
        "full_acc": Column("Full model", ".1%"),
        "chance": Column("Chance", ".1%"),
        "reading": Column("Reading", help="Why nothing is read from the curve."),
        "no_loss_up_to": Column("No loss up to", form, "The measured level before the first detectable loss."),
        "first_detectable_loss": Column("First loss", form, "Exact McNemar test, 5% for all levels together (Holm)."),
        "cliff": Column("Cliff", help="The neighboring levels between which accuracy falls most."),
        "n": Column("Questions"),
    }
    shown = {name: column for name, column in columns.items() if any(row[name] != "" for row in rows)}
    return Part(f"How many {NOUNS[axis]} can be pruned", rows, shown)


def describe_power(n: int, looks: int) -> str:
    """The loss that n questions detect at one of `looks` levels: "With 100 questions, a loss of 12 ..."."""
    if not smallest_clear(n, looks):
        return f"{n} questions are too few to detect any loss at {looks} levels."
    loss, least = math.ceil(100 * detectable(n, looks)), 100 * smallest_clear(n) / n
    return f"With {n} questions, a loss of {loss} points is noticed 4 times in 5; under {least:.3g} points, never."


def describe_cliff(at: float, to: float, points: float) -> str:
    """Such as "70 to 80%, −47 points"; "none" if accuracy never falls."""
    if math.isnan(points):
        return "none"
    return f"{100 * at:g} to {100 * to:g}%, {number(points, 0, sign=True)} points"


def statements_view(found: Sequence[Statement], failed: Mapping[TaskSpec, str], folder: str = "") -> View:
    """Which statements of the paper hold for this model; `folder`: where the tables and the report are."""
    n_hold, n = (
        sum(each.verdict in verdicts for each in found) for verdicts in (("holds",), ("holds", "does not hold"))
    )
    finding = f"**{n_hold} of {counted(n, 'measured statement')} of the paper hold here.**"
    columns = {"verdict": Column("Verdict"), "text": Column("Statement"), "ours": Column("This model")}
    where = [f"Tables, figures and report.html are in {folder}"] if folder else []
    rows = [asdict(each) for each in found]
    return View(finding, [Part("Statements", rows, columns)], [*where, *_not_measured(failed)])

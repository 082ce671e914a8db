"""Accuracy over tasks and pruning levels, criteria compared by it, and which statements of a paper hold."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from engine.importance.orders import Axis
from engine.questions.rendering import TaskSpec
from engine.statistics import Paired, Statement, detectable, mcnemar, smallest_clear
from engine.studies.compare import BETTER, Area, ComparedCriteria
from engine.studies.compare import RANDOM as RANDOM_ORDERS
from engine.studies.statements import AT_CHANCE, SMALL_LOSS, BreakPoint
from engine.studies.surveys import describe_task, shots_in_words
from engine.studies.sweeps import SweepRow, Swept
from engine.views.forms import kit, maps
from engine.views.view import Column, Part, View, interval
from engine.views.words import NOUNS, Effect, counted, listed, not_measured, number, percent, plain

OTHER: dict[Axis, Axis] = {"heads": "ffns", "ffns": "heads"}
TITLES = {"heads": "Heads pruned", "ffns": "FFNs pruned", "both": "Heads and FFNs pruned"}
MEAN, RANDOM = "mean of tasks", "random orders, mean"
ORDERS = {"own": "own order", "aggregate": "other tasks' order", "rescored": "order rescored at each step"}


def sweep_view(swept: Swept, breaks: Mapping[Axis, Sequence[BreakPoint]], random: Sequence[SweepRow] = ()) -> View:
    """Accuracy over the level, a curve for each task, and how far pruning can go: `breaks`, by axis (heads or FFNs)
    that has several levels. `random`: the same tasks by random orders."""
    failed = _not_measured(swept.failed)
    if not swept.rows:
        return View("", notes=failed)
    axes: list[Axis] = [*breaks, "heads"]
    axis = axes[0]
    is_whole = all(row.point.permille(each) % 10 == 0 for row in swept.rows for each in NOUNS)
    form = ".0%" if is_whole else ".1%"
    curves = _curves(swept.rows, axis, form, random)
    parts = [curves, *grid_parts(swept.rows), *(break_part(each, breaks[each], form) for each in breaks)]
    powers = {describe_power(each.n, each.looks): None for points in breaks.values() for each in points if each.looks}
    return View(_finding(swept.rows, axis, breaks.get(axis, ())), parts, [*powers, *failed])


def _not_measured(failed: Mapping[TaskSpec, str]) -> list[str]:
    return not_measured({describe_task(task): reason for task, reason in failed.items()})


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
    return f"**Pruning {share} already costs accuracy on {plain(describe_task(least.task))}**; of all tasks {change}."


def _change(rows: Sequence[SweepRow]) -> str:
    """The accuracy on the questions of all rows, and its change; with its interval where no question counts twice, as
    it does at several shot counts."""
    n, gained, lost = (sum(getattr(row, name) for row in rows) for name in ("n", "gained", "lost"))
    acc, change = sum(row.acc * row.n for row in rows) / n, Paired(n, gained, lost, mcnemar(gained, lost))
    words = f"{percent(acc)} right there instead of {percent(acc - change.difference)}"
    is_paired = len({row.point.task.shots for row in rows}) == 1
    return f"{words}, {Effect.of_paired(change).in_words()}, {counted(n, 'question')}" if is_paired else words


def orders_view(rows: Sequence[SweepRow]) -> View:
    """Accuracy over the heads pruned, a curve for each task and order, and the mean of each order."""
    accs: dict[str, list[float]] = {}
    for row in rows:
        accs.setdefault(ORDERS[row.point.by], []).append(row.acc)
    means = listed([f"{name} {percent(sum(each) / len(each))}" for name, each in accs.items()])
    return View(f"**Mean accuracy over the levels: {means}.**", [_curves(rows, "heads", ".0%", ())])


def _curves(swept: Sequence[SweepRow], axis: Axis, form: str, random: Sequence[SweepRow]) -> Part:
    """A curve for each task, and with several tasks their mean; the mean of random orders with the range of theirs."""
    rows, other, has_orders = list[dict[str, Any]](), OTHER[axis], len({row.point.by for row in swept}) > 1
    for row in swept:
        cells = row.cells()
        at = f", {100 * cells[other]:g}% of {NOUNS[other]}" * bool(cells[other])
        at += f", {ORDERS.get(row.point.by, row.point.by)}" * has_orders
        rows.append(cells | {"curve": describe_task(row.point.task) + at})
    columns = {"curve": Column("Task"), axis: Column(TITLES[axis], form),
               "acc": Column("Questions right", ".1%"), **interval(".1%"),
               "lost": Column("Questions lost"), "gained": Column("Gained")}  # fmt: skip
    chances, n_curves = {row["chance"] for row in rows}, len({row["curve"] for row in rows})
    kwargs: dict[str, Any] = {"low": "low", "high": "high"} if n_curves == 1 else {}
    kwargs |= {"rules": {"chance": chances.pop()}} if len(chances) == 1 else {}
    means = _mean_curve(swept, axis) if n_curves > 1 and not has_orders else {}
    rows += [{"curve": MEAN, axis: level / 1000, "acc": acc} for level, acc in means.items()]
    if random and means:
        kwargs |= {"low": "lowest", "high": "highest"}
        rows += _random_curve(random, axis, means, {row.point.task for row in swept})
    draw = partial(
        kit.curves, x=axis, y="acc", by="curve", share=True, roles={"pruned": MEAN, "random": RANDOM}, **kwargs
    )
    return Part("Accuracy by level", rows, columns, draw)


def _mean_curve(rows: Sequence[SweepRow], axis: Axis) -> dict[int, float]:
    """The mean accuracy of several tasks at each level (permille) of one axis, the other one whole; none of tasks at
    several shot counts."""
    tasks, side = {row.point.task for row in rows}, list(OTHER).index(axis)
    if len(tasks) < 2 or len({task.shots for task in tasks}) > 1:
        return {}
    return {at[side]: acc for at, acc in _mean_by_levels(rows).items() if not at[1 - side]}


def _random_curve(
    random: Sequence[SweepRow], axis: Axis, means: Mapping[int, float], tasks: set[TaskSpec]
) -> list[dict[str, Any]]:
    """The mean of random orders that are measured for all tasks, each the mean of these, and their range; at both ends
    all orders are one."""
    accs: dict[int, list[float]] = {}
    for seed in {row.point.seed: None for row in random}:
        mine = [row for row in random if row.point.seed == seed]
        whole = _mean_curve(mine, axis) if {row.point.task for row in mine} == tasks else {}
        for level, acc in whole.items():
            accs.setdefault(level, []).append(acc)
    accs |= {end: [means[end]] for end in (0, 1000) if accs and end in means}
    return [
        {"curve": RANDOM, axis: level / 1000, "acc": sum(each) / len(each), "lowest": min(each), "highest": max(each)}
        for level, each in sorted(accs.items())
    ]


def grid_parts(rows: Sequence[SweepRow]) -> list[Part]:
    """The points that tasks lose on average at each pair of levels of heads and of FFNs, a map for each shot count."""
    columns = {
        "heads": Column(TITLES["heads"]),
        "ffns": Column(TITLES["ffns"]),
        "lost": Column("Points lost, mean of tasks", ".0f"),
        "acc": Column("Questions right", ".1%"),
    }
    draw = partial(maps.matrix, x="heads", y="ffns", value="lost", signed=True)
    found = []
    for shots in sorted({row.point.task.shots for row in rows}):
        means = _mean_by_levels([row for row in rows if row.point.task.shots == shots])
        if (0, 0) not in means or any(len({at[side] for at in means}) < 2 for side in (0, 1)):
            continue
        lost = {at: 100 * (means[0, 0] - acc) for at, acc in means.items()}
        furthest = max((at for at in lost if lost[at] < SMALL_LOSS), key=lambda at: (sum(at), at))
        heads, ffns = (f"{level / 10:g}%" for level in furthest)
        caption = f"Furthest that loses less than {SMALL_LOSS} points: {heads} of heads with {ffns} of FFNs."
        cells = [
            {"heads": f"{at[0] / 10:g}%", "ffns": f"{at[1] / 10:g}%", "lost": lost[at], "acc": means[at]}
            for at in sorted(means)
        ]
        found.append(Part(f"Heads and FFNs, {shots_in_words(shots)}", cells, columns, draw, caption))
    return found


def _mean_by_levels(rows: Sequence[SweepRow]) -> dict[tuple[int, int], float]:
    """The mean accuracy of the tasks at each pair of levels of heads and FFNs (permille) at which all are measured."""
    n_tasks, accs = len({row.point.task for row in rows}), dict[tuple[int, int], list[float]]()
    for row in rows:
        accs.setdefault((row.point.heads_permille, row.point.ffns_permille), []).append(row.acc)
    return {at: sum(each) / len(each) for at, each in accs.items() if len(each) == n_tasks}


def break_part(axis: Axis, points: Sequence[BreakPoint], form: str = ".0%") -> Part:
    """How much of an axis each task can lose, read from its curve."""
    rows = list[dict[str, Any]]()
    for each in points:
        cliff = "" if each.reading else describe_cliff(each.cliff_from, each.cliff_to, each.cliff_points)
        rows.append(each.cells() | {"curve": describe_task(each.task), "cliff": cliff})
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


def break_view(read: BreakPoint, noun: str) -> View:
    """How far one task can be pruned, read from its curve over the levels of heads, FFNs or layers."""
    if read.reading:
        return View(f"The full model is {read.reading}, {percent(read.full_acc, 0)} right: there is nothing to lose.")
    cliff = describe_cliff(read.cliff_from, read.cliff_to, read.cliff_points)
    finding = f"**{100 * read.no_loss_up_to:g}%** of the {noun} can go before a loss is detectable; the cliff: "
    return View(f"{finding}**{cliff}**. {describe_power(read.n, read.looks)}")


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
    where = [f"Tables, figures and report.html are in {folder}"] if folder else []
    return _judged(found, "the paper", "This model", [*where, *_not_measured(failed)])


def training_view(found: Sequence[Statement], runs: Sequence[str]) -> View:
    """Which statements of Olsson et al. on training hold for these runs."""
    return _judged(found, "Olsson et al.", "These runs", [f"{counted(len(runs), 'run')}: {', '.join(runs)}"])


def _judged(found: Sequence[Statement], paper: str, here: str, notes: Sequence[str]) -> View:
    n_hold, n = (
        sum(each.verdict in verdicts for each in found) for verdicts in (("holds",), ("holds", "does not hold"))
    )
    finding = f"**{n_hold} of {counted(n, 'measured statement')} of {paper} hold here.**"
    columns = {"verdict": Column("Verdict"), "text": Column("Statement"), "ours": Column(here)}
    return View(finding, [Part("Statements", [asdict(each) for each in found], columns)], notes)


AREAS = {
    "criterion": Column("Criterion"),
    "area": Column("Mean accuracy over levels", ".1%"),
    **interval(".1%"),
    "gain": Column("Above random", "+.1%"),
    **interval("+.1%", "gain_"),
    "beats": Column("Random orders beaten"),
    "passes": Column("Passes", ",d", "Forward passes that its scores take, about."),
    "verdict": Column("Verdict"),
}


def criteria_view(found: ComparedCriteria, ranked: Sequence[Area]) -> View:
    """Which criteria are better than random orders, and the accuracies of each at every level."""
    areas = [asdict(each) | {"passes": found.passes.get(each.criterion), "verdict": each.verdict} for each in ranked]
    columns = {"order": Column("Order"), "level": Column(TITLES[found.comparing.axis], ".0%"),
               "acc": Column("Questions right", ".1%")}  # fmt: skip
    chance = {"chance": found.chance} if found.chance else {}
    draw = partial(
        kit.curves, x="level", y="acc", by="order", low="lowest", high="highest", rules=chance,
        roles={"random": RANDOM_ORDERS}, share=True,
    )  # fmt: skip
    on = f"on {found.comparing.task.name}, {counted(found.n, 'question')}"
    better = [each.criterion for each in ranked if each.verdict == BETTER]
    if not ranked:
        finding = f"**Nothing can be compared with random orders** {on}: none was measured."
    elif better:
        finding = f"**{listed(better)} {'keeps' if len(better) == 1 else 'keep'} clearly more accuracy than random "
        finding += f"orders** {on}: {better[0]} {percent(ranked[0].area)} on average over the levels."
    else:
        finding = f"**No criterion keeps clearly more accuracy than random orders** {on}; {ranked[0].criterion} keeps "
        finding += f"most, {percent(ranked[0].area)} on average over the levels."
    notes = not_measured(found.failed)
    parts = [
        Part("Mean accuracy over the levels", areas, AREAS),
        Part("Accuracy at each level", _criteria_curves(found), columns, draw),
    ]
    return View(finding, parts, notes, on_slide=2)


def _criteria_curves(found: ComparedCriteria) -> list[dict[str, Any]]:
    """A row for each criterion and level, and for the mean of the random orders with their range."""
    levels = [level / 1000 for level in found.comparing.levels]
    rows = [
        {"order": curve.criterion, "level": level, "acc": float(acc)}
        for curve in found.curves
        if curve.criterion != RANDOM_ORDERS
        for level, acc in zip(levels, curve.acc, strict=True)
    ]
    random = zip(levels, zip(*(curve.acc.tolist() for curve in found.random), strict=True), strict=True)
    return rows + [
        {
            "order": RANDOM_ORDERS,
            "level": level,
            "acc": sum(each) / len(each),
            "lowest": min(each),
            "highest": max(each),
        }
        for level, each in random
    ]

"""Pruning criteria compared: accuracy at each level, and the area under it."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from engine.studies.compare import BETTER, RANDOM, Area, ComparedCriteria
from engine.views import kit
from engine.views.view import Column, Part, View, interval
from engine.views.words import counted, listed, not_measured, percent

PRUNED = {"heads": "Heads pruned", "ffns": "FFNs pruned", "both": "Heads and FFNs pruned"}
AREAS = {
    "criterion": Column("Criterion"),
    "area": Column("Mean accuracy over levels", ".1%"),
    **interval(".1%"),
    "gain": Column("Above random", "+.1%"),
    **interval("+.1%", "gain_"),
    "beats": Column("Random orders beaten"),
    "verdict": Column("Verdict"),
}


def criteria_view(found: ComparedCriteria, ranked: Sequence[Area]) -> View:
    """Which criteria are better than random orders, and the accuracies of each at every level."""
    areas = [asdict(each) | {"verdict": each.verdict} for each in ranked]
    columns = {"order": Column("Order"), "level": Column(PRUNED[found.comparing.axis], ".0%"),
               "acc": Column("Questions right", ".1%")}  # fmt: skip
    chance = {"chance": found.chance} if found.chance else {}
    draw = partial(
        kit.curves, x="level", y="acc", by="order", low="lowest", high="highest", rules=chance,
        roles={"random": RANDOM}, share=True,
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
        Part("Accuracy at each level", _curves(found), columns, draw),
    ]
    return View(finding, parts, notes, on_slide=2)


def _curves(found: ComparedCriteria) -> list[dict[str, Any]]:
    """A row for each criterion and level, and for the mean of the random orders with their range."""
    levels = [level / 1000 for level in found.comparing.levels]
    rows = [
        {"order": curve.criterion, "level": level, "acc": float(acc)}
        for curve in found.curves
        if curve.criterion != RANDOM
        for level, acc in zip(levels, curve.acc, strict=True)
    ]
    random = zip(levels, zip(*(curve.acc.tolist() for curve in found.random), strict=True), strict=True)
    return rows + [
        {"order": RANDOM, "level": level, "acc": sum(each) / len(each), "lowest": min(each), "highest": max(each)}
        for level, each in random
    ]

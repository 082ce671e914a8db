"""Pruning criteria compared: accuracy at each level, and the area under it."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial

from engine.studies.compare import BETTER, RANDOM, Area, ComparedCriteria
from engine.views import kit
from engine.views.view import Column, Part, View
from engine.views.words import counted, listed, percent

PRUNED = {"heads": "Heads pruned", "ffns": "FFNs pruned", "both": "Heads and FFNs pruned"}
AREAS = {
    "criterion": Column("Criterion"),
    "area": Column("Mean accuracy over levels", ".1%"),
    "low": Column("95% from", ".1%"),
    "high": Column("to", ".1%"),
    "gain": Column("Above random", "+.1%"),
    "gain_low": Column("95% from", "+.1%"),
    "gain_high": Column("to", "+.1%"),
    "beats": Column("Random orders beaten"),
    "verdict": Column("Verdict"),
}


def criteria_view(found: ComparedCriteria, ranked: Sequence[Area]) -> View:
    """Which criteria are better than random orders, and the accuracies of each at every level."""
    areas = [asdict(each) | {"verdict": each.verdict} for each in ranked]
    cells = [row | {"order": f"{row['criterion']} {row['seed'] or ''}".strip()} for row in found.cells()]
    columns = {"order": Column("Order"), "level": Column(PRUNED[found.comparing.axis], ".0%"),
               "acc": Column("Questions right", ".1%")}  # fmt: skip
    chance = {"chance": found.chance} if found.chance else {}
    draw = partial(kit.curves, x="level", y="acc", by="order", rules=chance, roles={"random": RANDOM}, share=True)
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
    notes = [f"not measured: {name}: {reason}" for name, reason in found.failed.items()]
    parts = [Part("Mean accuracy over the levels", areas, AREAS), Part("Accuracy at each level", cells, columns, draw)]
    return View(finding, parts, notes, on_slide=2)

"""Whether a model still knows when it is right: how sure it is against how many are right, over pruning levels and at
one of them."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from engine.accuracy.confidence import Confidence, change_of_error, confidence
from engine.accuracy.evaluation import Answers
from engine.importance.orders import Axis
from engine.statistics import MIN_QUESTIONS, mean_over, paired
from engine.studies.statements import SMALL_LOSS
from engine.studies.sweeps import SweepRow
from engine.views.forms import kit
from engine.views.view import Column, Part, Row, View, interval
from engine.views.words import NOUNS, Effect, counted, number, percent, with_interval

FULL, PRUNED, CALIBRATED = "full model", "pruned model", "calibrated"
UNCLEAR = "shows no clear change"
LINES = {"acc": "right", "confidence": "confidence", "ece": "calibration error"}
TABLE = {
    "acc": Column("Questions right", ".1%"),
    "confidence": Column("Mean confidence", ".1%"),
    "ece": Column("Calibration error", ".1%"),
    **interval(".1%", "ece_"),
    "ece_by_chance": Column("If calibrated", ".1%"),
    "brier": Column("Brier score", ".3f"),
}


def describe_confidence(found: Mapping[str, Any]) -> str:
    """The fields of a Confidence as text, such as "mean confidence 71.2%, calibration error 4.1 points (95% 0.0 to 8.2;
    if calibrated: 5.0)"."""
    size, low, high, by_chance = (number(100 * found[f"ece{end}"], 1) for end in ("", "_low", "_high", "_by_chance"))
    error = f"calibration error {size} points (95% {low} to {high}; if calibrated: {by_chance})"
    return f"mean confidence {percent(found['confidence'])}, {error}"


def confidence_view(full: Answers, pruned: Answers | None, levels: Mapping[int, Answers], along: str) -> View:
    """How sure the full and the pruned model (None: nothing is pruned) are of their answers to the same questions, and
    the model at each level (permille) of what `along` names. Of a task with choices."""
    models = {FULL: confidence(full)} | ({} if pruned is None else {PRUNED: confidence(pruned)})
    rows = [{"level": at / 1000, **vars(confidence(answers))} for at, answers in sorted(levels.items())]
    over_levels, table = level_parts(rows, along)
    finding = f"**The full model gets {percent(models[FULL].acc)} right**: {describe_confidence(vars(models[FULL]))}."
    if pruned is not None:
        finding = _verdict(full, pruned, *models.values())
    return View(finding, [over_levels, _reliability_part(models), table], on_slide=2)


def _verdict(full: Answers, pruned: Answers, before: Confidence, after: Confidence) -> str:
    change, (moved, low, high) = Effect.of_paired(paired(full.correct, pruned.correct)), change_of_error(full, pruned)
    accuracy = UNCLEAR if not change.is_clear else "fell" if change.value > 0 else "rose"
    calibration = "got worse" if low > 0 else "got better" if high < 0 else UNCLEAR
    verdict = f"Accuracy {accuracy}, calibration {calibration}"
    if accuracy == calibration:
        verdict = "Accuracy and calibration show no clear change"
    if before.n < MIN_QUESTIONS:
        verdict = f"{counted(before.n, 'question')} are too few for a verdict"
    errors = f"calibration error {number(100 * before.ece, 1)} → {number(100 * after.ece, 1)} points, "
    errors += with_interval(100 * moved, 100 * low, 100 * high, digits=1)
    right = f"{percent(after.confidence)} sure and {percent(after.acc)} right"
    return f"**{verdict}**: {change.in_words()}; {errors}. The pruned model is {right}."


def mean_confidence_view(rows: Sequence[SweepRow], axis: Axis) -> View:
    """How sure a model is over the levels of one axis, as a mean over the tasks with choices. The finding is about the
    highest level at which their mean accuracy falls by less than SMALL_LOSS points. `rows`: of one shot count; the view
    has no parts if there are no such tasks."""
    at = dict[int, list[SweepRow]]()
    for row in rows:
        if row.ece == row.ece:
            at.setdefault(row.point.permille(axis), []).append(row)
    full = at.get(0, [])
    means = {
        level: {name: sum(getattr(row, name) for row in each) / len(each) for name in LINES}
        for level, each in sorted(at.items())
        if len(each) == len(full)
    }
    if not means:
        return View("")
    last = max(level for level, mean in means.items() if 100 * (means[0]["acc"] - mean["acc"]) < SMALL_LOSS)
    before, errors = {row.point.task: row.ece for row in full}, [100 * means[level]["ece"] for level in (0, last)]
    moved = np.array([100 * (row.ece - before[row.point.task]) for row in at[last]])
    change, low, high = mean_over(moved)
    finding = f"**{last / 10:g}% of {NOUNS[axis]} can go for less than {SMALL_LOSS} points**; there, calibration error "
    finding += f"{number(errors[0], 1)} → {number(errors[1], 1)} points, {with_interval(change, low, high, digits=1)}, "
    finding += f"mean of {counted(len(full), 'task')}."
    rows_by_level = [{"level": level / 1000, **mean} for level, mean in means.items()]
    return View(finding, level_parts(rows_by_level, f"{NOUNS[axis]} pruned"))


def level_parts(rows: Sequence[Row], along: str) -> list[Part]:
    """How many are right, how sure the model is, and its calibration error at each level, as a chart and a table.
    `rows`: level, and the fields of a Confidence that are known."""
    lines = [
        {"level": row["level"], "line": name, "share": row[field], "low": row.get(f"{field}_low"),
         "high": row.get(f"{field}_high")} for row in rows for field, name in LINES.items()
    ]  # fmt: skip
    columns = {"level": Column(along, ".1%"), "line": Column("Line"), "share": Column("Share", ".1%"),
               **interval(".1%")}  # fmt: skip
    draw = partial(kit.curves, x="level", y="share", by="line", low="low", high="high", share=True,
                   roles={"pruned": LINES["acc"]})  # fmt: skip
    return [Part("Right and sure by level", lines, columns, draw, width=0.5),
            Part("Calibration by level", rows, {"level": columns["level"], **TABLE})]  # fmt: skip


def _reliability_part(models: Mapping[str, Confidence]) -> Part:
    rows = [{"model": name, **vars(each)} for name, found in models.items() for each in found.bins]
    rows += [{"model": CALIBRATED, "confidence": end, "acc": end} for end in (0.0, 1.0)]
    columns = {"model": Column("Model"), "confidence": Column("How sure", ".1%"), "acc": TABLE["acc"],
               **interval(".1%", "acc_"),
               "n": Column("Questions")}  # fmt: skip
    draw = partial(kit.curves, x="confidence", y="acc", by="model", low="acc_low", high="acc_high", share=True,
                   roles={"full": FULL, "pruned": PRUNED, "chance": CALIBRATED})  # fmt: skip
    below = "Each point: equally many questions. Below the diagonal, the model is too sure."
    return Part("How sure, and how often right", rows, columns, draw, below, width=0.5)

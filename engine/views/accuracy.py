"""Accuracy on a task, of a model under a mask or of two, and next to published values."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from engine.accuracy.evaluation import Answers
from engine.statistics import Paired
from engine.views import kit
from engine.views.view import Column, Part, View
from engine.views.words import Effect, counted, number, percent, plain


def accuracy_view(sides: Sequence[Mapping[str, Any]], change: Paired | None, notes: Sequence[str]) -> View:
    """The accuracy of a model, and of a second one on the same questions. `sides`: what `--json` says of each;
    `change`: from the first to the second."""
    rows = [
        {name: value for name, value in side.items() if not isinstance(value, Mapping)}
        | {"name": f"{side['model']} in {side['precision']}", "low": side["acc_ci95"][0], "high": side["acc_ci95"][1]}
        for side in sides
    ]
    columns = {"name": Column("Model"), "acc": Column("Questions right", ".1%"), "low": Column("95% from", ".1%"),
               "high": Column("to", ".1%"), "acc_norm": Column("By length (acc_norm)", ".1%"),
               "perplexity": Column("Perplexity of the answer", ".2f"), "heads_pruned": Column("Heads pruned"),
               "ffns_pruned": Column("FFNs pruned"), "layers_dropped": Column("Layers dropped")}  # fmt: skip
    shown = {
        name: each
        for name, each in columns.items()
        if (value := rows[0].get(name)) not in (None, []) and value == value  # NaN: not of this kind of task
    }
    first = rows[0]
    finding = f"**{percent(first['acc'])} right** (95% {number(100 * first['low'], 1)} to {percent(first['high'])}) on "
    finding += f"{plain(first['task'])}, {counted(first['shots'], 'shot')}, {counted(first['n'], 'question')}"
    if change is not None:
        finding += f"; **{plain(rows[1]['name'])}: {Effect.of_paired(change).in_words()}**, right alone on "
        finding += f"{change.gained}, wrong alone on {change.lost}"
    draw = partial(kit.bars, y="name", x="acc", low="low", high="high")
    return View(f"{finding}.", [Part("Accuracy", rows, shown, draw)], notes)


def cut_notes(answers: Mapping[str, Answers]) -> list[str]:
    """A note for each model on questions that did not fit its window."""
    return [
        f"{name}: {each.n_contexts_cut:,} of {len(each):,} questions do not fit the model's window: their first "
        "tokens, of the examples, are left out"
        for name, each in answers.items()
        if each.n_contexts_cut
    ]


def published_view(rows: Sequence[Mapping[str, Any]], name: str) -> View:
    """Which published values agree with the measured ones, of which `rows` has one each."""
    judged = [row for row in rows if row["verdict"] != "range only"]
    agree = [row for row in judged if row["verdict"] == "agrees"]
    if judged:
        finding = f"**{len(agree)} of {counted(len(judged), 'published value')} of {plain(name)} agree.**"
    else:
        finding = f"**No published value of {plain(name)} can be judged**: other examples were drawn."
    columns = {"task": Column("Task"), "shots": Column("Shots"), "metric": Column("Metric"), "bos": Column("BOS"),
               "ours": Column("Here", ".4g"), "published": Column("Published", ".4g"),
               "difference": Column("Difference", "+.2f"), "allowed": Column("Allowed", ".2f"), "unit": Column("Unit"),
               "verdict": Column("Verdict"), "n": Column("Questions", ",")}  # fmt: skip
    return View(finding, [Part("Measured and published values", rows, columns)])

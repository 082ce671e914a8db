"""Accuracy on a task: of a model or of two, next to published values, and without sets of heads."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from engine.accuracy.evaluation import Answers
from engine.statistics import Paired
from engine.studies.removal import Removal
from engine.views import kit
from engine.views.view import Column, Part, View, interval
from engine.views.words import Effect, counted, number, percent, plain

WITHOUT = {
    "row": Column("Heads removed"),
    "lost": Column("Accuracy lost, points", "+.1f"),
    "low": Column("from", "+.1f"),
    "high": Column("to", "+.1f"),
    "n": Column("Questions"),
}


def accuracy_view(sides: Sequence[Mapping[str, Any]], change: Paired | None, notes: Sequence[str]) -> View:
    """The accuracy of a model, and of a second one on the same questions. `sides`: what `--json` says of each;
    `change`: from the first to the second."""
    rows = [
        {name: value for name, value in side.items() if not isinstance(value, Mapping)}
        | {"name": f"{side['model']} in {side['precision']}", "low": side["acc_ci95"][0], "high": side["acc_ci95"][1]}
        for side in sides
    ]
    columns = {
        "name": Column("Model"),
        "acc": Column("Questions right", ".1%"),
        **interval(".1%"),
        "acc_norm": Column("By length (acc_norm)", ".1%"),
        "perplexity": Column("Perplexity of the answer", ".2f"),
        "heads_pruned": Column("Heads pruned"),
        "ffns_pruned": Column("FFNs pruned"),
        "layers_dropped": Column("Layers dropped"),
    }
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


def without_part(title: str, rows: Sequence[Mapping[str, Any]]) -> Part:
    """Points of accuracy lost without sets of heads, next to random sets: `rows` of `without_row` and
    `together_rows`."""
    draw = partial(kit.intervals, y="row", x="lost", low="low", high="high", clear="is_clear")
    return Part(title, rows, WITHOUT, draw, "Colored: a clear loss.")


def without_row(name: str, change: Paired, is_clear: bool) -> dict[str, Any]:
    """The row of one set of heads."""
    lost = Effect.of_paired(change)
    return {"row": name, "lost": lost.value, "low": lost.low, "high": lost.high, "n": change.n,
            "is_clear": bool(is_clear)}  # fmt: skip


def together_rows(found: Removal, noun: str, is_clear: bool) -> list[dict[str, Any]]:
    """The rows of all heads of a removal together, and of as many at random with the range of the draws, as far as they
    are measured."""
    if found.removed is None:
        return []
    n, change = len(found.heads), found.removed.change
    rows = [without_row(f"all {n} {noun} together", change, is_clear)]
    if found.draws:
        mean, low, high = (-points for points in found.at_random)
        name = f"{n} random heads, range of {counted(len(found.draws), 'draw')}"
        rows.append({"row": name, "lost": mean, "low": high, "high": low, "n": change.n, "is_clear": False})
    return rows


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

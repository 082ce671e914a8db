"""What a head does: all that is known of one, and what ideal patterns leave of the effect of some."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from engine.views import kit
from engine.views.view import Column, Part, View, interval
from engine.views.words import counted, listed, not_measured, percent, plain, with_interval

WITHOUT = {
    "task": Column("Task"),
    "shots": Column("Shots"),
    "change": Column("Change of accuracy without it", "+.1%"),
    **interval("+.1%"),
    "p": Column("p", ".3f"),
    "n": Column("Questions"),
}
RANKS = {"by": Column("Score"), "task": Column("Task"), "score": Column("Value", ".3g"), "rank": Column("Rank")}
FEEDERS = {
    "head": Column("Head"),
    "previous_token": Column("Previous token, share", ".2f"),
    "part": Column("Part in the QK trace", "+.3g"),
    "composition": Column("K-composition", ".3f"),
    "composition_at_random": Column("At random", ".3f"),
}
RECOVERED = {"pattern": Column("Pattern"), "share": Column("Share of the effect recovered", ".1%"), **interval(".1%")}


def head_view(name: str, known: Mapping[str, Any], n_heads: int) -> View:
    """All that is known of a head, by the fields of its report."""
    effects = [each | dict(zip(("low", "high"), each["ci95"], strict=True)) | {"is_clear": each["p"] < 0.05}
               for each in known["tasks"]]  # fmt: skip
    ranks = [{"by": kind, "task": ""} | each for kind, each in known["kinds"].items()]
    ranks += [each | {"by": each["what"]} for each in known["importance"]]
    draw = partial(kit.intervals, y="task", x="change", low="low", high="high", clear="is_clear")
    parts = [
        Part("Accuracy without it", effects, WITHOUT, draw),
        Part(f"Rank among {counted(n_heads, 'head')}, 1 is highest", ranks, RANKS),
        Part("Heads that feed it", known["fed_by"], FEEDERS),
    ]
    notes = not_measured(known["failed"])
    notes += [f"not stored: {', '.join(known['left'])}"] if known["left"] else []
    return View(f"**{name}: {plain(known['verdict'] or 'its scores are not measured yet')}**", parts, notes)


def ideal_view(heads: Sequence[str], known: Mapping[str, Any]) -> View:
    """How much of the effect of heads remains with ideal patterns, by the fields of the request: on `texts`, and on
    `questions`."""
    places = {"texts": "nats a token", "questions": "nats a question"}
    measured = {name: known[name] for name in places if name in known}
    rows = [
        {"pattern": f"{kind}, {name}", "share": each["share"], "low": each["ci95"][0], "high": each["ci95"][1]}
        for name, found in measured.items()
        for kind, each in found["recovered"].items()
    ]
    best = max((row for row in rows if not math.isnan(row["share"])), key=lambda row: row["share"], default=None)
    effects = []
    for name, each in measured.items():
        first = next(iter(each["recovered"].values()))
        low, high = first["effect_ci95"]
        effects.append(f"{with_interval(first['effect_nats'], low, high, places[name], 4)} on {_read(each)}")
    adds = f"Without {listed(heads)} the loss changes by {listed(effects)}."
    if best is None:
        finding = f"**There is nothing to recover**, because the loss does not clearly rise. {adds}"
    else:
        (kind, where), (low, high) = best["pattern"].split(", "), (percent(best[end]) for end in ("low", "high"))
        finding = (
            f"**The pattern “{kind}” recovers most: {percent(best['share'])} of the effect** on {where} (95% {low} "
            f"to {high}). {adds}"
        )
    draw = partial(kit.bars, y="pattern", x="share", low="low", high="high")
    parts = [Part("Effect that ideal patterns recover", rows, RECOVERED, draw)]
    if "questions" in known:
        accuracies = [{"side": side, "acc": acc} for side, acc in known["questions"]["acc"].items()]
        columns = {"side": Column("Heads"), "acc": Column("Questions right", ".1%")}
        parts.append(Part("Accuracy", accuracies, columns))
    return View(finding, parts)


def _read(found: Mapping[str, Any]) -> str:
    if "task" in found:
        return f"{plain(found['task'])} ({counted(found['n'], 'question')})"
    return f"{counted(found['n'], 'text')} ({found['n_scored']:,} of {found['n_tokens']:,} tokens scored)"

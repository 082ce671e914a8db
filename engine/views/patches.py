"""Activations of one prompt in another, and function vectors as a switch of a task."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from engine.heads.patching import HEADS, KINDS, PatchMap
from engine.heads.vector_switch import TEST, VectorSwitch
from engine.questions.word_pairs import N_SHOTS
from engine.views.forms import kit, maps
from engine.views.view import Column, Part, View
from engine.views.words import counted, number, percent, plain, visible, with_interval


def patch_view(found: PatchMap, rows: Sequence[Mapping[str, Any]]) -> View:
    """Where the difference between two prompts comes back, a row of `rows` for each layer and place."""
    before, after = (number(each, sign=True) for each in found.differences)
    a, b = (plain(visible(answer)) for answer in found.answers)
    logits = f"The logit of “{b}” minus that of “{a}” is {before} after the prompt, {after} after the other."
    if not found.is_clear:
        return View(logits, notes=[found.unclear])
    title = "Share of the difference"
    columns = {"layer": Column("Layer"), "place": Column("Token of the prompts"), "effect": Column(title, ".0%")}
    rows = [{**row, "place": place_of(row)} for row in rows]
    if found.kind == HEADS:
        columns["place"] = Column("Head at the last token")
        draw = partial(maps.head_map, value="effect", signed=True)
    elif found.pair is not None:
        ends = {"as after the prompt": 0.0, "as after the other": 1.0}
        draw = partial(kit.curves, x="layer", y="effect", rules=ends)
    else:
        draw = partial(maps.matrix, x="place", y="layer", value="effect", signed=True)
    largest = max(rows, key=lambda row: abs(row["effect"]))
    where = f"{KINDS[found.kind]} {largest['layer']}, at token {plain(largest['place'])}"
    if found.kind == HEADS:
        where = f"output of L{largest['layer']}{largest['place']} at the last token"
    finding = f"**{percent(largest['effect'], 0)} of the difference comes back by the {where}**, the most of all. "
    caption = "0%: the difference is as after the prompt; 100%: as after the other."
    return View(finding + logits, [Part("Difference that comes back", rows, columns, draw, caption, "effect")])


def place_of(row: Mapping[str, Any]) -> str:
    """Where a row patches: the head, or the position with the tokens of both prompts."""
    if "head" in row:
        return f"H{row['head']}"
    a, b = visible(row["token_a"]), visible(row["token_b"])
    if "position_b" in row:
        return f"{row['position_b']} {b} into {row['position']} {a}"
    return f"{row['position']} {a}" if a == b else f"{row['position']} {a} / {b}"


def switch_view(found: VectorSwitch, rows: Sequence[Mapping[str, Any]], task: str, heads: Sequence[str]) -> View:
    """Whether the vector makes the model do a task, a row of `rows` for each layer and split."""
    few, zero = (float(right[TEST].mean()) for right in (found.few, found.zero))
    lift, (low, high) = found.lift, (100 * end for end in found.lift.interval)
    does = "lifts accuracy" if lift.is_significant and lift.difference > 0 else "does not clearly lift accuracy"
    points = with_interval(100 * lift.difference, low, high, "points", 1)
    finding = (
        f"**The vector of {plain(task)} {does}: {points}** at layer {found.best_layer}, from {percent(zero)} right "
        f"without examples to {percent(zero + lift.difference)}, on {counted(lift.n, 'test pair')}; {N_SHOTS} "
        f"examples give {percent(few)}."
    )
    columns = {"layer": Column("Layer that gets the vector"), "split": Column("Pairs"),
               "acc": Column("Pairs right", ".1%")}  # fmt: skip
    rules = {"without examples": zero, f"with {N_SHOTS} examples": few}
    draw = partial(kit.curves, x="layer", y="acc", by="split", rules=rules, share=True)
    parts = [Part("Pairs right by the layer that gets the vector", rows, columns, draw)]
    return View(finding, parts, [f"The vector is of {', '.join(heads)}."])


def guesses_view(rows: Sequence[Mapping[str, Any]], task: str, heads: Sequence[str]) -> View:
    """What the model says next without the vector (the first of `rows`) and with it at each layer."""
    shown = [{**row, "guess": f"{_place(row)}: {visible(row['token'])}"} for row in rows]
    first, *others = rows
    before = f"“{plain(visible(first['token']))}” ({percent(first['p'])})"
    other = max((row for row in others if row["token"] != first["token"]), key=lambda row: row["p"], default=None)
    if other is None:
        finding = f"**The vector of {plain(task)} changes the likeliest next token at no layer**: it stays {before}."
    else:
        finding = (
            f"**With the vector of {plain(task)} at layer {other['layer']}, “{plain(visible(other['token']))}” is "
            f"likeliest ({percent(other['p'])})**; without it, {before} is."
        )
    columns = {"guess": Column("Vector"), "p": Column("Probability of the likeliest token", ".1%")}
    draw = partial(kit.bars, y="guess", x="p")
    return View(
        finding, [Part("Likeliest next token", shown, columns, draw)], [f"The vector is of {', '.join(heads)}."]
    )


def _place(row: Mapping[str, Any]) -> str:
    return "without it" if row["layer"] is None else f"at layer {row['layer']}"

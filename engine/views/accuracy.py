"""Accuracy on a task: of a model or of two, next to published values, and without sets of heads."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from engine.accuracy.evaluation import Answers, ModelComparison, accuracy
from engine.accuracy.published import published_value
from engine.models.session import Target
from engine.questions.rendering import TaskSpec
from engine.shapes import ModelShape
from engine.statistics import MIN_QUESTIONS, Paired, paired
from engine.studies.ablations import Ablations
from engine.studies.removal import N_DRAWS, Removal, without
from engine.views.forms import kit
from engine.views.view import Column, Part, View, interval
from engine.views.words import Effect, capitalized, counted, listed, number, p_in_words, percent, plain

NO_HEADS = (
    "**This model has no induction heads** by the rule used here: no head looks at what followed a token's earlier "
    "copy with 0.3 of its attention."
)
WITHOUT = {
    "row": Column("Heads removed"),
    "lost": Column("Points lost", "+.1f"),
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
        finding += f"; {compared_words(rows[1]['name'], change)}"
    draw = partial(kit.bars, y="name", x="acc", low="low", high="high")
    return View(f"{finding}.", [Part("Accuracy", rows, shown, draw)], notes)


@dataclass(frozen=True)
class Standing:
    """The accuracy of a model as far as it has answered, as it is shown large.

    `value`: the number; of the first few questions, how many are right
    `delta`: what stands under it: the change, or the interval until it is sure
    `lines`: what is counted, what has changed, and what is pruned, a line each; Markdown
    `details`: what its help says as well
    `finding`: the same as a sentence; "" until it is sure
    `is_sure`: all questions are answered, enough of them for a verdict
    `change`: from the full model on the same questions; None without one
    """

    value: str
    delta: str
    lines: Sequence[str]
    details: Sequence[str] = ()
    finding: str = ""
    is_sure: bool = False
    change: Paired | None = None


def standing(
    task: str, full: Answers | None, pruned: Answers | None, total: int, what: str, is_full: bool = False
) -> Standing:
    """The accuracy of the pruned model, of `total` questions of a task, against the full one; or of the full model
    (`is_full`). `what`: what is pruned."""
    shown = full if is_full else pruned
    if not shown:
        some = f" of the first {len(full):,}, {total:,} in all" if full and len(full) < total else ""
        before = [f"The full model: {percent(accuracy(full).acc)}{some}"] if full else []
        return Standing("…", "not measured yet", [what, *before])
    result, n = accuracy(shown), len(shown)
    right, is_sure = round(result.acc * n), n >= max(total, MIN_QUESTIONS)
    value = percent(result.acc) if n >= min(total, MIN_QUESTIONS) else f"{right} of {n}"
    counted_right = f"**{right:,} of {total:,}** right"
    if n < total:
        counted_right = f"**{right:,} of the first {n:,}** right, {total:,} in all"
    interval = f"95% interval **{number(100 * result.ci_low, 1)} to {percent(result.ci_high)}**"
    norm = f"{percent(result.acc_norm)} by length-normalized score"
    if result.perplexity == result.perplexity:
        norm = f"Perplexity of the last word {number(result.perplexity)}"
    lines, details = [f"{counted_right}, {interval}" if is_sure else counted_right], [norm, *cut_lines(shown)]
    delta, change, finding = "the full model", None, f"The full model answers **{value}** of {plain(task)} right."
    if not is_full and full:
        change = paired(full.correct, shown.correct)
        before, words = percent(result.acc - change.difference), Effect.of_paired(change).in_words()
        finding = f"With {what}, {plain(task)} **{words}**: {before} → {value} right."
        some = f" on these {change.n}" if change.n < max(len(full), total) else ""
        delta = f"{number(100 * change.difference, 1, sign=True)} points against the full model's {before}{some}"
        lines += [capitalized(words), *([] if is_sure else [f"The full model: {before}{some}"])]
        details.append(f"Gained **{change.gained:,}**, lost **{change.lost:,}** ({p_in_words(change.p_mcnemar)})")
    sure = {"finding": finding, "is_sure": True} if is_sure else {}
    return Standing(value, delta if is_sure else interval, [*lines, what], details, change=change, **sure)


def compared_words(name: str, change: Paired) -> str:
    """A second model against the first, on the same questions."""
    words = f"**{plain(name)}: {Effect.of_paired(change).in_words()}**, right alone on {change.gained}, wrong alone on "
    return f"{words}{change.lost}"


def two_models_rows(
    both: ModelComparison, names: Sequence[str], full: Sequence[Answers | None]
) -> list[dict[str, Any]]:
    """A row for each of two models on the same questions: its accuracy, its full model's, how many it alone answers,
    and the difference of the two."""
    change, (low, high) = both.change, both.change.interval
    alone, rows = (change.lost, change.gained), list[dict[str, Any]]()
    for name, side, answers, only in zip(names, (both.first, both.second), full, alone, strict=True):
        whole = accuracy(answers.first(change.n)).acc if answers and len(answers) >= change.n else math.nan
        row = {"model": name, "n": change.n, "acc": side.acc, "low": side.ci_low, "high": side.ci_high}
        row |= {"acc_full": whole, "only_this_one_right": only, "difference": change.difference}
        rows.append(row | {"difference_low": low, "difference_high": high, "p_mcnemar": change.p_mcnemar})
    return rows


def cut_lines(answers: Answers) -> list[str]:
    """A line on questions that do not fit the model's window; none if all do."""
    n = answers.n_contexts_cut
    return [f"**{n:,}** of them do not fit the model's window: their first tokens, of the examples, are left out"] * (
        n > 0
    )


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


def removal_view(found: Removal, shape: ModelShape, task: str) -> View:
    """What a task loses without the induction heads, next to as many random ones, and whether that is a story."""
    if not found.heads or found.removed is None:
        return View("" if found.heads else NO_HEADS)
    names, line = without(shape, found.heads).text(), found.removed
    effect = Effect.of_paired(line.change)
    finding = f"Without its {len(found.heads)} induction heads ({names}), {plain(task)} **{effect.in_words()}**, "
    finding += f"{percent(line.full, 0)} → {percent(line.pruned, 0)} right."
    if len(found.draws) == N_DRAWS:
        finding += f" **The story {'holds' if found.holds else 'does not hold'} here.**"
    return View(finding, [without_part("Accuracy lost", together_rows(found, "induction heads", line.is_loss))])


def removal_headline(found: Removal, n_heads: int, task: str) -> str:
    """The same as a heading, of a model of `n_heads`; "" until all draws are measured."""
    n, line, others = len(found.heads), found.removed, [each.pruned for each in found.draws]
    if line is None or len(others) < N_DRAWS:
        return ""
    at_random = f"{number(100 * min(others), 0)} to {percent(max(others), 0)}"
    return (
        f"Without {n} of {n_heads} heads, its induction heads, the model gets {percent(line.pruned, 0)} of {task} "
        f"right instead of {percent(line.full, 0)}; without {n} random heads, {at_random}."
    )


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


TITLE = "Alone and together"


def ablation_view(found: Ablations, task: str, score: str) -> View:
    """What the costliest heads cost alone, and the induction heads alone and together. `task`: with its shots; `score`:
    by which the costliest were chosen, "" if that is the accuracy lost without each."""
    names, induction = found.shape.head_names, set(found.induction_heads)
    costliest = [head for head in found.costliest if head not in induction]
    rows = [
        without_row(f"{names[head]}{', induction head' if head in induction else ''}", change, head in found.clear)
        for head in [*costliest, *found.induction_heads]
        for change in [found.alone[head]]
    ]
    removed = found.together.removed
    if len(induction) > 1 and removed is not None:
        rows += together_rows(found.together, "induction heads", removed.is_loss)
    notes = [f"The costliest heads were chosen by {score}: others may cost more."] if score else []
    title = f"{TITLE}, on {counted(found.n, 'train question')}"
    return View(f"On {plain(task)}, {_finding(found)}.", [without_part(title, rows)], notes)


def points(change: Paired) -> str:
    """Points of accuracy lost, such as "52 points"."""
    size = number(-100 * change.difference, 0)
    return f"{size} point{'' if size == '1' else 's'}"


def _finding(found: Ablations) -> str:
    names, heads, removed = found.shape.head_names, found.induction_heads, found.together.removed
    costly = found.costly
    if not costly:
        first = "**no head matters alone**"
    else:
        most = " most," * (len(costly) > 1)
        first = f"**{names[costly[0]]} alone costs{most} {points(found.alone[costly[0]])}**"
    if not heads or removed is None:
        return f"{first}; no head is an induction head"
    if len(heads) == 1:
        cost = points(found.alone[heads[0]]) if heads[0] in costly else "nothing clear"
        return f"{first}; the one induction head, {names[heads[0]]}, costs {cost}"
    if not removed.is_loss:
        return f"{first}; the {len(heads)} induction heads cost nothing clear, not even together"
    alone = [names[head] for head in costly if head in heads]
    at_random = number(-found.together.at_random[0], 0)
    cost = f"cost {points(removed.change)} {'' if alone else 'only '}together"
    more = f", {listed(alone)} also alone" * bool(alone)
    return f"{first}; **the {len(heads)} induction heads {cost}** (random ones: {at_random}){more}"


def published_in_words(target: Target, task: TaskSpec) -> str:
    """Returns the published accuracy of the model on a task and the differing conditions; "" if not comparable."""
    found = published_value(target.spec, task, target.bos)
    if found is None:
        return ""
    words = f"Full model as published: **{percent(found.value)}**"
    ppl = published_value(target.spec, task, target.bos, "perplexity")
    words += "" if ppl is None else f", perplexity {number(ppl.value, 2)}"
    differs = ["with BOS" if found.bos else "without BOS"] if found.bos != target.bos else []
    differs += ["other examples"] if found.has_other_examples else []
    return f"{words} ({', '.join(differs)})" if differs else words

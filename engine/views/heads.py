"""What heads do: all that is known of one, what ideal patterns leave of the effect of some, and where all look in a
corpus."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.corpus.heads import HeadsInCorpus
from engine.corpus.loss_without import LossWithout
from engine.heads.attention import Head
from engine.heads.in_text import LEAST, HeadInText, most_raised
from engine.heads.induction import INDUCTION_FROM, VARIANTS, InductionScores
from engine.importance.scores import ORACLES
from engine.questions.rendering import TaskSpec
from engine.statistics import Paired
from engine.studies.surveys import describe_task
from engine.views.accuracy import points, without_part, without_row
from engine.views.forms import kit, maps
from engine.views.view import Column, Part, View, interval
from engine.views.words import counted, listed, not_measured, number, percent, plain, with_interval

if TYPE_CHECKING:
    from engine.studies.portrait import Portrait

RANKS = {"by": Column("Score"), "task": Column("Task"), "score": Column("Value", ".3g"), "rank": Column("Rank")}
FEEDERS = {
    "head": Column("Head"),
    "previous_token": Column("Previous token, share", ".2f"),
    "part": Column("Part in the QK trace", "+.3g"),
    "composition": Column("K-composition", ".3f"),
    "composition_at_random": Column("At random", ".3f"),
}
RECOVERED = {"pattern": Column("Pattern"), "share": Column("Share of the effect recovered", ".1%"), **interval(".1%")}


def head_view(name: str, fields: Mapping[str, Any], portrait: "Portrait", text: str) -> View:
    """All that is known of a head, by the fields of its report and by the Portrait: what its card on Heads says first.
    `text`: the title of the one in which it is looked at."""
    costs, clear = portrait.costs
    says = [describe_head(name, portrait.head, portrait.scores.get(VARIANTS[0]), next(iter(costs), None), costs, clear)]
    ranks = [{"by": kind, "task": ""} | each for kind, each in fields["kinds"].items()]
    for each in fields["importance"]:
        in_points = {"by": f"{each['what']}, points lost", "score": 100 * each["score"]}
        ranks.append({**each, "by": each["what"]} | (in_points if each["what"] in ORACLES else {}))
    parts = [
        costs_part(costs, clear),
        Part(f"Rank among {counted(portrait.n_heads, 'head')}, 1 is highest", ranks, RANKS),
        Part("Heads that feed it", fields["fed_by"], FEEDERS),
    ]
    if (seen := portrait.texts.get(text)) is not None:
        looks, part = looks_part(seen, text)
        says, parts = [*says, looks, raises_in_words(seen)], [*parts, part]
    notes = not_measured(fields["failed"])
    notes += [f"not stored: {', '.join(fields['left'])}"] if fields["left"] else []
    return View(" ".join(filter(None, says)), parts, notes)


def ideal_view(heads: Sequence[str], fields: Mapping[str, Any]) -> View:
    """How much of the effect of heads remains with ideal patterns, by the fields of the request: on `texts`, and on
    `questions`."""
    places = {"texts": "nats a token", "questions": "nats a question"}
    by_place = {name: fields[name] for name in places if name in fields}
    rows = [
        {"pattern": f"{kind}, {name}", "share": each["share"], "low": each["ci95"][0], "high": each["ci95"][1]}
        for name, of_place in by_place.items()
        for kind, each in of_place["recovered"].items()
    ]
    best = max((row for row in rows if not math.isnan(row["share"])), key=lambda row: row["share"], default=None)
    effects = []
    for name, each in by_place.items():
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
    if "questions" in fields:
        accuracies = [{"side": side, "acc": acc} for side, acc in fields["questions"]["acc"].items()]
        columns = {"side": Column("Heads"), "acc": Column("Questions right", ".1%")}
        parts.append(Part("Accuracy", accuracies, columns))
    return View(finding, parts)


def _read(found: Mapping[str, Any]) -> str:
    if "task" in found:
        return f"{plain(found['task'])} ({counted(found['n'], 'question')})"
    return f"{counted(found['n'], 'text')} ({found['n_scored']:,} of {found['n_tokens']:,} tokens scored)"


FIRST, PREVIOUS, COPY, FOLLOWED = (
    "the first token",
    "the token before",
    "an earlier copy",
    "what followed an earlier copy",
)
NOTICED = 0.1  # share of the attention from which its place is named
N_RAISED = 3
CELLS = {"from": Column("From"), "to": Column("looks at"), "attention": Column("Attention", ".3f")}


def describe_head(
    name: str, head: Head, found: InductionScores | None, task: TaskSpec | None, costs: Mapping[TaskSpec, Paired],
    clear: Mapping[TaskSpec, bool],
) -> str:  # fmt: skip
    """What the head is, and what it costs alone, in one sentence of what is known: its induction scores, and its
    `costs` on tasks, the study's `task` among them, with whether each is `clear`."""
    parts = [] if found is None else [_kind(head, found)]
    if task is not None and task in costs:
        is_loss = clear[task] and costs[task].difference < 0
        what = f"costs {points(costs[task])}" if is_loss else "costs nothing clear"
        parts.append(f"alone it {what} on {plain(describe_task(task))}")
    elsewhere = [
        f"{points(change)} on {plain(other.name)}"
        for other, change in costs.items()
        if other != task and clear[other] and change.difference < 0
    ]
    parts += [f"also {listed(elsewhere)}"] if elsewhere else []
    return f"**{name}** {'; '.join(parts)}." if parts else f"**{name}**"


def _kind(head: Head, found: InductionScores) -> str:
    mean, n = found.mean, found.mean["copying"].size

    def score(of: str) -> str:
        value = mean[of][head]
        return f"{number(float(value))}, rank {1 + int((mean[of] > value).sum())} of {n:,}"

    copying = f"copying {percent(float(found.copying_share[head]), 0)}, by chance {percent(found.chance, 0)}"
    if mean["prefix_matching"][head] >= INDUCTION_FROM:
        says = "does not copy"
        if found.is_induction_head[head]:
            says = "copies hardly more than chance" if found.copies_hardly[head] else "copies"
        kind = "is an induction head and" if found.is_induction_head[head] else "matches prefixes but"
        return f"{kind} {says} (prefix matching {score('prefix_matching')}; {copying})"
    for of, noun in (("previous_token", "previous-token"), ("duplicate_token", "duplicate-token")):
        if mean[of][head] >= INDUCTION_FROM:
            return f"is a {noun} head ({score(of)})"
    return f"is not an induction head (prefix matching {score('prefix_matching')})"


def costs_part(costs: Mapping[TaskSpec, Paired], clear: Mapping[TaskSpec, bool]) -> Part:
    """What the head costs alone on each task."""
    rows = [without_row(describe_task(task), change, clear[task]) for task, change in costs.items()]
    n = max((change.n for change in costs.values()), default=0)
    part = without_part(f"Lost without it, {counted(n, 'train question')} a task", rows)
    columns = {**part.columns, "row": Column("")}
    return Part(part.title, rows, columns, part.draw)


def looks_part(seen: HeadInText, title: str) -> tuple[str, Part]:
    """Where the head looks in a text, in a sentence, and its pattern with that place in orange."""
    shares = _shares(seen)
    place, (share, offsets) = max(shares.items(), key=lambda each: each[1][0])
    rests = percent(seen.rests, 0)
    if share < NOTICED and seen.rests >= NOTICED:
        said = f"It looks at **{FIRST}**: {rests} of its attention, and at no place that repeats."
    elif share < NOTICED:
        said = "It looks at **no place that repeats**."
    elif place == PREVIOUS:
        said = f"It looks at **{PREVIOUS}**: {percent(share, 0)} of its attention; {rests} go to {FIRST}."
    elif seen.rests > share:
        said = (
            f"It looks at **{FIRST}**: {rests} of its attention; {percent(share, 0)} of that of repeated tokens go to "
        )
        said += f"{place}."
    else:
        said = f"From a repeated token it looks at **{place}**: {percent(share, 0)} of its attention; {rests} of all "
        said += f"attention go to {FIRST}."
    marked = offsets if share >= NOTICED else ()
    rows, pieces = [], seen.pieces
    for to, source in zip(*np.nonzero(seen.pattern >= LEAST), strict=True):
        each = {"destination": int(to), "source": int(source), "attention": float(seen.pattern[to, source])}
        is_marked = int(to - source) in marked and source > 0
        rows.append(each | {"from": pieces[to], "to": pieces[source], "marked": is_marked})
    draw = partial(maps.pattern, n=len(seen.token_ids))
    return said, Part(f"Where it looks in “{title}”", rows, CELLS, draw, "Orange: there." * bool(marked))


def raises_in_words(seen: HeadInText) -> str:
    """The tokens that it raises most in a text, and after what; "" if it raises none."""
    words = [
        f"“{plain(seen.strings[int(seen.raised_ids[at, 0])].strip())}” after “{plain(seen.pieces[at].strip())}” "
        f"({number(float(seen.raised_nats[at, 0]), 1, sign=True)} nats)"
        for at in most_raised(seen, N_RAISED)
    ]
    return f"It raises most: {', '.join(words)}." if words else ""


def _shares(seen: HeadInText) -> dict[str, tuple[float, Sequence[int]]]:
    """By place: the share of the attention that goes there, of repeated tokens unless it is the token before, and how
    many tokens back that is."""
    found: dict[str, tuple[float, Sequence[int]]] = {PREVIOUS: (float(seen.to_previous[1:].mean()), (1,))}
    later, earlier = np.nonzero(np.tril(seen.token_ids[:, None] == seen.token_ids, -1))
    if len(later):
        distance = int(np.bincount(later - earlier).argmax())  # of the usual copy
        later = later[later - earlier == distance]
        for place, step in ((COPY, 0), (FOLLOWED, 1)):
            found[place] = float(seen.pattern[later, later - distance + step].mean()), (distance - step,)
    return found


def all_scores_part(names: Sequence[str], columns: Mapping[str, tuple[Column, Any]]) -> Part:
    """All scores of heads that are known, as a table."""
    rows = [{"name": name, **{key: float(values.flat[at]) for key, (_, values) in columns.items()}}
            for at, name in enumerate(names)]  # fmt: skip
    shown = {"name": Column("Head")} | {key: column for key, (column, _) in columns.items()}
    return Part("All scores", rows, shown, ranked_by=next(iter(columns), ""))


SCORE_TITLES = {
    "induction": "attention to what followed earlier copies",
    "same_token": "attention to earlier copies",
    "previous_token": "attention to the previous token",
    "first_token": "attention to the first token",
    "current_token": "attention to the token itself",
    "strong": "positions with a strong write",
    "entropy": "entropy of attention, nats",
    "distance": "tokens back on average",
}
COLUMNS = {
    "induction": Column("After earlier copies", ".1%"),
    "same_token": Column("Earlier copies", ".1%"),
    "previous_token": Column("Previous token", ".1%"),
    "first_token": Column("First token", ".1%"),
    "current_token": Column("Token itself", ".1%"),
    "strong": Column("Strong writes", ".1%"),
}
EXAMPLES = {
    "query_token": Column("Looks from"),
    "key_token": Column("Looks at"),
    "activation": Column("Activation", ".2f"),
    "text": Column("Text, the two tokens in brackets"),
}


def corpus_view(found: HeadsInCorpus, asked: int, rows: Sequence[Mapping[str, Any]]) -> View:
    """Where the heads look, a row of `rows` each."""
    columns = {"name": Column("Head")} | COLUMNS
    parts = [
        Part(
            SCORE_TITLES[name].capitalize(),
            rows,
            columns,
            partial(maps.head_map, value=name),
            ranked_by=name,
            width=1 / 3,
        )
        for name in COLUMNS
    ]
    best = {name: part.first(1)[0] for name, part in zip(COLUMNS, parts, strict=True)}
    copies, before = (
        f"{best[name]['name']}, {percent(best[name][name], 0)}" for name in ("induction", "previous_token")
    )
    finding = f"**Most attention to what followed earlier copies: {copies}**; most to the previous token: {before}."
    return View(finding, parts, [f"Read: {windows_in_words(found, asked)}."])


def head_in_corpus_view(
    view: View, name: str, clauses: Sequence[str], examples: Sequence[Mapping[str, Any]], removed: LossWithout
) -> View:
    """The `view` of all heads, with what describes one of them, where it fires most, and the losses without it."""
    top, other = (with_interval(each.nats, each.low, each.high, "nats", 3) for each in (removed.top, removed.other))
    finding = (
        f"**{name}: {'; '.join(map(plain, clauses)) or 'no rule describes it'}.** Without it, the loss of a token "
        f"changes by {top} on the {number(removed.n_windows, 0)} windows where it fires most, and by {other} on "
        "random others."
    )
    rows = [{**each, "text": _marked(each)} for each in examples]
    return View(finding, [*view.parts, Part(f"Where {name} fires most", rows, EXAMPLES)], view.notes)


def windows_in_words(found: HeadsInCorpus, asked: int) -> str:
    """How many windows were read, of how many, and that there are no more if fewer than asked were."""
    n, length = found.windows.token_ids.shape
    few = f" (all that the corpus has; {asked:,} were asked for)" if n < asked else ""
    return f"{n:,} windows of {length} tokens{few}"


def _marked(example: Mapping[str, Any]) -> str:
    before, between, after = example["around"]
    return f"{before}[{example['key_token']}]{between}[{example['query_token']}]{after}"

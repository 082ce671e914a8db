"""The results on a head as rows and sentences, for its charts and its files. No streamlit here."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from engine.heads.in_text import LEAST, HeadInText, HeadOnProbe, most_looked_at, most_raised
from engine.heads.induction import INDUCTION_FROM, SCORES, VARIANTS, best_heads
from engine.importance.criteria import CRITERIA
from engine.studies.one_head import TITLES as PART_TITLES
from engine.studies.portrait import Portrait
from engine.studies.surveys import in_words
from engine.texts.incontext import MeanOverTexts
from engine.texts.passages import LOG_BOOKS
from engine.texts.tokenloss import TokenLosses
from pages.ui.figures.induction_scores import ABOUT, TITLES
from pages.ui.page.tables import better_or_worse, number, p_in_words, whole_percent

CONTEXT = 22  # characters before a token
OLSSON = VARIANTS[0]
ON_STRIP = ("prefix_matching", "copying", "previous_token", "duplicate_token")  # those by weights have no unit
ORACLE, CLEAR_P = "heads-oracle", 0.05
NOTICEABLE = 0.01  # score of a kind of heads, a share or a probability, from which it is drawn
MAY_BE_CHANCE = ", may be chance"
MOST_LISTED, N_COSTLY = 6, 3  # heads of a kind, and those that cost most, in the list of heads of interest
# scores that name a kind of head
KINDS = {"prefix_matching": "matches prefixes", "previous_token": "previous token", "duplicate_token": "duplicates"}


@dataclass(frozen=True)
class KeyFigure:
    """A large figure of a head."""

    title: str  # what is counted
    value: str  # as text
    note: str  # its rank among all heads, or its interval
    about: str  # its meaning
    is_chance: bool = False  # the interval includes 0


def score_rows(found: Portrait, variant: str = OLSSON) -> pd.DataFrame:
    """Returns one row for each score of ON_STRIP or kind of heads, and head that has it: title, name, value, `at` (0-1
    on the score's own scale), whether it is this head, and its `words`: value and rank."""
    rows, mine = [], f"L{found.head[0]}H{found.head[1]}"

    def add(title: str, values: np.ndarray, low: float, high: float, words: str) -> None:
        for name, value in zip(found.shape.head_names, values, strict=True):
            if np.isfinite(value) or name == mine:
                at = (value - low) / ((high - low) or 1.0)
                each = {"score": title, "name": name, "value": value, "at": at, "mine": name == mine}
                rows.append(each | {"words": words if name == mine else ""})

    for score in ON_STRIP:
        values = found.scores[variant].mean[score].ravel()
        share = score == "copying" and variant == OLSSON
        values = (1 + values) / 4 if share else values
        written = whole_percent if score == "copying" else number
        known = values[np.isfinite(values)]
        low, high = (known.min(), known.max()) if len(known) else (0.0, 1.0)
        low, high = (low, high) if score == "copying" else (min(0.0, low), max(1.0, high))
        add(TITLES[score], values, low, high, _with_rank(found, score, variant, written))
    for name, scores in found.kinds.items():
        if abs(scores[found.head]) < NOTICEABLE:
            continue
        words = f"{number(float(scores[found.head]))} · {found.rank_in_kind(name)} of {found.n_heads:,}"
        add(CRITERIA[name].label, scores.ravel(), float(scores.min()), float(scores.max()), words)
    return pd.DataFrame(rows)


def _with_rank(found: Portrait, score: str, variant: str, written: Callable[[float], str]) -> str:
    value = found.score(score, variant)
    value = (1 + value) / 4 if score == "copying" and variant == OLSSON else value
    return f"{written(value)} · {found.rank(score, variant)} of {found.n_heads:,}"


def scores_table(found: Portrait) -> pd.DataFrame:
    """Returns one row for each variant and score, and each kind of heads: this head's value, its standard error, and
    its rank."""
    rows = []
    for variant, scores in found.scores.items():
        for score in SCORES:
            error = float(scores.standard_error[score][found.head])
            row = {"variant": variant, "score": score, "value": found.score(score, variant), "standard_error": error}
            rows.append(row | {"rank": found.rank(score, variant) or None, "heads": found.n_heads})
    for name, scores in found.kinds.items():
        row = {"variant": "", "score": name, "value": float(scores[found.head])}
        rows.append(row | {"rank": found.rank_in_kind(name), "heads": found.n_heads})
    return pd.DataFrame(rows)


def probe_cells(probe: HeadOnProbe) -> pd.DataFrame:
    """Returns rows for `charts.pattern_map`."""
    return _cells(probe.pattern, probe.pieces)


def text_cells(seen: HeadInText) -> pd.DataFrame:
    """Returns the same of a text."""
    return _cells(seen.pattern, seen.pieces)


def _cells(pattern: np.ndarray, pieces: Sequence[str]) -> pd.DataFrame:
    destination, source = np.nonzero(pattern >= LEAST)
    words = np.array(pieces, object)
    columns = {"destination": destination, "source": source, "from": words[destination], "to": words[source]}
    return pd.DataFrame(columns | {"attention": pattern[destination, source]})


def effect_rows(found: Portrait) -> pd.DataFrame:
    """Returns one row per task: accuracy with and without the head, change in points with interval, gained, lost, p."""
    rows = []
    for task, each in found.effects.items():
        change, (low, high) = each.change, each.change.interval
        row = {"task": in_words(task), "acc": each.full, "acc_without": each.pruned}
        row |= {"points": each.points, "low": 100 * low, "high": 100 * high}
        rows.append(row | {"gained": change.gained, "lost": change.lost, "p": change.p_mcnemar, "n": change.n})
    return pd.DataFrame(rows)


# the criteria on screen; the first is what the second estimates
ASKS = {"Oracle": "Accuracy lost (measured)", "Gradient": "Gradient (an estimate)"}


def place_rows(found: Portrait) -> pd.DataFrame:
    """Returns one row for each criterion and task: score and rank, 1 = the most important of all heads, and whether
    the score may be chance."""
    rows = [
        {"criterion": PART_TITLES[each.what], "task": in_words(each.task), "score": each.score, "rank": each.rank,
         "heads": each.n_heads, "is_chance": each.is_chance}
        for each in found.places
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["criterion", "task", "score", "rank", "heads", "is_chance"])


def shown_places(places: pd.DataFrame) -> pd.DataFrame:
    """Returns those of `place_rows` that are drawn, in the order of ASKS."""
    shown = places[places["criterion"].isin(ASKS)]
    shown = shown.sort_values("criterion", key=lambda names: names.map([*ASKS].index), kind="stable")
    return shown.assign(criterion=shown["criterion"].map(ASKS))


def looked_rows(seen: HeadInText, count: int) -> pd.DataFrame:
    """Returns one row per pair of tokens, the largest weight first: from (with its context) and to."""
    words = seen.pieces
    rows = [
        {"before": _context_before(words, each.destination), "from": words[each.destination], "to": words[each.source],
         "followed": words[each.source + 1] if each.source + 1 < len(words) else "", "attention": each.attention}
        for each in most_looked_at(seen, count)
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["before", "from", "to", "followed", "attention"])


def raised_rows(seen: HeadInText, count: int) -> pd.DataFrame:
    """Returns one row per place, the largest first: its token, the tokens raised most, and by how much."""
    words, rows = seen.pieces, []
    for at in most_raised(seen, count):
        raised = [seen.strings[int(token)] for token in seen.raised_ids[at]]
        row = {
            "before": _context_before(words, at),
            "at": words[at],
            "token": raised[0],
            "nats": float(seen.raised_nats[at, 0]),
        }
        looks = words[int(seen.pattern[at].argmax())]
        came = words[at + 1] if at + 1 < len(words) else ""
        rows.append(row | {"others": " ".join(map(quote_token, raised[1:])), "looks_at": looks, "came": came})
    return pd.DataFrame(rows, columns=["before", "at", "token", "nats", "others", "looks_at", "came"])


def loss_rows(losses: tuple[TokenLosses, TokenLosses]) -> pd.DataFrame:
    """Returns one row per token of a text: its loss with and without the head, in nats."""
    full, without = losses
    change = np.nan_to_num(without.loss_nats - full.loss_nats)
    columns = {"piece": full.pieces, "token": full.pieces, "loss": full.loss_nats, "without": without.loss_nats}
    return pd.DataFrame(columns | {"change": change})


def figures_of(found: Portrait) -> list[KeyFigure]:
    """Returns the figure that tells most of this head and the in-context gain lost without it, as far as known."""
    mine = [] if OLSSON not in found.scores else [_telling(found)]
    return mine if found.context is None else [*mine, _context_figure(*found.context)]


def _telling(found: Portrait) -> KeyFigure:
    """Returns the first score that is high, else prefix matching."""
    name = next(iter(kinds(found)), "prefix_matching")
    rank = f"rank {found.rank(name)} of {found.n_heads:,} heads"
    return KeyFigure(TITLES[name], number(found.score(name)), rank, ABOUT[name])


def _context_figure(score: MeanOverTexts, lost: MeanOverTexts) -> KeyFigure:
    nats, moved = _nats_moved(lost).rsplit(" ", 1)
    low, high = (number(end) for end in ((lost.low, lost.high) if moved == "lost" else (-lost.high, -lost.low)))
    with_it, without = (number(-value) for value in (score.value, score.value + lost.value))
    about = f"Later tokens of a text gain {with_it} nats; without it, {without}."
    is_chance, title = _is_chance(lost), f"In-context gain {moved} without it"
    return KeyFigure(title, nats, f"95%: {low} to {high}{MAY_BE_CHANCE * is_chance}", about, is_chance)


def headline(found: Portrait) -> str:
    """Returns what the head is: its kind, else the accuracy clearly lost without it, else its scores; "" while they are
    unknown."""
    cost = _cost(found)
    if cost is None or kinds(found) or OLSSON not in found.scores:
        return found.verdict.rstrip(".")
    return f"{number(-cost['points'], 0)} points lost on {cost['task']} without it"


def of_interest(found: Portrait) -> dict[str, str]:
    """Returns heads worth a look, by name with the reason: each kind's highest scores, then the most accuracy lost."""
    reasons, scores = dict[str, list[str]](), found.scores.get(OLSSON)
    for kind in KINDS:
        for name, value in best_heads(scores.mean[kind], MOST_LISTED) if scores is not None else ():
            if value >= INDUCTION_FROM:
                reasons.setdefault(name, []).append(KINDS[kind])
    for (what, _), each in found.importance.items():
        lost = best_heads(each.scores, N_COSTLY) if what == ORACLE else ()
        for rank, (name, _) in enumerate(lost, 1):
            reasons.setdefault(name, []).append(f"accuracy lost, rank {rank}")
    return {name: "; ".join(dict.fromkeys(each)) for name, each in reasons.items()}


def facts(found: Portrait) -> list[str]:
    """Returns the accuracy clearly lost or gained without the head, as lines, but for what the headline says."""
    cost = None if kinds(found) else _cost(found)
    rows = [row for row in effect_rows(found).to_dict("records") if row["p"] < CLEAR_P and row != cost]
    return [f"Without it **{_points(row['points'])}** on {row['task']} ({p_in_words(row['p'])})." for row in rows]


def kinds(found: Portrait) -> list[str]:
    """Returns the scores of KINDS that are high."""
    return [name for name in KINDS if found.score(name) >= INDUCTION_FROM]


def _cost(found: Portrait) -> dict[Hashable, Any] | None:
    """Returns the row of `effect_rows` with the most accuracy clearly lost; None if none is."""
    rows = [row for row in effect_rows(found).to_dict("records") if row["p"] < CLEAR_P and row["points"] < 0]
    return min(rows, key=lambda row: row["points"], default=None)


def context_in_words(found: tuple[MeanOverTexts, MeanOverTexts]) -> str:
    """Describes the in-context gain, and how much of it is lost without the head."""
    score, lost = found
    with_it, without = (number(-value, sign=True) for value in (score.value, score.value + lost.value))
    ends = f"95% interval of the loss {number(lost.low, sign=True)} to {number(lost.high, sign=True)}, {lost.n} texts"
    words = f"“{LOG_BOOKS.name}”: {with_it} with it, {without} without"
    moved = f"{_nats_moved(lost)}{MAY_BE_CHANCE}" if _is_chance(lost) else f"**{_nats_moved(lost)}**"
    return f"{words}: {moved} ({ends}). Higher is better."


def _is_chance(mean: MeanOverTexts) -> bool:
    """Returns whether the interval includes 0."""
    return mean.low <= 0 <= mean.high


def _nats_moved(lost: MeanOverTexts) -> str:
    return f"{number(abs(lost.value))} nats {'lost' if lost.value >= 0 else 'added'}"


def _points(points: float) -> str:
    return better_or_worse(points, "points", 1, less_is_better=False)


def scores_in_words(found: Portrait) -> str:
    """Returns the scores as a sentence."""
    rows = score_rows(found)
    mine = rows[rows["mine"]]
    return "; ".join(f"{row['score']} {row['words']}" for row in mine.to_dict("records")) + "."


def _context_before(words: list[str], at: int) -> str:
    return "".join(words[max(0, at - 8) : at])[-CONTEXT:].replace("\n", "⏎")


def quote_token(piece: str) -> str:
    """Returns a token as it is listed among others."""
    return f"“{piece.strip()}”" if piece.strip() else repr(piece)


def effects_in_words(frame: pd.DataFrame) -> str:
    """Returns the loss on each task, such as "demo_walk, 5 shots: 94% with it, 88% without: **6.0 points worse** (0
    gained, 6 lost of 100, p = 0.031)."."""
    lines = []
    for row in frame.to_dict("records"):
        counts = f"{row['gained']} gained, {row['lost']} lost of {row['n']}, {p_in_words(row['p'])}"
        both = f"{whole_percent(row['acc'])} with it, {whole_percent(row['acc_without'])} without"
        points, mark = _points(row["points"]), "**" if row["p"] < CLEAR_P else ""
        lines.append(f"{row['task']}: {both}: {mark}{points}{mark} ({counts})")
    return "; ".join(lines) + "."


def places_in_words(frame: pd.DataFrame) -> str:
    """Returns its rank by each criterion and task."""
    return (
        "; ".join(
            f"{row['criterion']}, {row['task']}: rank {row['rank']} of {row['heads']}"
            for row in frame.to_dict("records")
        )
        + "."
    )


def losses_in_words(frame: pd.DataFrame) -> str:
    """Describes a text's losses without the head, and the tokens that lose most."""
    mean = float(frame["change"].mean())
    worst = frame.nlargest(3, "change")
    named = ", ".join(
        f"{quote_token(row['token'])} {better_or_worse(row['change'], 'nats')}" for row in worst.to_dict("records")
    )
    return f"Without the head, a token is **{better_or_worse(mean, 'nats')}** on average; most: {named}."

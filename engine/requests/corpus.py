"""Heads over a corpus: `ReadCorpus`."""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from engine import charts
from engine.corpus.descriptions import describe
from engine.corpus.heads import Fired, Head, HeadsInCorpus, deciles, heads_in_corpus
from engine.corpus.loss_without import LossWithout, loss_without
from engine.corpus.windows import BUILT_IN, LENGTH, MAX_LENGTH, MAX_WINDOWS, MIN_LENGTH, N_WINDOWS, corpus_of
from engine.measurement import Measurement
from engine.models.session import Session
from engine.requests.base import OfModel, RequestRun, Result
from engine.requests.fields import number, output, path, string
from engine.requests.output import TABLES, file_of, table_file
from engine.studies.one_head import head_named
from engine.views.view import text_view

N_EXAMPLES, CONTEXT = 3, 8
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
SHARES = [*SCORE_TITLES][:6]


@dataclass(frozen=True, kw_only=True)
class ReadCorpus(OfModel):
    """Measure where every head looks in a corpus, and what it fires at. The value is a HeadsInCorpus."""

    command: ClassVar[str] = "corpus"
    group: ClassVar[str] = "Kinds of heads"
    text: str = path(BUILT_IN, "text file, folder of .txt and .md files, or built-in (default): the included texts and "
                     "questions")  # fmt: skip
    windows: int = number(N_WINDOWS, (1, MAX_WINDOWS), f"windows to read, at most (default: {N_WINDOWS:,})")
    length: int = number(LENGTH, (MIN_LENGTH, MAX_LENGTH), f"tokens in a window (default: {LENGTH})")
    head: str | None = string(
        None, "a head, such as L1H0, whose windows are shown and that is removed on them (default: none)"
    )
    out: str | None = output(TABLES, "output file, a row per head: .csv or .parquet")

    def measurement(self, session: Session) -> Measurement[HeadsInCorpus]:
        corpus = corpus_of(self.text, session.store, self.windows, self.length)
        return heads_in_corpus(self.target(session), corpus)

    def measure(self, run: RequestRun) -> Result:
        import pandas as pd

        target = self.target(run.session)
        head = None if self.head is None else head_named(self.head, target.shape)
        found = run.value(self.measurement(run.session))
        rows = rows_of(found)
        fields: dict[str, Any] = {
            "windows": len(found), "asked": self.windows, "available": found.windows.n_available, "length": self.length,
            "heads": rows, "out": self.out,
        }  # fmt: skip
        lines = [f"{in_words(found, self.windows)}"]
        for name in SHARES:
            best = max(rows, key=lambda row: row[name])
            lines.append(f"most {SCORE_TITLES[name]}: {best['name']}, {100 * best[name]:.0f}%")
        if head is not None:
            removed = run.value(loss_without(target, found, head))
            fields |= head_fields(found, head, removed)
            lines += _head_lines(found, head, removed)
        files = file_of(self.out, lambda suffix: table_file(suffix, pd.DataFrame(rows)))
        maps = {f"{name}|{SCORE_TITLES[name].capitalize()}|%": found.scores[name] for name in SHARES}
        return Result(found, fields, text_view("\n".join(lines)), files, plot=partial(charts.score_maps, maps))


def in_words(found: HeadsInCorpus, asked: int) -> str:
    """Returns how many windows were read, of how many, and that there are no more if fewer than asked were."""
    n, length = found.windows.token_ids.shape
    if not found.is_complete:
        return f"{len(found):,} of {n:,} windows of {length} tokens so far"
    few = f" (all that the corpus has; {asked:,} were asked for)" if n < asked else ""
    return f"{n:,} windows of {length} tokens{few}"


def rows_of(found: HeadsInCorpus) -> list[dict[str, Any]]:
    """Returns one row per head: its scores, its largest activation, and its description."""
    largest = found.activation.max(0)
    return [
        {"name": f"L{layer}H{head}", "layer": layer, "head": head}
        | {name: float(scores[layer, head]) for name, scores in found.scores.items()}
        | {"largest_activation": float(largest[layer, head])}
        | {"description": "; ".join(clause.text for clause in describe(found, (layer, head)))}
        for layer, head in np.ndindex(*largest.shape)
    ]


def example_row(found: HeadsInCorpus, fired: Fired) -> dict[str, Any]:
    """Returns one example: its window, the tokens that the head looks from and at, and the text `around`: before the
    key, between key and query, shortened, and after the query."""
    strings = [found.windows.strings[token] for token in found.windows.token_ids[fired.window].tolist()]
    key, query = fired.key, fired.query
    between = strings[key + 1 : query]
    if len(between) > 2 * CONTEXT:
        between = [*between[:CONTEXT], " … ", *between[-CONTEXT:]]
    parts = strings[max(0, key - CONTEXT) : key], between, strings[query + 1 : query + CONTEXT]
    return {
        "window": fired.window, "activation": fired.activation, "kind": fired.kind, "query": query, "key": key,
        "query_token": strings[query], "key_token": strings[key], "around": ["".join(part) for part in parts],
    }  # fmt: skip


def head_fields(found: HeadsInCorpus, head: Head, removed: LossWithout) -> dict[str, Any]:
    """Returns what is known of one head: its clauses, its frequent tokens, examples by decile, and its removal."""
    groups = deciles(found.fired(head))
    return {
        "head": f"L{head[0]}H{head[1]}",
        "clauses": [{"rule": each.rule, "text": each.text, "value": each.value} for each in describe(found, head)],
        "frequent": {at: [{"token": token, "share": share} for token, share in found.frequent(head, at)]
                     for at in ("query", "key")},
        "examples": [example_row(found, fired) | {"decile": decile}
                     for decile, group in enumerate(groups) for fired in group[:N_EXAMPLES]],
        "removal": {name: {"nats": each.nats, "ci95": [each.low, each.high]}
                    for name, each in (("top", removed.top), ("other", removed.other))}
                   | {"n_windows": removed.n_windows, "is_clear": removed.is_clear},
    }  # fmt: skip


def _head_lines(found: HeadsInCorpus, head: Head, removed: LossWithout) -> list[str]:
    name = f"L{head[0]}H{head[1]}"
    lines = [f"{name}: {'; '.join(each.text for each in describe(found, head)) or 'no rule describes it'}"]
    for fired in found.fired(head)[:N_EXAMPLES]:
        row = example_row(found, fired)
        before, between, after = row["around"]
        text = f"{before}[{row['key_token']}]{between}[{row['query_token']}]{after}"
        lines.append(f"  {row['query_token']!r} looks at {row['key_token']!r}: {text!r}")
    top, other = removed.top, removed.other
    lines.append(f"without it: {top.nats:+.3f} nats a token ({top.low:+.3f} to {top.high:+.3f}) on its top "
                 f"{removed.n_windows} windows, {other.nats:+.3f} ({other.low:+.3f} to {other.high:+.3f}) on random "
                 "others")  # fmt: skip
    return lines

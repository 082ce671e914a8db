"""Heads over a corpus: `ReadCorpus`."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

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
from engine.views.heads import corpus_view, head_in_corpus_view

N_EXAMPLES, CONTEXT = 3, 8


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
    out: str | None = output(TABLES)

    def measurement(self, session: Session) -> Measurement[HeadsInCorpus]:
        corpus = corpus_of(self.text, session.store, self.windows, self.length)
        return heads_in_corpus(self.target(session), corpus)

    def measure(self, run: RequestRun) -> Result:
        import pandas as pd

        target = self.target(run.session)
        head = None if self.head is None else head_named(self.head, target.shape)
        found = run.value(self.measurement(run.session))
        rows = corpus_rows(found)
        fields: dict[str, Any] = {
            "windows": len(found), "asked": self.windows, "available": found.windows.n_available, "length": self.length,
            "heads": rows, "out": self.out,
        }  # fmt: skip
        view = corpus_view(found, self.windows, rows)
        if head is not None:
            removed = run.value(loss_without(target, found, head))
            more = head_fields(found, head, removed)
            fields |= more
            clauses = [each["text"] for each in more["clauses"]]
            most = [each for each in more["examples"] if each["decile"] == 0]
            view = head_in_corpus_view(view, more["head"], clauses, most, removed)
        files = file_of(self.out, lambda suffix: table_file(suffix, pd.DataFrame(rows)))
        return Result(found, fields, view, files)


def corpus_rows(found: HeadsInCorpus) -> list[dict[str, Any]]:
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

"""A head in a corpus as rows, and as sentences."""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from engine.corpus.descriptions import describe
from engine.corpus.heads import Head, HeadsInCorpus
from engine.corpus.loss_without import LossWithout
from engine.corpus.statistics import DISTANCES
from pages.ui.page.tables import number, plain, visible, whole_percent


def in_words(found: HeadsInCorpus, head: Head) -> str:
    """Returns the clauses that describe the head, without a period."""
    return "; ".join(clause.text for clause in describe(found, head)) or "no rule describes it"


def distance_rows(found: HeadsInCorpus, head: Head) -> pd.DataFrame:
    """Returns one row per range of distances that a window has: `distance` as text, and the `share` of attention."""
    n_tokens, ends = found.windows.token_ids.shape[1], [*DISTANCES[1:], math.inf]
    rows = []
    for first, end, share in zip(DISTANCES, ends, found.distances[head].tolist(), strict=True):
        if first < n_tokens:
            last = int(min(end, n_tokens)) - 1
            rows.append({"distance": str(first) if last == first else f"{first}–{last}", "share": share})
    return pd.DataFrame(rows)


def distances_in_words(distances: pd.DataFrame) -> str:
    """Returns the range with the largest share."""
    share, tokens = max(zip(distances["share"], distances["distance"], strict=True))
    return f"Most of its attention, {whole_percent(share)}, goes {tokens} tokens back."


def token_rows(found: HeadsInCorpus, head: Head) -> pd.DataFrame:
    """Returns the most frequent tokens at the `query` and the `key` of the largest activations, with the shares of
    windows."""
    columns = dict[str, list[Any]]()
    for at in ("query", "key"):
        frequent = found.frequent(head, at)
        columns[at] = [visible(token) for token, _ in frequent]
        columns[f"{at}_share"] = [share for _, share in frequent]
    return pd.DataFrame({name: pd.Series(each) for name, each in columns.items()})


def example_in_words(row: Mapping[str, Any]) -> str:
    """Returns an example (`engine.requests.corpus.example_row`) in one line, with its two tokens marked; Markdown."""
    before, between, after = (plain(part.replace("\n", " / ")) for part in row["around"])
    query, key = (_marked(row[f"{at}_token"], color) for at, color in (("query", "violet"), ("key", "orange")))
    looks = f"{key}{between}{query}" if row["key"] < row["query"] else query
    return f":small[{number(row['activation'])} · …{before}{looks}{after}…]"


def loss_in_words(found: LossWithout, name: str) -> str:
    """Returns what removing the head costs on its top windows and on others, and whether that differs; Markdown."""
    said = [f"{number(each.nats, 3, sign=True)} nats a token ({number(each.low, 3, sign=True)} to "
            f"{number(each.high, 3, sign=True)})" for each in (found.top, found.other)]  # fmt: skip
    verdict = "no clear difference"
    if found.is_clear:
        less = "predicts these better without it" if found.top.high < 0 else "needs it less there"
        verdict = f"the model **{'needs it more where it fires' if found.top.nats > found.other.nats else less}**"
    return f"Without {name}: **{said[0]}** on its top {found.n_windows} windows, {said[1]} on random others: {verdict}."


def _marked(token: str, color: str) -> str:
    """Returns a token on a background, with the blank before it outside."""
    return f"{' ' * (token[:1] == ' ')}:{color}-background[{plain(visible(token.strip() or token))}]"

"""Where heads look in a corpus, and what one of them fires at."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from engine.corpus.heads import HeadsInCorpus
from engine.corpus.loss_without import LossWithout
from engine.views import kit
from engine.views.view import Column, Part, View
from engine.views.words import number, percent, plain, with_interval

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
            partial(kit.head_map, value=name),
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

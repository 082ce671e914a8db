"""Where texts to measure in-context learning on come from: the slices of a long one, or solved questions of a task, one
after the other.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from cache import Store
from engine.demo import passages
from engine.errors import UsageError
from engine.measurement import Measurement, of_records
from engine.models.loading import Loaded
from engine.models.session import Session, Target
from engine.pieces import Measuring, Piece
from engine.progress import Progress
from engine.questions.requests import Requests, TaskSpec, get_requests
from engine.questions.tokens import tokenized
from engine.records import Record, canonical_key
from engine.texts.incontext import MIN_TOKENS, too_short
from engine.texts.passages import checked, text_digest

N_TEXTS, MAX_TEXTS = 24, 200
BETWEEN_QUESTIONS = "\n\n"  # as between the harness's few-shot examples
CHARACTERS_A_TOKEN = 8  # more than prose has, so that one tokenization usually reaches far enough


@dataclass(frozen=True)
class Source:
    """Where texts come from: solved questions of a `task` (train split), the pieces of a built-in `passage`, or those
    of the user's own `text`. `name` is the task, or the passage's title, or what the text is called."""

    kind: Literal["task", "passage", "text"]
    name: str
    text: str = ""
    n_texts: int = N_TEXTS
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in ("task", "passage", "text"):
            raise UsageError(f"texts from {self.kind!r} are unknown; choose task, passage or text")
        if not 1 <= self.n_texts <= MAX_TEXTS:
            raise UsageError(f"{self.n_texts} texts cannot be had; choose 1 to {MAX_TEXTS}")


def slices(text: str, tokenizer: Any, n_tokens: int = MIN_TOKENS, limit: int | None = None) -> list[str]:
    """Consecutive slices of the text, each cut behind the first token with which it has at least `n_tokens` when it is
    tokenized by itself; at most `limit`. What is left at the end is too short and is dropped."""
    found, start = [], 0
    while start < len(text) and (limit is None or len(found) < limit):
        length = _length(text, start, tokenizer, n_tokens)
        if length is None:
            break
        found.append(text[start : start + length])
        start += length
    return [piece for piece in found if piece.strip()]


def strung_together(
    questions: Sequence[str], tokenizer: Any, n_texts: int, seed: int = 0, n_tokens: int = MIN_TOKENS
) -> list[str]:
    """`n_texts` texts of `n_tokens` or barely more: solved questions in a seeded random order of each text's own, none
    twice in one text, a blank line between them, the last one cut. HeadroomError where all of them have too few tokens.
    """
    n_each = np.array([count_tokens(BETWEEN_QUESTIONS + question, tokenizer) for question in questions])
    texts = []
    for number in range(n_texts):
        order = np.random.default_rng((seed, number)).permutation(len(questions))
        n_questions = 1 + int(np.searchsorted(np.cumsum(n_each[order]), n_tokens))
        while True:
            text = BETWEEN_QUESTIONS.join([str(questions[at]) for at in order[:n_questions]])
            if found := slices(text, tokenizer, n_tokens, limit=1):
                break
            if n_questions >= len(order):
                raise too_short(count_tokens(text, tokenizer))
            n_questions += 1
        texts += found
    return texts


def solved(requests: Requests) -> list[str]:
    """Each question with its right answer."""
    return [q.contexts[q.golds[0]] + q.continuations[q.golds[0]] for q in requests.questions]


def count_tokens(text: str, tokenizer: Any) -> int:
    """Tokens of the text, BOS not counted."""
    return len(tokenized(text, tokenizer)[0])


def texts_of(target: Target, source: Source, data_dir: str | None = None) -> Measurement[tuple[str, ...]]:
    """The texts of a source, each of at least 512 tokens.

    They are stored, so that the model is loaded for its tokenizer only once. HeadroomError, when they are read or
    measured: no such task or passage, or too few tokens.
    """

    def wanted(session: Session, records: list[Record]) -> list[Piece]:
        material, digest = _material(source, data_dir, session.store)
        fields = {"tokenizer": target.identity.tokenizer_digest, "material": digest, "kind": source.kind}
        fields |= {"n": source.n_texts, "seed": source.seed if source.kind == "task" else None, "tokens": MIN_TOKENS}
        measure = partial(_cut, source=source, material=material)
        return [Piece(canonical_key("texts", fields), 1, {"json": ("bytes",)}, measure, reads=_texts)]

    about = ("texts", replace(source, text=""), text_digest(source.text), data_dir)
    return of_records(target, about, wanted, lambda records: _texts(records[0]) if records else None)


def _texts(record: Record) -> tuple[str, ...]:
    found = json.loads(record.arrays["json"].tobytes())
    if not (isinstance(found, list) and all(isinstance(text, str) for text in found)):
        raise ValueError("not a list of texts")
    return tuple(found)


def _cut(loaded: Loaded, source: Source, material: Sequence[str]) -> Measuring:
    yield Progress(0, 1)
    if source.kind == "task":
        texts = strung_together(material, loaded.tokenizer, source.n_texts, source.seed)
    else:
        texts = slices(material[0], loaded.tokenizer, limit=source.n_texts)
        if not texts:
            raise too_short(count_tokens(material[0], loaded.tokenizer))
    blob = np.frombuffer(json.dumps(texts).encode(), np.uint8)
    return {"json": blob}, {"kind": "texts", "from": source.kind, "text": source.name}


def _material(source: Source, data_dir: str | None, store: Store) -> tuple[list[str], str]:
    """(the solved questions or the one text that texts are made of, its digest)."""
    if source.kind == "task":
        material = solved(get_requests(TaskSpec(source.name, 0, "train"), data_dir, store))
    elif source.kind == "passage":
        found = {passage.title: passage.text for passage in passages(long=True)}
        if source.name not in found:
            raise UsageError(f"no built-in passage is called {source.name!r}; choose one of {', '.join(found)}")
        material = [found[source.name]]
    else:
        material = [checked(source.text)]
    return material, hashlib.blake2b(json.dumps(material).encode(), digest_size=20).hexdigest()


def _length(text: str, start: int, tokenizer: Any, n_tokens: int) -> int | None:
    """Characters of the slice from `start` that has at least `n_tokens`; None where the text ends before."""
    n_characters = CHARACTERS_A_TOKEN * n_tokens
    while True:
        part = text[start : start + n_characters]
        _, ends = tokenized(part, tokenizer)
        # by itself a slice may fall into fewer tokens than it has in the midst of its text
        for end in map(int, ends[n_tokens - 1 :]):
            if count_tokens(part[:end], tokenizer) >= n_tokens:
                return end
        if start + n_characters >= len(text):
            return None
        n_characters *= 2

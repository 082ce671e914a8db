"""Texts: those of the user, checked before they are measured and remembered on this computer under a name; and sources
of texts for measuring in-context learning, slices of a long text, or solved questions of a task, joined.

Remembered texts are only in the result store; deleting the store deletes them.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from cache import Store
from cache.typed_json import InvalidFile, decode_json
from engine.demo import passages
from engine.errors import HeadroomError, UsageError
from engine.measurement import Measurement, of_records
from engine.models.loading import Loaded
from engine.models.session import Session, Target
from engine.pieces import Measuring, Piece
from engine.progress import Progress
from engine.questions.chats import chat_template
from engine.questions.encoding import tokenized
from engine.questions.rendering import RenderedQuestions, TaskSpec, render_questions
from engine.records import Record, canonical_key, pack_json, unpack_json
from engine.texts.incontext import MIN_TOKENS, too_short

MAX_BYTES = 1_000_000
MAX_NAME = 80  # characters
INDEX = "passages"  # the store's key of {name: key of its text}
N_TEXTS, MAX_TEXTS = 24, 200
BETWEEN_QUESTIONS = "\n\n"  # as between the harness's few-shot examples
CHARACTERS_A_TOKEN = 8  # more than prose has, so that one tokenization usually reaches far enough


def checked(text: str, what: str = "the text", most: int = MAX_BYTES) -> str:
    """Returns the text with line ends as `\\n`. HeadroomError: an empty or invalid text, or more than `most` bytes."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise HeadroomError(f"{what} is empty or only whitespace; paste or load a few sentences")
    if "\0" in text:
        raise HeadroomError(f"{what} has NUL characters, so it is not plain text; save it as a .txt file first")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise HeadroomError(f"{what} has half a character at {error.start + 1:,}; copy it again") from error
    if size > most:
        raise HeadroomError(f"{what} has {size:,} bytes, at most {most:,} can be measured; take a part of it")
    return text


def text_digest(text: str) -> str:
    """Returns the digest of a text, for keys."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def as_chat(target: Target, text: str) -> tuple[Target, str]:
    """Returns (the target, the text as a message of the user) with the model's chat template, up to where the assistant
    answers. If the template begins with the BOS token, BOS is off in that target. HeadroomError: there is no chat
    template, or it fails."""
    template = chat_template(target.identity)
    rendered, bos = template.prompt(checked(text)), dict(template.tokens).get("bos_token")
    return replace(target, bos=target.bos and not (bos and rendered.startswith(bos))), rendered


def chat_field(is_chat: bool) -> dict[str, bool]:
    """Returns what the key of a measurement of a chat has in addition."""
    return {"chat": True} if is_chat else {}


def decoded(raw: bytes, name: str, most: int = MAX_BYTES) -> str:
    """Returns the checked text of a UTF-8 file. HeadroomError: as for `checked`, or not UTF-8."""
    _check_size(raw, name, most)
    try:
        return checked(raw.decode("utf-8-sig"), name, most)
    except UnicodeDecodeError as error:
        raise HeadroomError(
            f"{name} is not UTF-8 text (byte {error.start + 1:,}); save it again with the encoding UTF-8"
        ) from error


def guess_decoded(raw: bytes, name: str, most: int = MAX_BYTES) -> tuple[str, str]:
    """Returns the checked text of a file, and the encoding that was guessed, "" if it is UTF-8. HeadroomError: as for
    `checked`, or no encoding fits."""
    from charset_normalizer import from_bytes

    _check_size(raw, name, most)
    if b"\0" not in raw:  # UTF-16 has them at every letter of ASCII
        try:
            return checked(raw.decode("utf-8-sig"), name, most), ""
        except UnicodeDecodeError:
            pass
    best = from_bytes(raw).best()
    if best is None:
        raise HeadroomError(f"no encoding fits {name}, so it is not plain text; save it as a .txt file with UTF-8")
    return checked(str(best), name, most), best.encoding


def _check_size(raw: bytes, name: str, most: int) -> None:
    if len(raw) > 2 * most:
        raise HeadroomError(f"{name} has {len(raw):,} bytes, at most {most:,} can be measured; take a part of it")


def remember(name: str, text: str, store: Store) -> bool:
    """Stores the text under its name, replacing an older one; returns False if it is kept in memory only."""
    name = name.strip()
    if not name or len(name) > MAX_NAME or not name.isprintable():
        raise HeadroomError(f"a name of {len(name)} characters cannot be kept; use 1 to {MAX_NAME} printable ones")
    text = checked(text)
    kept = store.put(_key(name), json.dumps([name, text]).encode())
    return store.put(INDEX, json.dumps(sorted({*names(store), name})).encode()) and kept


def names(store: Store) -> list[str]:
    """Returns the names of the remembered texts."""
    try:
        return decode_json(store.get(INDEX) or b"[]", list[str], INDEX)
    except InvalidFile:
        return []


def recall(name: str, store: Store) -> str | None:
    """Returns the text remembered under a name, or None if missing."""
    try:
        kept_name, text = decode_json(store.get(_key(name)) or b"", tuple[str, str], name)
    except InvalidFile:
        return None
    return text if kept_name == name else None


def forget(name: str, store: Store) -> None:
    """Deletes a remembered text."""
    store.delete(_key(name))
    store.put(INDEX, json.dumps([other for other in names(store) if other != name]).encode())


def _key(name: str) -> str:
    return f"passage/{hashlib.blake2b(name.encode(), digest_size=20).hexdigest()}"


@dataclass(frozen=True)
class Source:
    """A source of texts: solved questions of a `task` (train split), slices of a built-in `passage`, or of the user's
    `text`. `name` is the name of the task or text, or the passage's title."""

    kind: Literal["task", "passage", "text"]
    name: str
    text: str = ""
    n_texts: int = N_TEXTS
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in ("task", "passage", "text"):
            raise UsageError(f"texts from {self.kind!r} are unknown; choose task, passage or text")
        if not 1 <= self.n_texts <= MAX_TEXTS:
            raise UsageError(f"cannot take {self.n_texts} texts; choose 1 to {MAX_TEXTS}")


# each day's entry repeats the one before; enough windows for a clear interval, few enough to ablate every head on each
LOG_BOOKS = Source("passage", "Five log books", n_texts=6)


def slices(text: str, tokenizer: Any, n_tokens: int = MIN_TOKENS, limit: int | None = None) -> list[str]:
    """Returns at most `limit` consecutive slices of the text, each the shortest with at least `n_tokens` when tokenized
    by itself. The rest at the end is too short and is dropped."""
    found, start = [], 0
    while start < len(text) and (limit is None or len(found) < limit):
        length = _length(text, start, tokenizer, n_tokens)
        if length is None:
            break
        found.append(text[start : start + length])
        start += length
    return [piece for piece in found if piece.strip()]


def strung_together(questions: Sequence[str], tokenizer: Any, n_texts: int, seed: int = 0) -> list[str]:
    """Returns `n_texts` texts of MIN_TOKENS or slightly more: solved questions in a different seeded random order for
    each text, none twice in one text, separated by blank lines, the last one cut. HeadroomError: all questions together
    have too few tokens."""
    n_each = np.array([count_tokens(BETWEEN_QUESTIONS + question, tokenizer) for question in questions])
    texts = []
    for number in range(n_texts):
        order = np.random.default_rng((seed, number)).permutation(len(questions))
        n_questions = 1 + int(np.searchsorted(np.cumsum(n_each[order]), MIN_TOKENS))
        while True:
            text = BETWEEN_QUESTIONS.join([str(questions[at]) for at in order[:n_questions]])
            if found := slices(text, tokenizer, MIN_TOKENS, limit=1):
                break
            if n_questions >= len(order):
                raise too_short(count_tokens(text, tokenizer))
            n_questions += 1
        texts += found
    return texts


def solved(rendered: RenderedQuestions) -> list[str]:
    """Returns each question with its right answer."""
    return [q.contexts[q.golds[0]] + q.continuations[q.golds[0]] for q in rendered.questions]


def count_tokens(text: str, tokenizer: Any) -> int:
    """Returns the number of tokens of the text, without BOS."""
    return len(tokenized(text, tokenizer)[0])


def texts_of(target: Target, source: Source, data_dir: str | None = None) -> Measurement[tuple[str, ...]]:
    """Returns the texts of a source, each of at least 512 tokens.

    They are stored, so the model is loaded for its tokenizer only once. HeadroomError, when they are read or measured:
    no such task or passage, or too few tokens.
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
    found = unpack_json(record.arrays["json"])
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
    return {"json": pack_json(texts)}, {"kind": "texts", "from": source.kind, "text": source.name}


def _material(source: Source, data_dir: str | None, store: Store) -> tuple[list[str], str]:
    """Returns (the solved questions, or the one text, that texts are made from; its digest)."""
    if source.kind == "task":
        material = solved(render_questions(TaskSpec(source.name, 0, "train"), data_dir, store))
    elif source.kind == "passage":
        found = {passage.title: passage.text for passage in passages(long=True)}
        if source.name not in found:
            raise UsageError(f"no built-in passage is called {source.name!r}; choose one of {', '.join(found)}")
        material = [found[source.name]]
    else:
        material = [checked(source.text)]
    return material, hashlib.blake2b(json.dumps(material).encode(), digest_size=20).hexdigest()


def _length(text: str, start: int, tokenizer: Any, n_tokens: int) -> int | None:
    """Returns the length in characters of the slice from `start` with at least `n_tokens`, or None if the text ends
    before that."""
    n_characters = CHARACTERS_A_TOKEN * n_tokens
    while True:
        part = text[start : start + n_characters]
        _, ends = tokenized(part, tokenizer)
        # a slice tokenized by itself may have fewer tokens than within its text
        for end in map(int, ends[n_tokens - 1 :]):
            if count_tokens(part[:end], tokenizer) >= n_tokens:
                return end
        if start + n_characters >= len(text):
            return None
        n_characters *= 2

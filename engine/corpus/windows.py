"""A corpus, cut into windows of equally many tokens, none of which overlap.

Texts are joined by blank lines and tokenized as one. If there are more windows than wanted, evenly spaced ones are
used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cache import Store
from engine.demo import passages
from engine.errors import HeadroomError, UsageError
from engine.measurement import Measurement, single
from engine.models.loading import Loaded
from engine.models.session import Target
from engine.pieces import Measuring, Piece
from engine.progress import Progress
from engine.questions.encoding import front, pack_strings, tokenized, unpack_strings
from engine.questions.rendering import TaskSpec, render_questions
from engine.questions.tasks import packaged_tasks
from engine.records import Record, canonical_key, pack_json, unpack_json
from engine.texts.passages import checked, decoded, solved, text_digest
from engine.timing.workload import CHARACTERS_A_TOKEN

BUILT_IN = "built-in"
N_WINDOWS, MAX_WINDOWS = 1000, 10_000
LENGTH, MIN_LENGTH, MAX_LENGTH = 256, 16, 1024
MAX_BYTES = 10_000_000
SUFFIXES = (".txt", ".md")
BETWEEN = "\n\n"


@dataclass(frozen=True)
class Corpus:
    """A text under a `name`, of which at most `n_windows` windows of `length` tokens are used, BOS included."""

    name: str
    text: str = field(repr=False)
    n_windows: int = N_WINDOWS
    length: int = LENGTH

    def __post_init__(self) -> None:
        if not 1 <= self.n_windows <= MAX_WINDOWS:
            raise UsageError(f"cannot take {self.n_windows} windows; choose 1 to {MAX_WINDOWS:,}")
        if not MIN_LENGTH <= self.length <= MAX_LENGTH:
            raise UsageError(f"a window cannot have {self.length} tokens; choose {MIN_LENGTH} to {MAX_LENGTH:,}")

    @property
    def digest(self) -> str:
        """The digest of the text, for keys."""
        return text_digest(self.text)


@dataclass(frozen=True)
class Windows:
    """The windows of a corpus.

    token_ids: (n, T), BOS included
    texts: the text of each window, without BOS
    strings: the text of each token id
    n_available: windows that the corpus has
    has_bos: whether each begins with BOS
    """

    token_ids: np.ndarray
    texts: tuple[str, ...]
    strings: dict[int, str]
    n_available: int
    has_bos: bool


def corpus_of(source: str, store: Store, n_windows: int = N_WINDOWS, length: int = LENGTH) -> Corpus:
    """Returns the Corpus of a text file, of the .txt and .md files in a folder, or the built-in one. HeadroomError:
    there is no such file, it is not text, or all of them have more than 10 MB."""
    if source == BUILT_IN:
        return Corpus(BUILT_IN, built_in_text(store), n_windows, length)
    path = Path(source).expanduser()
    files = sorted(each for each in path.rglob("*") if each.suffix in SUFFIXES) if path.is_dir() else [path]
    if not files:
        raise HeadroomError(f"{source} has no {' or '.join(SUFFIXES)} file; name a folder with text files")
    try:
        if (size := sum(each.stat().st_size for each in files)) > MAX_BYTES:
            raise HeadroomError(f"{source} has {size:,} bytes, at most {MAX_BYTES:,} can be read; take a part of it")
        texts = [decoded(each.read_bytes(), str(each), MAX_BYTES) for each in files]
    except OSError as error:
        raise HeadroomError(f"{source} cannot be read: {error.strerror}; name a text file or a folder") from error
    return Corpus(path.name, BETWEEN.join(texts), n_windows, length)


def built_in_text(store: Store) -> str:
    """Returns all built-in passages, and all solved questions of the included tasks, rendered once a store."""
    parts = [passage.text for passage in passages(long=True)]
    for name in packaged_tasks():
        for split in ("train", "validation"):
            parts += solved(render_questions(TaskSpec(name, 0, split), store=store))
    return BETWEEN.join(dict.fromkeys(parts))


def windows_of(target: Target, corpus: Corpus) -> Measurement[Windows]:
    """Returns the Windows of a corpus, stored, so that the tokenizer is loaded once. HeadroomError: the text is shorter
    than one window, or windows are longer than the model's."""
    length, n_ctx = corpus.length, target.shape.n_ctx
    if length > n_ctx:
        raise UsageError(f"windows of {length} tokens are longer than this model's {n_ctx}; choose at most {n_ctx}")
    fields = {"tokenizer": target.identity.tokenizer_digest, "text": corpus.digest, "windows": corpus.n_windows}
    key = canonical_key("corpus windows", fields | {"length": length, "bos": target.bos})
    shapes: dict[str, tuple[int | str, ...]] = {"token_ids": ("n", length), "json": ("bytes",), "strings": ("b",)}
    read, measure = partial(_as_windows, target.bos), partial(_cut, corpus=corpus, bos=target.bos)
    return single(target, Piece(key, 1, shapes | {"n_available": ()}, measure, reads=read), read)


def in_passes(token_ids: np.ndarray, each: int) -> Iterator[tuple[np.ndarray, dict[str, Any]]]:
    """Yields so many of the windows (n, T) at a time, with what names them in a key."""
    for start in range(0, len(token_ids), each):
        ids = token_ids[start : start + each]
        digest = hashlib.blake2b(ids.tobytes(), digest_size=16).hexdigest()
        yield ids, {"tokens": digest, "windows": list(ids.shape)}


def n_characters(corpus: Corpus) -> float:
    """Returns about how many characters all windows together have."""
    return float(min(len(corpus.text), corpus.n_windows * corpus.length * CHARACTERS_A_TOKEN))


def _cut(loaded: Loaded, corpus: Corpus, bos: bool) -> Measuring:
    yield Progress(0, 1, message="tokenizing")
    tokenizer = loaded.tokenizer
    before = front(tokenizer, bos)
    ids, each = tokenized(checked(corpus.text, most=2 * MAX_BYTES), tokenizer)[0], corpus.length - len(before)
    available = len(ids) // each
    if not available:
        raise HeadroomError(f"the text has {len(ids)} tokens, and a window takes {each}; choose a longer text or "
                            "shorter windows")  # fmt: skip
    rows = ids[: available * each].reshape(available, each)
    rows = rows[_evenly(available, corpus.n_windows)]
    texts = tokenizer.batch_decode(rows, clean_up_tokenization_spaces=False)
    arrays: dict[str, Any] = {"token_ids": np.insert(rows, [0] * len(before), before, axis=1).astype(np.int32)}
    arrays |= {"json": pack_json(texts), "strings": pack_strings(arrays["token_ids"], tokenizer)}
    return arrays | {"n_available": np.array(available)}, {"kind": "corpus windows", "corpus": corpus.name}


def _evenly(available: int, wanted: int) -> np.ndarray:
    """Returns which of the available windows are used."""
    return np.arange(min(available, wanted)) * available // min(available, wanted)


def _as_windows(bos: bool, record: Record) -> Windows:
    texts: Sequence[str] = unpack_json(record.arrays["json"])
    strings = unpack_strings(record.arrays["strings"])
    return Windows(record.arrays["token_ids"], tuple(texts), strings, int(record.arrays["n_available"]), bos)

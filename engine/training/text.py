"""The text a run reads: files of a folder, or the Python source and documentation that every computer with this has.

Files come in an order that depends on their names alone, so that runs that read less of the same text read the same
beginning. One file in ten is held out whole: nothing of it is trained on.
"""

from __future__ import annotations

import hashlib
import os
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import HeadroomError

END = "<|endoftext|>"  # id 0: in front of every file and of every row
HELD_OUT_TENTH = 26  # of 256: files whose digest begins below this are held out
HELD_OUT_TEXTS, HELD_OUT_TOKENS, OF_ONE_FILE = 1000, 512, 4
TOKENIZER_CHARACTERS, FEW_CHARACTERS = 8_000_000, 500_000  # that the vocabulary is made from; of a run without text
HELD_OUT_CHARACTERS = 5_000_000  # that are looked at of one held-out file
PIECE_CHARACTERS = 1_000_000  # of a file that are encoded at once: a longer one would take gigabytes
MOST_BYTES, BEGINNING_BYTES = 500_000_000, 8192  # that are read of one file; by which it is known as text
SHORTEST, LONGEST = 2_000, 400_000  # characters of a file on this computer: neither stubs nor tables
ENDINGS = (".py", ".rst", ".md")
LEFT_OUT = {"__pycache__", "_vendor", "chardet", "encodings", "idlelib", "lib2to3", "locale", "nltk_data", "pydoc_data",
            "site-packages", "test", "testing", "tests", "vendor"}  # fmt: skip
AT_ONCE = 32  # files that are encoded together


@dataclass(frozen=True)
class TrainingText:
    """`tokens` (n,) to train on, `held_out` (text, 512) in whole stretches of held-out files, and the `tokenizer` that
    cut them; `source` says where it is from."""

    tokens: np.ndarray
    held_out: np.ndarray
    tokenizer: Any
    source: str

    @property
    def digest(self) -> str:
        """Names the held-out part and the tokenizer."""
        return hashlib.sha256(self.tokenizer.to_str().encode() + self.held_out.tobytes()).hexdigest()


def text_for(n_tokens: int, n_vocab: int, path: Path | None = None) -> TrainingText:
    """Text for a run of so many tokens, each used once. HeadroomError: no text there, or too little of it."""
    trained, held, source = _files(path)
    if not trained or not held:
        where = f"in {path}" if path else "on this computer"
        why = f"{path} does not exist" if path and not path.exists() else f"no training text found {where}"
        raise HeadroomError(f"{why}; give a folder with text files, or one long file")
    tokenizer = byte_bpe(_sample(trained, TOKENIZER_CHARACTERS if n_tokens else FEW_CHARACTERS), n_vocab)
    held_out = _stretches(tokenizer, held)
    tokens = _tokens(tokenizer, trained, n_tokens + 1)
    if len(tokens) < n_tokens + 1:
        raise HeadroomError(f"the text has {len(tokens):,} tokens and the run reads {n_tokens:,}, each once; give more "
                            f"text, or fewer tokens")  # fmt: skip
    return TrainingText(tokens, held_out, tokenizer, source)


def _files(path: Path | None) -> tuple[list[_File], list[_File], str]:
    """(to train on, held out, where they are from), each in the order of their names' digests."""
    if path is None:
        roots = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")]
        found = [file for root in roots for file in _on_this_computer(root)]
        source = f"Python source and documentation on this computer, {len(found):,} files"
    elif path.is_file():
        return *_halves(path), str(path)
    else:
        found = [file for file in _of_the_user(path) if not file.is_binary]
        source = f"{path}, {len(found):,} files"
    found.sort(key=lambda file: file.rank)
    held = [file for file in found if file.rank[0] < HELD_OUT_TENTH]
    if len(found) == 1:
        return *_halves(found[0].path), source
    if not held:
        held, found = found[:1], found[1:]
    aside = {file.rank for file in held}
    return [file for file in found if file.rank not in aside], held, source


@dataclass(frozen=True)
class _File:
    """A text file, or characters `start` to `stop` of one."""

    path: Path
    rank: bytes
    start: int = 0
    stop: int | None = None

    def read(self) -> str:
        """Its text, at most MOST_BYTES of it, odd bytes replaced; "" where it is gone since, or no text."""
        content = self._bytes(MOST_BYTES)
        return "" if b"\0" in content else content.decode("utf-8", "replace")[self.start : self.stop]

    @property
    def is_binary(self) -> bool:
        """Whether it is empty, cannot be read, or begins as no text does."""
        beginning = self._bytes(BEGINNING_BYTES)
        return not beginning or b"\0" in beginning

    def _bytes(self, n: int) -> bytes:
        try:
            with self.path.open("rb") as file:
                return file.read(n)
        except OSError:
            return b""


def _rank(name: Path) -> bytes:
    return hashlib.sha256(name.as_posix().encode()).digest()


def _of_the_user(root: Path) -> Iterator[_File]:
    """Every file of a folder but hidden ones, whatever it is called."""
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if not name.startswith(".")]
        for file in (Path(folder, name) for name in names if not name.startswith(".")):
            if file.is_file():  # no pipe, which would be waited for
                yield _File(file, _rank(file.relative_to(root)))


def _on_this_computer(root: Path) -> Iterator[_File]:
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if name not in LEFT_OUT]
        for name in names:
            if name.endswith(ENDINGS):
                file = Path(folder, name)
                try:
                    size = file.stat().st_size
                except OSError:
                    continue
                if SHORTEST <= size <= LONGEST:
                    yield _File(file, _rank(file.relative_to(root)))


def _halves(file: Path) -> tuple[list[_File], list[_File]]:
    """One file, of which the last tenth is held out."""
    whole = _File(file, b"")
    length = 0 if whole.is_binary else len(whole.read())
    cut = length * 9 // 10
    return ([_File(file, b"", 0, cut)], [_File(file, b"", cut)]) if length else ([], [])


def _sample(files: Iterable[_File], most: int) -> list[str]:
    """The first characters of the text, at most so many, which the vocabulary is made from."""
    sample, length = [], 0
    for file in files:
        sample.append(file.read()[: most - length])
        length += len(sample[-1])
        if length >= most:
            break
    return sample


def byte_bpe(sample: Iterable[str], n_vocab: int, special: Sequence[str] = (END,), beginning: str = END) -> Any:
    """A byte-level BPE of that size made from `sample`, a `tokenizers.Tokenizer`: the `special` tokens have the first
    ids, `beginning` is in front of every text. HeadroomError: the text is too short for the size."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE(unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(sample, trainers.BpeTrainer(
        vocab_size=n_vocab, special_tokens=list(special), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))  # fmt: skip
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{beginning} $A", pair=f"{beginning} $A $B", special_tokens=[(beginning, special.index(beginning))]
    )
    if tokenizer.get_vocab_size() < n_vocab:
        raise HeadroomError(f"the text is too short for a vocabulary of {n_vocab}: it gives only "
                            f"{tokenizer.get_vocab_size()}; give more text or a smaller vocabulary")  # fmt: skip
    return tokenizer


def _tokens(tokenizer: Any, files: list[_File], wanted: int) -> np.ndarray:
    """Up to `wanted` tokens of the files, one behind the other, END in front of each."""
    found, n = [np.zeros(0, np.uint16)], 0
    for first in range(0, len(files), AT_ONCE):
        if n >= wanted:
            break
        texts = [file.read() for file in files[first : first + AT_ONCE]]
        for encoding in tokenizer.encode_batch_fast([text[:PIECE_CHARACTERS] for text in texts]):
            found.append(np.array(encoding.ids, np.uint16))
            n += len(encoding.ids)
            rest = texts.pop(0)
            for start in range(PIECE_CHARACTERS, len(rest), PIECE_CHARACTERS):
                if n >= wanted:
                    break
                piece = tokenizer.encode_batch_fast([rest[start : start + PIECE_CHARACTERS]], add_special_tokens=False)
                found.append(np.array(piece[0].ids, np.uint16))
                n += len(piece[0].ids)
    return np.concatenate(found)[:wanted]


def _stretches(tokenizer: Any, files: list[_File]) -> np.ndarray:
    """(text, 512) tokens without END: up to four stretches of a file, evenly placed, the files in turn."""
    found: list[np.ndarray] = []
    for first in range(0, len(files), AT_ONCE):
        texts = [file.read()[:HELD_OUT_CHARACTERS] for file in files[first : first + AT_ONCE]]
        for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False):
            ids = np.array(encoding.ids, np.uint16)
            count = HELD_OUT_TEXTS if len(files) == 1 else OF_ONE_FILE
            if len(ids) < HELD_OUT_TOKENS:
                continue
            # files begin alike, so that their first tokens are better known than what follows: not from there
            count = min(count, max(1, len(ids) // HELD_OUT_TOKENS - 1))
            starts = np.linspace(0, len(ids) - HELD_OUT_TOKENS, count + 1)[1:].astype(int)
            found += [ids[start : start + HELD_OUT_TOKENS] for start in starts]
        if len(found) >= HELD_OUT_TEXTS:
            break
    if not found:
        raise HeadroomError(f"no held-out file has {HELD_OUT_TOKENS} tokens, which one text to measure on takes; give "
                            f"longer files, or more of them")  # fmt: skip
    return np.stack(found[:HELD_OUT_TEXTS])

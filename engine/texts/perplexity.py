"""Perplexity of a text by the standard recipe: BOS once at the start of the whole text, windows without overlap.

As for the published WikiText-2 tables (GPTQ, SparseGPT): each window of the model's length is read by itself, its first
token is not scored, and tokens after the last full window are dropped. A text shorter than a window is one window.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from engine.accuracy.scoring import hidden_of, nats_of
from engine.errors import HeadroomError, UsageError
from engine.measurement import Measurement, Workload, of_records
from engine.models.loading import Loaded
from engine.models.masks import Mask
from engine.models.session import Target
from engine.models.slicing import Sliced, applied, sliced
from engine.pieces import Measuring, Piece
from engine.progress import Progress
from engine.questions.encoding import BATCH_TOKENS, front, tokenized
from engine.records import Record, canonical_key
from engine.statistics import exponential, mean_over
from engine.texts.passages import checked, text_digest
from engine.timing.workload import kept_share

MOST_BYTES = 10_000_000
BLOCK = 64  # tokens whose mean counts as one value in an interval, because losses of neighboring tokens correlate


@dataclass(frozen=True)
class Perplexity:
    """Perplexity of one text under one mask, over the windows measured so far.

    loss_nats: (n,) losses of the scored tokens so far
    n_total: tokens that will be scored
    n_tokens: tokens of the text, without BOS
    n_words: its words, separated by whitespace
    n_bytes: its bytes in UTF-8
    window: length of a window in tokens
    bos: whether BOS comes first
    """

    loss_nats: np.ndarray
    n_total: int
    n_tokens: int
    n_words: int
    n_bytes: int
    window: int
    bos: bool

    def __len__(self) -> int:
        return len(self.loss_nats)

    @property
    def nats(self) -> float:
        """The mean loss per token."""
        return float(self.loss_nats.mean(dtype=float))

    @property
    def a_token(self) -> float:
        """exp of the mean loss per token."""
        return exponential(self.nats)

    @property
    def a_word(self) -> float:
        """exp of the mean loss per token times the text's tokens per word."""
        return exponential(self.nats * self.n_tokens / self.n_words)

    @property
    def a_byte(self) -> float:
        """exp of the mean loss per token times the text's tokens per byte."""
        return exponential(self.nats * self.n_tokens / self.n_bytes)


@dataclass(frozen=True)
class Change:
    """Mean loss of B minus that of A over the same tokens, in nats per token, with its 95% interval (nan with fewer
    than two blocks)."""

    nats: float
    low: float
    high: float


def change(before: Perplexity, after: Perplexity) -> Change:
    """Returns the mean loss of `after` minus that of `before`, with a t interval over blocks of BLOCK tokens."""
    n = min(len(before), len(after))
    differences = after.loss_nats[:n].astype(float) - before.loss_nats[:n]
    blocks = [block.mean() for block in np.array_split(differences, max(1, n // BLOCK))]
    mean, low, high = mean_over(np.array(blocks))
    middle = float(differences.mean())
    return Change(middle, middle - (mean - low), middle + (high - mean))


def perplexity(target: Target, text: str, mask: Mask, window: int = 0) -> Measurement[Perplexity]:
    """Returns the Perplexity of a text under a mask; progress counts scored tokens.

    HeadroomError: a text of fewer than two tokens. UsageError: a `window` that the model cannot read.
    """
    text, n_ctx = checked(text, most=MOST_BYTES), target.shape.n_ctx
    if window and not 2 <= window <= n_ctx:
        raise UsageError(f"a window of {window} tokens cannot be read; choose 2 to {n_ctx:,} for this model")
    length = window or n_ctx

    def counted(records: list[Record]) -> tuple[int, int]:
        return sum(len(record.arrays["loss_nats"]) for record in records), int(records[0].receipt["n_total"])

    return of_records(
        target,
        ("perplexity", text_digest(text), mask.key(), length),
        lambda session, records: _parts(target, text, mask, length, records),
        lambda records: _joined(target.bos, records) if records else None,
        expected=partial(Workload, {"forward": len(text) * kept_share(mask)}),
        counted=counted,
    )


def _parts(target: Target, text: str, mask: Mask, length: int, records: Sequence[Record]) -> Iterator[Piece]:
    """Yields one piece per forward pass over several windows; the first of `records` gives their number."""
    fields = {"text": text_digest(text), "mask": mask.key(), "ablation": "zero", "window": length}
    tokenize, smaller = lru_cache(maxsize=1)(partial(tokenized, text)), lru_cache(maxsize=1)(partial(sliced, mask=mask))

    def measure(loaded: Loaded, part: int) -> Measuring:
        yield Progress(0, 0, message="perplexity")
        before = front(loaded.tokenizer, target.bos)
        ids = np.concatenate([np.array(before, np.int32), tokenize(loaded.tokenizer)[0]])
        if len(ids) < 2:
            raise HeadroomError("the text has only one token, and no BOS before it; choose a longer text")
        rows, in_front = windows(ids, length), max(0, len(before) - 1)  # tokens in front after the first: not scored
        many = max(1, BATCH_TOKENS // length)
        loss = _losses(loaded, rows[part * many : (part + 1) * many], smaller(loaded))[0 if part else in_front :]
        about = {"kind": "perplexity", "mask": mask.text(), "window": length, "n_tokens": len(ids) - len(before)}
        about |= {"n_words": len(re.findall(r"\S+", text)), "n_bytes": len(text.encode())}
        about |= {"n_parts": math.ceil(len(rows) / many), "n_total": rows[:, 1:].size - in_front}
        return {"loss_nats": loss}, about

    def reads(record: Record) -> tuple[Perplexity, int]:
        return _joined(target.bos, [record]), int(record.receipt["n_parts"])

    while not records or len(records) < records[0].receipt["n_parts"]:
        key = canonical_key("perplexity", target.key() | fields | {"part": len(records)})
        yield Piece(key, 0, {"loss_nats": ("n",)}, partial(measure, part=len(records)), reads=reads)


def windows(ids: np.ndarray, length: int) -> np.ndarray:
    """Returns (window, T) token ids: all full windows, or the whole text if it is shorter than one."""
    many = len(ids) // length
    return ids[: many * length].reshape(many, length) if many else ids[None]


def _losses(loaded: Loaded, rows: np.ndarray, parts: Sliced) -> np.ndarray:
    """Returns (n,): -log p in nats of all tokens but the first of each window, from one forward pass."""
    import torch

    with torch.inference_mode():
        with applied(loaded, parts):
            hidden = hidden_of(loaded, rows, positions=True)
        return nats_of(loaded, hidden[:, :-1].flatten(0, 1), rows[:, 1:].ravel())


def _joined(bos: bool, parts: Sequence[Record]) -> Perplexity:
    receipt: Any = parts[0].receipt
    numbers = {name: int(receipt[name]) for name in ("n_total", "n_tokens", "n_words", "n_bytes", "window")}
    return Perplexity(np.concatenate([part.arrays["loss_nats"] for part in parts]), **numbers, bos=bos)

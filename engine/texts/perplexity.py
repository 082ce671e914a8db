"""Perplexity of a text by the standard recipe: the text whole, BOS once in front, windows without overlap.

So the tables of WikiText-2 are made (GPTQ, SparseGPT): each window of the model's length is read by itself, its first
token is not scored, and what is left behind the last full window is dropped. A text shorter than a window is one.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from engine.accuracy.scoring import log_probabilities
from engine.errors import HeadroomError, UsageError
from engine.models.loading import Loaded
from engine.models.masks import Mask
from engine.models.rates import seconds_for
from engine.models.slicing import Sliced, applied, sliced
from engine.models.subject import Lab, Subject
from engine.pieces import Measuring, Piece, all_stored, pieces
from engine.progress import Progress, may_stop
from engine.questions.amounts import kept_share
from engine.questions.encoding import BATCH_TOKENS
from engine.questions.tokens import beginning, tokenized
from engine.records import Record, canonical_key
from engine.statistics import exponential, over_texts
from engine.texts.passages import checked, text_digest

MOST_BYTES = 10_000_000
BLOCK = 64  # tokens whose mean counts as one in an interval: neighbouring losses are alike


@dataclass(frozen=True)
class Perplexity:
    """Of one text under one mask, over the windows measured so far: `loss_nats` (n,) of the tokens that are scored, of
    `n_total` in all. The text has `n_tokens` (BOS not counted), `n_words` between blanks and `n_bytes` in UTF-8;
    `window` is in tokens."""

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
        """Mean loss of a token."""
        return float(self.loss_nats.mean(dtype=float))

    @property
    def a_token(self) -> float:
        """exp of the mean loss of a token."""
        return exponential(self.nats)

    @property
    def a_word(self) -> float:
        """exp of the mean loss of a token, times the text's tokens a word."""
        return exponential(self.nats * self.n_tokens / self.n_words)

    @property
    def a_byte(self) -> float:
        """exp of the mean loss of a token, times the text's tokens a byte."""
        return exponential(self.nats * self.n_tokens / self.n_bytes)


@dataclass(frozen=True)
class Change:
    """Mean loss of B less that of A over the same tokens, nats a token, with its 95 % interval (nan with fewer than two
    blocks)."""

    nats: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        return self.low > 0 or self.high < 0


def change(before: Perplexity, after: Perplexity) -> Change:
    """What `after` costs more than `before`, token by token: the t interval over blocks of BLOCK tokens in a row."""
    n = min(len(before), len(after))
    differences = after.loss_nats[:n].astype(float) - before.loss_nats[:n]
    blocks = [block.mean() for block in np.array_split(differences, max(1, n // BLOCK))]
    mean, low, high = over_texts(np.array(blocks)[:, None])
    middle = float(differences.mean())
    return Change(middle, middle - float(mean[0] - low[0]), middle + float(high[0] - mean[0]))


@dataclass(frozen=True)
class Both:
    """Perplexity of one text under no mask and under another; None where it is not measured."""

    full: Perplexity | None = None
    pruned: Perplexity | None = None

    @property
    def complete(self) -> bool:
        return self.full is not None and self.pruned is not None

    @property
    def change(self) -> Change | None:
        """None where nothing is pruned or something is not measured."""
        if self.full is None or self.pruned is None or self.full is self.pruned:
            return None
        return change(self.full, self.pruned)


def perplexity(lab: Lab, subject: Subject, text: str, mask: Mask, window: int = 0) -> Iterator[Progress[Perplexity]]:
    """Yields Progress in scored tokens, its value the Perplexity so far; what is stored is not computed again.

    HeadroomError: a text of fewer than two tokens. UsageError: a `window` that the model cannot read.
    """
    text, records = checked(text, most=MOST_BYTES), list[Record]()
    for step in pieces(lab, subject, _parts(subject, text, mask, window, records), total=1):
        records[:] = step.value or records
        whole = step.map(partial(_joined, subject.bos))
        done, total = (_n_done(records), int(records[0].receipt["n_total"])) if records else (0, 0)
        yield replace(whole, done=done, total=total, message=step.message or "perplexity")


def recall_perplexity(lab: Lab, subject: Subject, text: str, mask: Mask, window: int = 0) -> Perplexity | None:
    """The Perplexity where all of it is stored, else None; loads and computes nothing."""
    records: list[Record] = []
    known = all_stored(lab, _parts(subject, checked(text, most=MOST_BYTES), mask, window, records), records)
    return None if known is None else _joined(subject.bos, known)


def recall_both(lab: Lab, subject: Subject, text: str, mask: Mask | None) -> Both:
    """What is stored of a text under no mask and under this one (None: not known yet); computes nothing."""
    full = Mask.full(subject.shape)
    found = recall_perplexity(lab, subject, text, full)
    if mask is None or mask.is_full:
        return Both(found, None if mask is None else found)
    return Both(found, recall_perplexity(lab, subject, text, mask))


def perplexity_s(lab: Lab, subject: Subject, text: str, masks: Sequence[Mask]) -> float | None:
    """About how many seconds it takes under these masks; None where nothing was timed yet."""
    return seconds_for(lab.store, subject, "forward", len(text) * sum(map(kept_share, masks)))


def _parts(subject: Subject, text: str, mask: Mask, window: int, records: Sequence[Record]) -> Iterator[Piece]:
    """The windows that share a forward pass, a piece each; how many there are is known from the first of `records`."""
    n_ctx = subject.shape.n_ctx
    if window and not 2 <= window <= n_ctx:
        raise UsageError(f"a window of {window} tokens cannot be read; choose 2 to {n_ctx:,} for this model")
    length, digest = window or n_ctx, text_digest(text)
    fields = {"text": digest, "mask": mask.key(), "ablation": "zero", "window": length}
    tokenize, smaller = lru_cache(maxsize=1)(partial(tokenized, text)), lru_cache(maxsize=1)(partial(sliced, mask=mask))

    def measure(loaded: Loaded, part: int) -> Measuring:
        yield Progress(0, 0)
        front = [beginning(loaded.tokenizer)] if subject.bos else []
        ids = np.concatenate([np.array(front, np.int32), tokenize(loaded.tokenizer)[0]])
        if len(ids) < 2:
            raise HeadroomError("the text has one token and nothing in front of it; take a longer one")
        rows = windows(ids, length)
        many = max(1, BATCH_TOKENS // length)
        loss = _losses(loaded, rows[part * many : (part + 1) * many], smaller(loaded))
        about = {"kind": "perplexity", "mask": mask.text(), "window": length, "n_tokens": len(ids) - len(front)}
        about |= {"n_words": len(re.findall(r"\S+", text)), "n_bytes": len(text.encode())}
        return {"loss_nats": loss}, about | {"n_parts": math.ceil(len(rows) / many), "n_total": rows[:, 1:].size}

    def reads(record: Record) -> tuple[Perplexity, int]:
        return _joined(subject.bos, [record]), int(record.receipt["n_parts"])

    while not records or len(records) < records[0].receipt["n_parts"]:
        key = canonical_key("perplexity", subject.key() | fields | {"part": len(records)})
        yield Piece(key, 0, {"loss_nats": ("n",)}, partial(measure, part=len(records)), reads=reads)


def windows(ids: np.ndarray, length: int) -> np.ndarray:
    """(window, T) token ids: as many full windows as there are, else the text as it is."""
    many = len(ids) // length
    return ids[: many * length].reshape(many, length) if many else ids[None]


def _losses(loaded: Loaded, rows: np.ndarray, parts: Sliced) -> np.ndarray:
    """(n,) -log p of all tokens of some windows but the first of each, nats, from one forward pass."""
    import torch

    device = loaded.model.get_input_embeddings().weight.device
    tokens = torch.from_numpy(rows.astype(np.int64)).to(device)
    with torch.inference_mode():
        where = torch.arange(tokens.shape[1], device=device).expand_as(tokens)
        with applied(loaded, parts):
            read = loaded.model.base_model(input_ids=tokens, position_ids=where, use_cache=False).last_hidden_state
        targets = tokens[:, 1:].reshape(-1).to(read.device)
        hidden, loss = read[:, :-1].reshape(len(targets), -1), np.empty(len(targets), np.float32)
        for which, _, log_p in log_probabilities(loaded, hidden, targets):
            loss[which] = -log_p.cpu().numpy()
            may_stop()  # the unembedding of a window takes a second in a larger model
    return loss


def _joined(bos: bool, parts: Sequence[Record]) -> Perplexity:
    told: Any = parts[0].receipt
    numbers = {name: int(told[name]) for name in ("n_total", "n_tokens", "n_words", "n_bytes", "window")}
    return Perplexity(np.concatenate([part.arrays["loss_nats"] for part in parts]), **numbers, bos=bos)


def _n_done(parts: Sequence[Record]) -> int:
    return sum(len(part.arrays["loss_nats"]) for part in parts)

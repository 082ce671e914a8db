"""Per-token losses of one snapshot on rows of tokens, from one pass over them, and the same without each head."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.accuracy.restarts import kept, starting_at
from engine.accuracy.scoring import hidden_of, nats_of
from engine.errors import HeadroomError
from engine.heads.ablation import patterns_of
from engine.heads.probes import random_token_pool
from engine.measurement import Measurement, single
from engine.models.loading import Loaded
from engine.models.masks import Mask, pruned, single_ablations
from engine.models.patterns import visited
from engine.models.session import Target
from engine.pieces import Measuring, Piece
from engine.progress import Progress
from engine.questions.encoding import single_beginning, tokenized
from engine.records import Record, canonical_key
from engine.texts.passages import text_digest

if TYPE_CHECKING:
    pass

BATCH_TOKENS = 2048  # of one pass: more of them are slower on the CPU
N_COPIES, MOST_PERIOD = 50, 25  # rows of random tokens, and how many of them stand twice in each
LONGEST = 512  # tokens of a text


@dataclass(frozen=True)
class Texts:
    """The rows of tokens that losses are measured on: `rows(loaded)` gives (text, LONGEST) ids without a beginning,
    `digest` names them for keys, `source` in words. Of each row the first tokens that the model's context holds, of
    at most `most` rows; `seed` draws which one token stands for its text. `alphabet`: random tokens are drawn from so
    many first ids (0: from the tokenizer's merges)."""

    rows: Callable[[Loaded], np.ndarray]
    digest: str
    source: str
    most: int
    alphabet: int = 0
    seed: int = 0

    def key(self, most: int | None = None) -> dict[str, Any]:
        return {"texts": self.digest, "most": most or self.most, "seed": self.seed, "longest": LONGEST}


def held_out(rows: np.ndarray, source: str, most: int, alphabet: int) -> Texts:
    """The held-out rows of a run, as tokens already."""
    digest = hashlib.blake2b(np.ascontiguousarray(rows[:most]).tobytes(), digest_size=16).hexdigest()
    return Texts(lambda loaded: rows, digest, source, most, alphabet)


def of_text(text: str, source: str, most: int) -> Texts:
    """A text, cut into whole stretches of as many tokens as a context holds."""

    def rows(loaded: Loaded) -> np.ndarray:
        ids = tokenized(text, loaded.tokenizer)[0]
        length = min(LONGEST, loaded.identity.shape.n_ctx, len(ids))
        return ids[: len(ids) // length * length].reshape(-1, length)

    return Texts(rows, text_digest(text), source, most)


def snapshot_losses(target: Target, texts: Texts) -> Measurement[Record]:
    """The losses of one snapshot: `by_index` (T,) mean over texts, `token_losses` (text,) of one token each, `copies`
    (2 * period,) mean over rows of random tokens twice over. The receipt has `used`, the digest of the tokens."""
    fields = {"what": "losses", "copies": N_COPIES, "period": MOST_PERIOD, "alphabet": texts.alphabet}
    key = canonical_key("trajectory", target.as_usual.key() | texts.key() | fields)
    shapes: dict[str, tuple[int | str, ...]] = {"by_index": ("T",), "token_losses": ("n",), "copies": ("c",)}
    return single(target, Piece(key, 1, shapes, partial(_losses, texts=texts)), lambda record: record)


def snapshot_ablations(target: Target, texts: Texts, most: int) -> Measurement[Record]:
    """What each head's pattern-preserving ablation adds to the losses of the first texts: `by_index` (L, H, T) to the
    mean over them, `token_losses` (L, H, text) to the one token of each."""
    key = canonical_key("trajectory", target.as_usual.key_of_patterns() | texts.key(most) | {"what": "ablations"})
    heads = (target.shape.n_layers, target.shape.n_heads)
    shapes: dict[str, tuple[int | str, ...]] = {"by_index": (*heads, "T"), "token_losses": (*heads, "n")}
    return single(target, Piece(key, 1, shapes, partial(_ablations, texts=texts, most=most)), lambda record: record)


def _losses(loaded: Loaded, texts: Texts) -> Measuring:
    rows, found = _rows(loaded, texts), []
    batches = _batches(_behind_beginning(loaded, rows))
    for number, batch in enumerate(batches):
        yield Progress(number, len(batches) + 1, message="held-out texts")
        found.append(_token_losses(loaded, batch))
    losses = np.concatenate(found)
    chosen = _chosen(len(losses), losses.shape[1], texts.seed)
    yield Progress(len(batches), len(batches) + 1, message="random tokens twice over")
    copies = _behind_beginning(loaded, _copies(loaded, texts))
    twice = np.concatenate([_token_losses(loaded, batch) for batch in _batches(copies)])
    used = hashlib.blake2b(rows.astype("<i4").tobytes() + chosen.astype("<i4").tobytes(), digest_size=16).hexdigest()
    arrays = {"by_index": losses.mean(0, dtype=float), "copies": twice.mean(0, dtype=float),
              "token_losses": losses[np.arange(len(losses)), chosen]}  # fmt: skip
    return arrays, {"kind": "trajectory", "what": "losses", "used": used, "n_texts": len(losses)}


def _ablations(loaded: Loaded, texts: Texts, most: int) -> Measuring:
    shape, rows = loaded.identity.shape, _rows(loaded, texts)
    chosen = _chosen(len(rows), rows.shape[1], texts.seed)[:most]
    batches = _batches(_behind_beginning(loaded, rows[:most]))
    by_index = np.zeros((shape.n_layers, shape.n_heads, rows.shape[1]))
    moved, done, total, first = [], 0, len(batches) * shape.n_heads_total, 0
    for batch in batches:
        with kept(loaded, set(range(shape.n_layers))) as inputs:  # of every layer: what lies below a head stays
            forced = patterns_of(loaded, batch[:, :-1], Mask.full(shape))
        base = _token_losses(loaded, batch)
        here = np.zeros((shape.n_layers, shape.n_heads, *base.shape), np.float32)
        for number, without in enumerate(single_ablations(shape)):
            yield Progress(done, total, message=f"without {shape.head_names[number]}")
            layer, head = divmod(number, shape.n_heads)
            with ExitStack() as changed:
                changed.enter_context(pruned(loaded, without))
                changed.enter_context(visited(loaded, forced=forced))
                changed.enter_context(starting_at(loaded, layer, inputs[layer]))
                here[layer, head] = _token_losses(loaded, batch) - base
            done += 1
        by_index += here.sum(2, dtype=float)
        moved.append(here[:, :, np.arange(len(base)), chosen[first : first + len(base)]])
        first += len(base)
    arrays = {"by_index": by_index / first, "token_losses": np.concatenate(moved, 2)}
    return arrays, {"kind": "trajectory", "what": "ablations", "n_texts": first}


def _rows(loaded: Loaded, texts: Texts) -> np.ndarray:
    """(text, T) ids; HeadroomError where the model has no such tokens."""
    found = texts.rows(loaded)[: texts.most, : min(LONGEST, loaded.identity.shape.n_ctx)].astype(np.int64)
    if found.size and found.max() >= (n_vocab := loaded.identity.shape.n_vocab):
        raise HeadroomError(
            f"{texts.source}: token {found.max():,} is none of the model's {n_vocab:,}; train the run again"
        )
    return found


def _chosen(n_texts: int, n_tokens: int, seed: int) -> np.ndarray:
    """(text,) which token stands for its text: the same for the first texts, however many follow."""
    return np.random.default_rng((seed, n_tokens)).integers(0, n_tokens, n_texts)


def _copies(loaded: Loaded, texts: Texts) -> np.ndarray:
    """(row, 2 * period) random tokens twice over."""
    drawn, period = np.random.default_rng(texts.seed), min(MOST_PERIOD, loaded.identity.shape.n_ctx // 2)
    pool = np.arange(1, texts.alphabet + 1) if texts.alphabet else random_token_pool(loaded.tokenizer)
    return np.tile(drawn.choice(pool, (N_COPIES, period)), 2)


def _behind_beginning(loaded: Loaded, rows: np.ndarray) -> np.ndarray:
    return np.insert(rows, 0, single_beginning(loaded.tokenizer, default=0), 1)


def _batches(inputs: np.ndarray) -> list[np.ndarray]:
    """Rows that share a pass: a fixed number of tokens, so that numbers never depend on how fast a machine is."""
    many = max(1, BATCH_TOKENS // inputs.shape[1])
    return [inputs[start : start + many] for start in range(0, len(inputs), many)]


def _token_losses(loaded: Loaded, batch: np.ndarray) -> np.ndarray:
    """(row, T) nats of every token of rows (row, 1 + T) but each one's first, of the model as it is now."""
    import torch

    with torch.inference_mode():
        found = nats_of(loaded, hidden_of(loaded, batch[:, :-1]).flatten(0, 1), batch[:, 1:].ravel())
    return found.reshape(len(batch), -1)

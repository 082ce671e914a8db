"""The loss without a head on the windows of a corpus at which it fires most, and on random other windows.

Losses with and without the head are those of the same tokens, so each window has one change; intervals are over
windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from engine.accuracy.scoring import hidden_of, nats_of
from engine.composed import all_of
from engine.corpus.heads import Head, HeadsInCorpus
from engine.corpus.windows import in_passes
from engine.measurement import Measurement, of_records
from engine.models.loading import Loaded
from engine.models.masks import Mask, parse_mask
from engine.models.session import Session, Target
from engine.models.slicing import applied, sliced
from engine.pieces import Measuring, Piece
from engine.progress import Progress
from engine.questions.encoding import BATCH_TOKENS
from engine.records import Record, canonical_key
from engine.statistics import mean_over
from engine.texts.perplexity import Change
from engine.timing.workload import CHARACTERS_A_TOKEN

N_TOP, SEED = 24, 0


@dataclass(frozen=True)
class LossWithout:
    """What removing a head changes the loss by, in nats per token: on the windows at which it fires most (`top`), and
    on as many random other windows (`other`)."""

    top: Change
    other: Change
    n_windows: int

    @property
    def is_clear(self) -> bool:
        """Whether the two intervals are apart."""
        return self.top.low > self.other.high or self.top.high < self.other.low


def loss_without(target: Target, found: HeadsInCorpus, head: Head) -> Measurement[LossWithout]:
    """Returns the LossWithout of a head. Of fewer than 48 windows, a half each are compared."""
    top, other = compared_windows(found, head)
    without = parse_mask(f"L{head[0]}H{head[1]}", target.shape)
    masks = (Mask.full(target.shape), without)
    losses = [window_losses(target, found.windows.token_ids[which], mask) for which in (top, other) for mask in masks]

    def changes(each: tuple[np.ndarray | None, ...]) -> LossWithout | None:
        if any(loss is None for loss in each):
            return None
        full_top, top_without, full_other, other_without = (np.asarray(loss) for loss in each)
        return LossWithout(_change(full_top, top_without), _change(full_other, other_without), len(top))

    return all_of(losses, "loss without the head").map(changes)


def compared_windows(found: HeadsInCorpus, head: Head) -> tuple[np.ndarray, np.ndarray]:
    """Returns which windows a head fires at most, and as many seeded random ones among the others."""
    order = np.argsort(-found.activation[:, *head], kind="stable")
    n = min(N_TOP, len(order) // 2)
    return order[:n], np.sort(np.random.default_rng(SEED).permutation(np.sort(order[n:]))[:n])


def window_losses(target: Target, token_ids: np.ndarray, mask: Mask) -> Measurement[np.ndarray]:
    """Returns (n, T - 1): -log p in nats of all tokens but the first of windows (n, T), under a mask."""
    n_tokens, each = token_ids.shape[1], max(1, BATCH_TOKENS // token_ids.shape[1])
    pieces = []
    for ids, named in in_passes(token_ids, each):
        key = canonical_key("losses of windows", target.key() | named | {"mask": mask.key(), "ablation": "zero"})
        measure = partial(_losses, token_ids=ids, mask=mask)
        characters = partial(float, CHARACTERS_A_TOKEN * ids.size)
        pieces.append(Piece(key, len(ids), {"loss_nats": (len(ids), n_tokens - 1)}, measure, characters))

    def given(session: Session, records: list[Record]) -> list[Piece]:
        return pieces

    def value(records: list[Record]) -> np.ndarray | None:
        return np.concatenate([record.arrays["loss_nats"] for record in records]) if records else None

    return of_records(target, tuple(piece.key for piece in pieces), given, value)


def _losses(loaded: Loaded, token_ids: np.ndarray, mask: Mask) -> Measuring:
    import torch

    yield Progress(0, 1, message="losses of windows")
    with torch.inference_mode():
        with applied(loaded, sliced(loaded, mask)):
            hidden = hidden_of(loaded, token_ids, positions=True)
        nats = nats_of(loaded, hidden[:, :-1].flatten(0, 1), token_ids[:, 1:].ravel())
    return {"loss_nats": nats.reshape(len(token_ids), -1)}, {"kind": "losses of windows", "mask": mask.text()}


def _change(full: np.ndarray, without: np.ndarray) -> Change:
    return Change(*mean_over((without - full).mean(1, dtype=float)))

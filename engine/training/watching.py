"""A few quick measurements while a run goes on, for charts that grow; the exact ones: `engine.training.trajectory`.

Computed on the model in training itself, in a fraction of a second.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from engine.texts.incontext import EARLY, LATE, MIN_TOKENS
from engine.training.recipe import Recipe

N_TEXTS, N_EXAMPLES, MOST_PERIOD = 50, 10, 25
AROUND = 5  # tokens on either side of both indices


def look(model: Any, recipe: Recipe, held_out: np.ndarray, beginning: int = 0) -> dict[str, Any]:
    """What a model is like now, for a line of the log; the `beginning` token is in front of every text.

    `loss`: nats a held-out token; `icl`: the loss around the 500th of 512 tokens minus that around the 50th (or the
    same shares of a shorter context); `first_copy` and `second_copy`: nats a token of random tokens twice over;
    `prefix_matching` and `previous_token`: (layer, head), 0 to 1.
    """
    with torch.inference_mode():
        texts = held_out[:N_TEXTS, : recipe.n_ctx].astype(np.int64)
        rows = torch.from_numpy(np.insert(texts, 0, beginning, 1))
        losses = torch.cat([_losses(model, part) for part in rows.split(20)]).mean(0)  # (n_ctx,)
        early, late = (_around(losses, round(index / MIN_TOKENS * recipe.n_ctx)) for index in (EARLY, LATE))
        period = min(MOST_PERIOD, recipe.n_ctx // 3)
        drawn = np.random.default_rng(0)
        unit = drawn.integers(1 + beginning, 1 + (recipe.alphabet or recipe.n_vocab - 1), (N_EXAMPLES, period))
        copies = torch.from_numpy(np.insert(np.tile(unit, 3), 0, beginning, 1)[:, : recipe.n_ctx + 1])
        nats = _losses(model, copies).mean(0)
        found = [_scores(pattern, period) for pattern in model.patterns(copies[:, :-1])]
    prefixes, previous = zip(*found, strict=True)
    first, second = float(nats[:period].mean()), float(nats[period : 2 * period].mean())
    plain = {"loss": float(losses.mean()), "icl": late - early, "first_copy": first, "second_copy": second}
    heads = {"prefix_matching": np.round(prefixes, 4).tolist(), "previous_token": np.round(previous, 4).tolist()}
    return {name: round(value, 5) for name, value in plain.items()} | heads


def _losses(model: Any, rows: Tensor) -> Tensor:
    """(row, n) nats of every token but each row's first."""
    logits, after = model(rows[:, :-1]), rows[:, 1:]  # flat: the vocabulary in the middle would be ten times as slow
    return F.cross_entropy(logits.flatten(0, 1), after.flatten(), reduction="none").view(after.shape)


def _around(losses: Tensor, index: int) -> float:
    return float(losses[max(0, index - 1 - AROUND) : index + AROUND].mean())


def _scores(pattern: Tensor, period: int) -> tuple[list[float], list[float]]:
    """Of every head: mean attention from the second copy on to what followed the token before, and to the token just
    before."""
    n = pattern.shape[-1]
    destination, source = torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij")
    behind = destination - source
    matching = (destination > period) & (source > 1) & (behind >= 0) & ((behind + 1) % period == 0)
    just_before = (behind == 1) & (source > 0)
    prefix = (pattern * matching).sum((0, 2, 3)) / (len(pattern) * (n - 1 - period))
    previous = (pattern * just_before).sum((0, 2, 3)) / (len(pattern) * (n - 2))
    return prefix.tolist(), previous.tolist()

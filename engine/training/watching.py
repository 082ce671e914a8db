"""A few quick measurements while a run goes on, for charts that grow; the exact ones: `engine.training.trajectory`.

Computed on the model in training itself, in a fraction of a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from engine.texts.incontext import EARLY, LATE, MIN_TOKENS
from engine.training.model import SmallModel, rotated, smeared
from engine.training.recipe import Recipe

N_TEXTS, N_EXAMPLES, MOST_PERIOD = 50, 10, 25
AROUND = 5  # tokens on either side of both indices


@dataclass(frozen=True)
class HeldOutLoss:
    """`loss` nats a held-out token; `icl` the loss around the 500th of 512 tokens minus that around the 50th (or the
    same shares of a shorter context); `first_copy` and `second_copy` nats a token of random tokens twice over;
    `prefix_matching` and `previous_token` (layer, head), 0 to 1."""

    loss: float
    icl: float
    first_copy: float
    second_copy: float
    prefix_matching: np.ndarray
    previous_token: np.ndarray

    def as_json(self) -> dict[str, Any]:
        """For a line of the log."""
        plain = {name: round(float(getattr(self, name)), 5) for name in ("loss", "icl", "first_copy", "second_copy")}
        heads = {name: np.round(getattr(self, name), 4).tolist() for name in ("prefix_matching", "previous_token")}
        return plain | heads


def look(model: SmallModel, recipe: Recipe, held_out: np.ndarray) -> HeldOutLoss:
    """The Look of a model as it is now."""
    with torch.inference_mode():
        texts = held_out[:N_TEXTS, : recipe.n_ctx].astype(np.int64)
        rows = torch.from_numpy(np.concatenate([np.zeros((len(texts), 1), np.int64), texts], 1))
        losses = torch.cat([_losses(model, part) for part in rows.split(20)]).mean(0)  # (n_ctx,)
        early, late = (_around(losses, round(index / MIN_TOKENS * recipe.n_ctx)) for index in (EARLY, LATE))
        period = min(MOST_PERIOD, recipe.n_ctx // 3)
        drawn = np.random.default_rng(0)
        unit = drawn.integers(1, 1 + (recipe.alphabet or recipe.n_vocab - 1), (N_EXAMPLES, period))
        zeros = np.zeros((N_EXAMPLES, 1), np.int64)
        copies = torch.from_numpy(np.concatenate([zeros, unit, unit, unit], 1)[:, : recipe.n_ctx + 1])
        nats = _losses(model, copies).mean(0)
        found = [_scores(pattern, period) for pattern in patterns(model, copies[:, :-1])]
    prefixes, previous = zip(*found, strict=True)
    first, second = float(nats[:period].mean()), float(nats[period : 2 * period].mean())
    return HeldOutLoss(float(losses.mean()), late - early, first, second, np.array(prefixes), np.array(previous))


def patterns(model: SmallModel, tokens: Tensor) -> list[Tensor]:
    """Attention patterns (batch, n_heads, n, n) of every layer."""
    found, x = [], model.embed(tokens)
    n = tokens.shape[1]
    future = torch.ones(n, n, dtype=torch.bool).triu(1)
    for layer in model.layers:
        held: Any = layer
        attention, width = held.attention, x.shape[-1]
        read = held.attention_norm(x)
        if not attention.rotary:
            read = read + model.positions[0][:n]
        weight, bias = attention.qkv.weight[: 2 * width], attention.qkv.bias[: 2 * width]
        q, k = (part.unflatten(-1, (attention.n_heads, -1)).transpose(1, 2)
                for part in F.linear(read, weight, bias).split(width, -1))  # fmt: skip
        if attention.smear is not None:
            k = smeared(k, attention.smear)
        if attention.rotary:
            q, k = rotated(q, *model.positions), rotated(k, *model.positions)
        scores = q @ k.transpose(-1, -2) / attention.d_head**0.5
        found.append(scores.masked_fill(future, -torch.inf).softmax(-1))
        x = held(x, model.positions)
    return found


def _losses(model: SmallModel, rows: Tensor) -> Tensor:
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

"""The small model while it is trained: attention, with or without a gated FFN, in Llama's shape and names; the rows of
one step, and what is measured of it for the log.

Pre-norm (RMS), a final norm, embeddings apart from the unembedding, biases on queries and keys alone. What differs from
Llama is Olsson et al.'s: smeared keys, and positions that are added to queries and keys but not to the stream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from engine.texts.incontext import EARLY, LATE, MIN_TOKENS
from engine.training.folders import Run
from engine.training.recipe import EPSILON, THETA, Recipe
from engine.training.snapshots import save_snapshot
from engine.training.text import TrainingText, text_for

BETAS = (0.9, 0.98)
N_TEXTS, N_EXAMPLES, MOST_PERIOD = 50, 10, 25
AROUND = 5  # tokens on either side of both indices
IGNORED = -100  # in place of a target without a loss


class Attention(nn.Module):
    """Causal attention over (batch, n_ctx, d_model)."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.n_heads, self.d_head = recipe.n_heads, recipe.d_model // recipe.n_heads
        self.rotary = recipe.positions == "rotary"
        self.qkv = nn.Linear(recipe.d_model, 3 * recipe.d_model)
        self.out = nn.Linear(recipe.d_model, recipe.d_model, bias=False)
        self.smear = nn.Parameter(torch.zeros(recipe.n_heads)) if recipe.smeared else None

    def forward(self, x: Tensor, positions: tuple[Tensor, Tensor]) -> Tensor:
        """What the heads add to the stream; `positions`: cosines and sines, or what queries and keys get added."""
        q, k, v = self.projected(x, positions)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(x.shape))

    def projected(self, x: Tensor, positions: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values (batch, n_heads, n_ctx, d_head), as they meet."""
        batch, n_ctx, d_model = x.shape
        if self.rotary:
            q, k, v = self.qkv(x).split(d_model, -1)
        else:
            q, k = F.linear(
                x + positions[0][:n_ctx], self.qkv.weight[: 2 * d_model], self.qkv.bias[: 2 * d_model]
            ).split(d_model, -1)
            v = F.linear(x, self.qkv.weight[2 * d_model :], self.qkv.bias[2 * d_model :])
        q, k, v = (part.view(batch, n_ctx, self.n_heads, self.d_head).transpose(1, 2) for part in (q, k, v))
        if self.smear is not None:
            k = smeared(k, self.smear)
        if self.rotary:
            q, k = rotated(q, *positions), rotated(k, *positions)
        return q, k, v


class Layer(nn.Module):
    """A transformer block; `ffn` None: attention alone."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        width = recipe.d_model
        self.attention_norm = nn.RMSNorm(width, EPSILON)
        self.attention = Attention(recipe)
        self.ffn_norm = nn.RMSNorm(width, EPSILON) if recipe.mlp else None
        self.gate_up = nn.Linear(width, 2 * recipe.d_mlp, bias=False) if recipe.mlp else None
        self.down = nn.Linear(recipe.d_mlp, width, bias=False) if recipe.mlp else None

    def forward(self, x: Tensor, positions: tuple[Tensor, Tensor]) -> Tensor:
        x = x + self.attention(self.attention_norm(x), positions)
        if self.ffn_norm is not None and self.gate_up is not None and self.down is not None:
            gate, up = self.gate_up(self.ffn_norm(x)).chunk(2, -1)
            x = x + self.down(F.silu(gate) * up)
        return x


class SmallModel(nn.Module):
    """A model of the recipe's shape, its weights drawn with the recipe's seed: normal, 0.02 wide, what writes into the
    stream 1 / sqrt(2 n_layers) of that."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.embed = nn.Embedding(recipe.n_vocab, recipe.d_model)
        self.layers = nn.ModuleList(Layer(recipe) for _ in range(recipe.n_layers))
        self.norm = nn.RMSNorm(recipe.d_model, EPSILON)
        self.unembed = nn.Linear(recipe.d_model, recipe.n_vocab, bias=False)
        self.positions, self.hapax = position_tables(recipe), recipe.hapax
        drawn = torch.Generator().manual_seed(recipe.seed)
        for name, weights in self.named_parameters():
            if weights.dim() > 1:
                narrow = name.endswith(("attention.out.weight", "down.weight"))
                spread = 0.02 / (2 * recipe.n_layers) ** 0.5 if narrow else 0.02
                nn.init.normal_(weights, std=spread, generator=drawn)
            elif name.endswith("bias"):
                nn.init.zeros_(weights)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (batch, n_ctx, n_vocab)."""
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, self.positions)
        return self.unembed(self.norm(x))

    def loss(self, rows: np.ndarray | Tensor) -> Tensor:
        """Mean nats a token of rows (batch, n_ctx + 1), every token but each row's first; with `hapax`, of those whose
        pair with the token before is new in the row."""
        tokens = torch.as_tensor(rows)
        logits, targets = self(tokens[:, :-1]), tokens[:, 1:]
        if self.hapax:
            targets = targets.masked_fill(~new_pairs(tokens), IGNORED)
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=IGNORED)

    def patterns(self, tokens: Tensor) -> list[Tensor]:
        """Attention patterns (batch, n_heads, n, n) of every layer."""
        found, x, n = [], self.embed(tokens), tokens.shape[1]
        future = torch.ones(n, n, dtype=torch.bool).triu(1)
        for layer in self.layers:
            held: Any = layer
            q, k, _ = held.attention.projected(held.attention_norm(x), self.positions)
            scores = q @ k.transpose(-1, -2) / held.attention.d_head**0.5
            found.append(scores.masked_fill(future, -torch.inf).softmax(-1))
            x = held(x, self.positions)
        return found


def new_pairs(tokens: Tensor) -> Tensor:
    """Returns (batch, n) bool: whether a row (batch, n + 1) has a token and the next one for the first time."""
    pairs = tokens[:, :-1].long() * (int(tokens.max()) + 1) + tokens[:, 1:].long()
    ordered, places = pairs.sort(dim=1, stable=True)
    is_first = torch.ones_like(ordered, dtype=torch.bool)
    is_first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return torch.zeros_like(is_first).scatter(1, places, is_first)


def position_tables(recipe: Recipe) -> tuple[Tensor, Tensor]:
    """Rotary: cosines and sines (n_ctx, d_head). Shortformer: sinusoids (n_ctx, d_model), twice the same."""
    width = recipe.d_model // recipe.n_heads if recipe.positions == "rotary" else recipe.d_model
    rates = 1.0 / THETA ** (torch.arange(0, width, 2).float() / width)
    angles = torch.arange(recipe.n_ctx).float()[:, None] * rates
    if recipe.positions == "rotary":
        both = torch.cat([angles, angles], -1)
        return both.cos(), both.sin()
    table = torch.cat([angles.sin(), angles.cos()], -1)
    return table, table


def rotated(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotary positions, halves against halves as Llama has it; x is (batch, n_heads, n_ctx, d_head)."""
    n_ctx, half = x.shape[-2], x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], -1)
    return x * cosines[:n_ctx] + turned * sines[:n_ctx]


def smeared(keys: Tensor, alpha: Tensor) -> Tensor:
    """Olsson et al.'s smeared keys: k_j = s k_j + (1 - s) k_{j-1}, s = sigmoid(alpha) of each head; the first stays.

    keys (batch, n_heads, n_ctx, d_head), before any rotation; alpha (n_heads,).
    """
    own = torch.sigmoid(alpha)[:, None, None]
    behind = own * keys[:, :, 1:] + (1 - own) * keys[:, :, :-1]
    return torch.cat([keys[:, :, :1], behind], 2)


def parameters_of(model: Any) -> list[dict[str, Any]]:
    """The groups of AdamW: matrices decay, vectors do not."""
    matrices = [weights for weights in model.parameters() if weights.dim() > 1]
    vectors = [weights for weights in model.parameters() if weights.dim() <= 1]
    return [{"params": matrices, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}]


def start(recipe: Recipe) -> tuple[SmallModel, list[Optimizer]]:
    """The model before the first step, and its optimizer."""
    model = SmallModel(recipe)
    return model, [torch.optim.AdamW(parameters_of(model), lr=recipe.rate, betas=BETAS, fused=True)]


def text_rows(recipe: Recipe, text: np.ndarray, step: int) -> np.ndarray:
    """(rows, tokens of a row + 1) ids, each row with the beginning token (0) in front.

    A row is text, the next stretch that no other row has, or random tokens repeated with a period of its own. The
    stretch whose place a repeat takes is left out.
    """
    drawn = np.random.default_rng([recipe.seed, step])
    length = recipe.row_tokens(step)
    rows = np.zeros((recipe.step_tokens // length, length + 1), np.int64)
    repeats = recipe.repeats if step < recipe.repeats_until * recipe.n_steps else 0.0
    for number in range(len(rows)):
        if drawn.random() < repeats:
            rows[number, 1:] = _repeated(recipe, drawn, length)
        else:
            start = step * recipe.step_tokens + number * length
            rows[number, 1:] = text[start : start + length]
    return rows


def _repeated(recipe: Recipe, drawn: np.random.Generator, length: int) -> np.ndarray:
    """(length,) random tokens, evenly drawn, repeated: with one fixed period a model learns a place, no match."""
    period = int(drawn.integers(recipe.period[0], recipe.period[1] + 1))
    unit = drawn.integers(1, 1 + (recipe.alphabet or recipe.n_vocab - 1), period)
    return np.resize(unit, length)


def measure_losses(model: Any, recipe: Recipe, held_out: np.ndarray, beginning: int = 0) -> dict[str, Any]:
    """What a model is like now, for a line of the log; the `beginning` token is in front of every text.

    `loss`: nats a held-out token; `icl`: the loss around the 500th of 512 tokens minus that around the 50th (or the
    same shares of a shorter context); and what `measure_copies` measures.
    """
    with torch.inference_mode():
        texts = held_out[:N_TEXTS, : recipe.n_ctx].astype(np.int64)
        rows = torch.from_numpy(np.insert(texts, 0, beginning, 1))
        losses = torch.cat([_losses(model, part) for part in rows.split(20)]).mean(0)  # (n_ctx,)
        early, late = (_around(losses, round(index / MIN_TOKENS * recipe.n_ctx)) for index in (EARLY, LATE))
    plain = {"loss": float(losses.mean()), "icl": late - early}
    return {name: round(value, 5) for name, value in plain.items()} | measure_copies(model, recipe, beginning)


def measure_copies(model: Any, recipe: Recipe, beginning: int = 0) -> dict[str, Any]:
    """What a model is like on random tokens twice over, which needs no text: `first_copy` and `second_copy`, nats a
    token; `prefix_matching` and `previous_token`: (layer, head), 0 to 1."""
    with torch.inference_mode():
        period = min(MOST_PERIOD, recipe.n_ctx // 3)
        drawn = np.random.default_rng(0)
        unit = drawn.integers(1 + beginning, 1 + (recipe.alphabet or recipe.n_vocab - 1), (N_EXAMPLES, period))
        copies = torch.from_numpy(np.insert(np.tile(unit, 3), 0, beginning, 1)[:, : recipe.n_ctx + 1])
        nats = _losses(model, copies).mean(0)
        found = [_scores(pattern, period) for pattern in model.patterns(copies[:, :-1])]
    prefixes, previous = zip(*found, strict=True)
    first, second = float(nats[:period].mean()), float(nats[period : 2 * period].mean())
    heads = {"prefix_matching": np.round(prefixes, 4).tolist(), "previous_token": np.round(previous, 4).tolist()}
    return {"first_copy": round(first, 5), "second_copy": round(second, 5)} | heads


def untrained(recipe: Recipe) -> dict[str, Any]:
    """The first line of a run's log before its text is read: the losses of text are nan."""
    beginning = {"step": 0, "tokens": 0, "seconds": 0.0, "loss": float("nan"), "icl": float("nan")}
    return beginning | measure_copies(SmallModel(recipe), recipe)


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


@dataclass(frozen=True)
class Trainable:
    """A kind of model, as `engine.training.running` takes it. `Any` is the model, and the kind's own recipe.

    `text`: what a run of the recipe reads, of a path
    `start`: the model, and optimizers whose groups have the recipe's rates
    `rows`: of a run and its text, by step: what the model's `loss` takes
    `measure`: measures for the log
    `save`: writes a snapshot, with the tokenizer's file, into a folder
    """

    text: Callable[[Any, Path | None], TrainingText]
    start: Callable[[Any], tuple[Any, list[Optimizer]]]
    rows: Callable[[Run, np.ndarray], Callable[[int], Any]]
    measure: Callable[[Any, Any, np.ndarray], dict[str, Any]]
    save: Callable[[Any, Any, Path, Path], None]


SMALL_MODELS = Trainable(
    lambda recipe, path: text_for(recipe.text_tokens, recipe.n_vocab, path),
    start,
    lambda run, text: partial(text_rows, run.recipe, text),
    measure_losses,
    save_snapshot,
)

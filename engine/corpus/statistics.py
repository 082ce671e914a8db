"""The attention statistics of every head on a few windows, layer by layer: one layer's patterns are held at a time.

A head's activation of a query q and a key k is its attention times what it would write from there alone: A[q, k] *
norm(W_O v_k). Norms of W_O x are those of R x, where W_O^T = Q R, so that no vector of the residual stream is made.
The first token of a window is not a query: it can only attend to itself.

Attention is computed in fp32, whatever the precision of the model.

Departures: what follows a copy of a token may be that token itself, if it is repeated at once; a norm after attention
(Gemma 2, OLMo 2) is left out of what a head writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.accuracy.scoring import hidden_of
from engine.models.loading import Loaded
from engine.models.patterns import visited
from engine.models.weights import output_weights

if TYPE_CHECKING:
    from torch import Tensor

DISTANCES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512)  # the first of each range
SMALLEST = 1e-30  # attention, in a logarithm
STRONG = 0.1  # of the residual stream's norm: a write from which it is strong
# sums over queries, all (L, H); the first two over queries with an earlier copy of their token
SUMS = ("induction", "same_token", "previous_token", "first_token", "entropy", "distance", "strong")
Copies = tuple[np.ndarray, np.ndarray, np.ndarray]  # row, query, and the earlier copy of its token


def copies(token_ids: np.ndarray) -> Copies:
    """Returns all pairs of a query and an earlier copy of its token in rows (B, T) of token ids."""
    same = np.tril(token_ids[:, :, None] == token_ids[:, None, :], -1)
    row, query, key = same.nonzero()
    return row, query, key


def n_repeated(token_ids: np.ndarray) -> int:
    """Returns how many queries have an earlier copy of their token: in each row all but the first of equal tokens."""
    return int((np.diff(np.sort(token_ids, axis=1), axis=1) == 0).sum())


def measure_windows(loaded: Loaded, token_ids: np.ndarray, norms: Sequence[Tensor]) -> dict[str, np.ndarray]:
    """Returns of windows (B, T): each of SUMS (L, H) over their queries; `distances` (L, H, len(DISTANCES)), the
    attention to each range of distances; and `activation`, `query` and `key` (B, L, H), where each head's activation is
    largest. `norms`: the `output_norms`. Call inside torch.inference_mode."""
    import torch

    n_tokens = token_ids.shape[1]
    found: dict[str, list[np.ndarray]] = {}
    stream_norms: dict[int, Tensor] = {}
    row, query, copy = (torch.from_numpy(each) for each in copies(token_ids))

    def keep_norms(layer: int) -> Any:
        def keep(module: Any, args: Any, kwargs: Any) -> None:
            stream = args[0] if args else kwargs["hidden_states"]
            stream_norms[layer] = stream.float().norm(dim=-1)  # (B, T)

        return keep

    def visit(layer: int, pattern: Tensor, z: Tensor, values: Tensor) -> None:
        written, weights = ((each.float() @ norms[layer].mT).norm(dim=-1) for each in (z, values))  # (B, H, T)
        by_query = pattern[:, :, 1:]
        each = (by_query * weights[:, :, None]).flatten(2).max(-1)  # (B, H)
        at = each.indices
        summed = by_query.sum(0)  # (H, T - 1, T)
        by_distance = summed.flatten(1) @ _by_distance(n_tokens).to(pattern.device)
        strong = written[:, :, 1:] > STRONG * stream_norms.pop(layer)[:, None, 1:]
        entropy = -by_query.clamp_min(SMALLEST).log_().mul_(by_query).sum((0, 2, 3))  # twice as fast as torch's entr
        sums = {
            "induction": pattern[row, :, query, copy + 1].sum(0),
            "same_token": pattern[row, :, query, copy].sum(0),
            "previous_token": by_distance[:, 1],
            "first_token": summed[:, :, 0].sum(-1),
            "entropy": entropy,
            "distance": by_distance[:, -1],
            "strong": strong.sum((0, 2)),
            "distances": by_distance[:, :-1],
            "activation": each.values,
            "query": at // n_tokens + 1,
            "key": at % n_tokens,
        }
        for name, value in sums.items():
            found.setdefault(name, []).append(value.cpu().numpy())

    with ExitStack() as open_hooks:
        for layer, module in enumerate(loaded.family.layer_list(loaded.model)):
            open_hooks.enter_context(module.register_forward_pre_hook(keep_norms(layer), with_kwargs=True))
        open_hooks.enter_context(visited(loaded, visit))
        hidden_of(loaded, token_ids, positions=True)
    per_window = {"activation": np.float32, "query": np.int16, "key": np.int16}
    arrays = {name: np.stack(each).astype(np.float32) for name, each in found.items() if name not in per_window}
    return arrays | {name: np.stack(found[name], 1).astype(dtype) for name, dtype in per_window.items()}


def output_norms(loaded: Loaded) -> list[Tensor]:
    """Returns R (H, d_head, d_head) of each layer, by which norm(W_O x) is norm(R x) for each head."""
    import torch

    layers = range(loaded.identity.shape.n_layers)
    with torch.inference_mode():
        return [torch.linalg.qr(output_weights(loaded, layer).mT).R for layer in layers]


@lru_cache(maxsize=1)
def _by_distance(n_tokens: int) -> Tensor:
    """Returns ((T - 1) * T, len(DISTANCES) + 1): for each query and key, its range of distances as 0 or 1, and the
    distance."""
    import torch

    distance = torch.arange(1, n_tokens)[:, None] - torch.arange(n_tokens)
    edges = torch.tensor(DISTANCES)
    ranges = torch.bucketize(distance.clamp_min(0), edges, right=True) - 1
    each = torch.nn.functional.one_hot(ranges, len(DISTANCES)) * (distance >= 0)[..., None]
    return torch.cat([each, distance.clamp_min(0)[..., None]], -1).flatten(0, 1).float()

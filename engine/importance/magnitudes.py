"""Norms of the weights of heads and FFNs, read once per model.

Weights are those that the model multiplies by: int8 weights after scaling. Gains of norms and biases are left out.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from engine.models.loading import Loaded
from engine.models.session import Target
from engine.models.weights import attention_weights, linear, output_weights
from engine.pieces import Measuring, Piece
from engine.progress import Progress
from engine.records import canonical_key

if TYPE_CHECKING:
    from torch import Tensor


def magnitude_piece(target: Target) -> Piece:
    """Returns the piece with the norms of a model's weights, fp32: `heads` (L, H) the Frobenius norm of W_V W_O, `ffns`
    (L,) the product of the norms of the input matrices (Llama: gate and up as one matrix) and of the output matrix; for
    Wanda `head_outputs` (L, H * d_head) and `ffn_outputs` (L, d_mlp): the sum of |w| by input of the output matrix."""
    shape = target.shape
    key = canonical_key("magnitudes", target.as_usual.key())
    n = shape.n_layers
    shapes: dict[str, tuple[int | str, ...]] = {"heads": (n, shape.n_heads), "ffns": (n,)}
    shapes |= {"head_outputs": (n, shape.n_heads * shape.d_head), "ffn_outputs": (n, shape.d_mlp)}
    return Piece(key, 1, shapes, _measured)


def _measured(loaded: Loaded) -> Measuring:
    import torch

    found: dict[str, list[np.ndarray]] = {name: [] for name in ("heads", "ffns", "head_outputs", "ffn_outputs")}
    n = loaded.identity.shape.n_layers
    for layer in range(n):
        yield Progress(0, 1, message="weights", share=layer / n)
        with torch.inference_mode():
            for name, each in _of_layer(loaded, layer).items():
                found[name].append(each.float().cpu().numpy())
    return {name: np.stack(each) for name, each in found.items()}, {"kind": "magnitudes"}


def _of_layer(loaded: Loaded, layer: int) -> dict[str, Tensor]:
    import torch

    shape, family = loaded.identity.shape, loaded.family
    values = attention_weights(loaded, layer)[2].double()  # (H, d_model, d_head)
    outputs = output_weights(loaded, layer).double()  # (H, d_head, d_model)
    # |W_V W_O|^2 = trace of W_V' W_V W_O W_O', a product of (d_head, d_head) matrices
    squared = ((values.transpose(1, 2) @ values) * (outputs @ outputs.transpose(1, 2))).sum((1, 2))
    module = family.layer_list(loaded.model)[layer]
    readers = [linear(loaded, attrgetter(name)(module), shape.d_model)[0].double() for name in family.ffn_read]
    writer = linear(loaded, attrgetter(family.ffn_write)(module), shape.d_mlp)[0].double()  # (d_mlp, d_model)
    read = torch.stack([matrix.square().sum() for matrix in readers]).sum().sqrt()
    return {
        "heads": squared.clamp_min(0).sqrt(),
        "ffns": read * writer.norm(),
        "head_outputs": outputs.abs().sum(-1).flatten(),
        "ffn_outputs": writer.abs().sum(-1),
    }

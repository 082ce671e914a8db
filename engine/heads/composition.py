"""Which earlier heads feed a head's keys, by weights alone.

Two numbers for each earlier head. *QK trace*: the trace of W_E W_Q (W_E W_V W_O W_K)^T over the vocabulary, large if
the earlier head's output for a token matches this head's query for the same token (Olsson et al. 2022). Multiplied by
the earlier head's previous-token score, it is that head's share of the QK trace on the Induction screen.
*K-composition*: how much of the earlier head's output the keys read, |W_Q W_K^T (W_V W_O)^T| / (|W_Q W_K^T| |W_V W_O|)
in Frobenius norms (Elhage et al. 2021), with the same for random matrices of these shapes. Norms are folded in; rotary
positions are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from engine.heads.attention import Head
from engine.measurement import Measurement, Workload, known_value, single
from engine.models.loading import Loaded
from engine.models.session import Target
from engine.models.weights import attention_norm, attention_weights, embedding, folded, output_weights
from engine.pieces import Measuring, Piece
from engine.progress import Progress
from engine.records import canonical_key
from engine.timing.workload import CHARACTERS_A_TOKEN

if TYPE_CHECKING:
    from torch import Tensor

N_RANDOM = 6  # random heads on either side; all pairs are used


@dataclass(frozen=True)
class Feeding:
    """For each earlier head, (earlier layers, H): `trace`, without a unit, and `composition`, 0 to 1. `random` (n,):
    the composition of pairs of random heads of the same shapes."""

    trace: np.ndarray
    composition: np.ndarray
    random: np.ndarray


def feeding(target: Target, head: Head) -> Measurement[Feeding]:
    """Returns the Feeding of `head`; empty in layer 0."""
    if not head[0]:
        none = np.zeros((0, target.shape.n_heads))
        return known_value(target.as_usual, ("feeding", head), Feeding(none, none, np.zeros(0)))
    # int8 weights are read by a pass over d_model rows
    rows = target.shape.d_model * (head[0] + 1) / target.shape.n_layers
    expected = partial(Workload, {"forward": CHARACTERS_A_TOKEN * rows})
    return single(target.as_usual, _piece(target, head), lambda record: Feeding(**record.arrays), expected)


def _piece(target: Target, head: Head) -> Piece:
    each = (head[0], target.shape.n_heads)
    shapes: dict[str, tuple[int | str, ...]] = {"trace": each, "composition": each, "random": ("n",)}
    key = canonical_key("head feeding", target.as_usual.key() | {"head": list(head)})
    return Piece(key, 1, shapes, partial(_measured, head=head))


def _measured(loaded: Loaded, head: Head) -> Measuring:
    import torch

    (layer, number), shape = head, loaded.identity.shape
    trace, composed = np.zeros((2, layer, shape.n_heads))
    yield Progress(0, layer, message="weights")
    with torch.inference_mode():
        rows = embedding(loaded)
        tokens = rows.T @ rows  # (d_model, d_model)
        norm = attention_norm(loaded, layer)
        query, key, _ = (folded(norm, weight[number].T).T.to(tokens.device)
                         for weight in attention_weights(loaded, layer))  # fmt: skip
        sought = tokens @ query  # (d_model, d_head)
        for earlier in range(layer):
            _, _, value = attention_weights(loaded, earlier)
            value = folded(attention_norm(loaded, earlier), value.mT).mT.to(tokens.device)  # (H, d_model, d_head)
            output = output_weights(loaded, earlier).to(tokens.device).mT  # (H, d_model, d_head)
            trace[earlier] = ((value.mT @ sought) * (output.mT @ key)).sum((1, 2)).cpu().numpy()
            composed[earlier] = _composition(query, key, value, output).cpu().numpy()
            yield Progress(earlier + 1, layer, message="weights")
        generator = torch.Generator().manual_seed(0)
        drawn = torch.randn(4, N_RANDOM, shape.d_model, shape.d_head, generator=generator)
        random = [_composition(drawn[0, at], drawn[1, at], drawn[2], drawn[3]) for at in range(N_RANDOM)]
    arrays = {"trace": trace, "composition": composed, "random": torch.cat(random).double().cpu().numpy()}
    return arrays, {"kind": "head feeding", "head": f"L{layer}H{number}"}


def _composition(query: Tensor, key: Tensor, value: Tensor, output: Tensor) -> Tensor:
    """(H,): K-composition of one head with each of H others; `query` and `key` (d_model, d_head), `value` and `output`
    (H, d_model, d_head). On the d_head side: |A M B^T|^2 is the trace of M^T (A^T A) M (B^T B)."""
    queries, keys = query.T @ query, key.T @ key
    values, outputs = value.mT @ value, output.mT @ output  # (H, d_head, d_head)
    middle = key.T @ output  # (H, d_head, d_head): W_K^T W_O^T
    joint = ((queries @ middle @ values) * middle).sum((1, 2))
    alone = (queries * keys).sum() * (values * outputs).sum((1, 2))
    return (joint / alone.clamp_min(1e-30)).clamp_min(0).sqrt()

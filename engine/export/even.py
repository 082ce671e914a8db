"""The form `even`: a plain config and smaller tensors, for pruned models that fit the stock architecture.

Whole layers are dropped (`num_hidden_layers`), and the remaining layers keep equally many heads, which Llama and
similar models can express (`head_dim`); OPT, GPT-2 and GPT-NeoX fix a head's width as the model's width divided by the
number of heads. The attention output bias of a dropped layer stays: it is added to the FFN output bias of the previous
layer or, without one, to the position or token embeddings. Masks that do not fit are rejected with a one-line error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from engine.architecture.family import family_of, has_long_rope, is_tied
from engine.architecture.layer_tensors import head_numbers, key_heads, place_of
from engine.checkpoints.identity import Identity
from engine.checkpoints.tensors import LazyTensor
from engine.errors import UsageError
from engine.export.folders import PlannedTensor
from engine.export.forms import ExportForm, made, refuse_some_heads, taken_at
from engine.models.masks import Mask

if TYPE_CHECKING:
    from torch import Tensor

INSTEAD = "or use --form small, which takes any mask"


def even(identity: Identity, tensors: Mapping[str, LazyTensor], mask: Mask, reads: bool = True) -> ExportForm:
    """Returns the plan of the form `even`. `reads` = False: no tensor is read, and only the sizes of the plan are
    valid. UsageError: says what is uneven, and what else to prune or keep."""
    config, family, shape = identity.config, family_of(identity.config), identity.shape
    stays = [layer for layer in range(shape.n_layers) if any(mask.heads[layer]) or mask.ffns[layer]]
    kept = {layer: [head for head, keeps in enumerate(mask.heads[layer]) if keeps] for layer in stays}
    _refuse_uneven(identity, mask, kept)
    n_heads = len(kept[stays[0]])
    n_keys = len(key_heads(shape, kept[stays[0]]))
    first = f"{family.position_embedding or family.token_embedding}.weight"
    if family.embedding_norm:
        first = f"{family.embedding_norm}.bias"
    begins = re.compile(rf"(.*\.)?{first}")
    added = _biases(identity, tensors, stays) if reads else {}  # by the previous layer, -1 for none
    own = family.own_name("num_hidden_layers")
    changed: dict[str, Any] = {own if own in config else "num_hidden_layers": len(stays)}
    if family.by_layer is not None and len(stays) < shape.n_layers:
        changed |= {name: [each[layer] for layer in stays] for name, each in family.by_layer(config).items()}
    if n_heads < shape.n_heads:
        changed |= {"num_attention_heads": n_heads, "num_key_value_heads": n_keys, "head_dim": shape.d_head}
    planned = []
    for name, tensor in tensors.items():
        place, size, change = place_of(name), list(tensor.shape), None
        if place is not None:
            if place.layer not in kept:
                continue
            heads = kept[place.layer]
            if n_heads < shape.n_heads and (numbers := head_numbers(family, shape, place.rest, heads)):
                size[numbers[0]] = len(numbers[1])
                change = partial(taken_at, *numbers)
            front = place.front.removesuffix(f"{place.layer}.")
            if place.rest == f"{family.ffn_write}.bias" and place.layer in added:
                change = partial(_plus, added[place.layer])
            name = f"{front}{stays.index(place.layer)}.{place.rest}"
        elif begins.fullmatch(name) and -1 in added:
            change = partial(_plus, added[-1])
        planned.append(PlannedTensor(name, tuple(size), tensor.dtype, partial(made, tensor, change)))
    return ExportForm({**config, **changed}, tuple(planned), is_tied(config))


def _refuse_uneven(identity: Identity, mask: Mask, kept: Mapping[int, list[int]]) -> None:
    """Raises UsageError if the pruned model is not a stock model of this family."""
    config, shape, family = identity.config, identity.shape, family_of(identity.config)
    refuse_some_heads(family, mask)
    if not kept:
        raise UsageError(f"every layer is pruned, and a model needs one; keep a layer, {INSTEAD}")
    for layer, heads in kept.items():
        if not mask.ffns[layer]:
            raise UsageError(f"F{layer} is pruned and layer {layer} keeps {_heads(len(heads))}: prune the whole layer "
                             f"(B{layer}), keep F{layer}, {INSTEAD}")  # fmt: skip
    if len(kept) < shape.n_layers and family.can_norm_behind and config.get("do_layer_norm_before") is False:
        raise UsageError(f"{identity.name} norms the residual stream after every layer, and the norm stays when the "
                         f"layer is dropped; keep the layers, {INSTEAD}")  # fmt: skip
    if len(kept) < shape.n_layers and config.get("scale_attn_by_inverse_layer_idx"):
        raise UsageError(f"{identity.name} scales attention by the layer's number, which would change; keep the "
                         f"layers, {INSTEAD}")  # fmt: skip
    counts = {layer: len(heads) for layer, heads in kept.items()}
    usual = max(set(counts.values()), key=lambda count: list(counts.values()).count(count))
    odd = [layer for layer, count in counts.items() if count != usual]
    if odd:
        n, first = counts[odd[0]] - usual, odd[0]
        what = f"prune {_heads(n)} more there" if n > 0 else f"keep {_heads(-n)} more there"
        also = f" (and {len(odd) - 1} more layers differ)" if len(odd) > 1 else ""
        raise UsageError(f"layer {first} keeps {_heads(counts[first])} and most layers {usual}{also}: {what}, "
                         f"{INSTEAD}")  # fmt: skip
    if usual == shape.n_heads:
        return
    if not usual:
        raise UsageError(f"the layers that stay keep no heads; keep one in each, {INSTEAD}")
    if not family.states_head_width:
        raise UsageError(f"{family.name} models fix a head's width as {shape.d_model} / heads, so that layers cannot "
                         f"keep {usual} of {shape.n_heads}; prune whole layers only, {INSTEAD}")  # fmt: skip
    if has_long_rope(config):
        raise UsageError(f"{identity.name} has longrope positions, whose angles transformers counts by width / heads; "
                         f"keep all heads of the layers that stay, {INSTEAD}")  # fmt: skip
    if family.heads_divide_width and shape.d_model % usual:  # whatever `head_dim` says
        fits = max(n for n in range(1, usual + 1) if shape.d_model % n == 0)
        raise UsageError(f"transformers needs a width that is a multiple of the number of heads, and {shape.d_model} "
                         f"is not a multiple of {usual}; keep {fits} heads in each layer, {INSTEAD}")  # fmt: skip
    for layer, heads in kept.items():
        keys = key_heads(shape, heads)
        together = shape.n_heads // shape.n_key_value_heads
        sizes = {sum(head // together == key for head in heads) for key in keys}
        if len(sizes) > 1 or len(keys) != len(key_heads(shape, next(iter(kept.values())))):
            raise UsageError(f"heads share keys and values in groups of {together}, and the mask of layer {layer} "
                             f"is uneven: keep equally many heads of each group in every layer, {INSTEAD}")  # fmt: skip


def _biases(identity: Identity, tensors: Mapping[str, LazyTensor], stays: list[int]) -> dict[int, Tensor]:
    """Returns the biases that dropped layers still add: (d_model,) by the previous layer that stays, -1 for none.
    UsageError: there is no bias or embedding to add one to."""
    config, family = identity.config, family_of(identity.config)
    by_place = {(place.layer, place.rest): name for name in tensors if (place := place_of(name)) is not None}
    biases: dict[int, Tensor] = {}
    for layer in set(range(identity.shape.n_layers)) - set(stays):
        name = by_place.get((layer, f"{family.attention.out}.bias"))
        if name is None or not (bias := made(tensors[name], None).float()).any():
            continue
        if family.norms_after[0]:
            raise UsageError(_nowhere(layer, "it goes through the layer's norm"))
        before = max((each for each in stays if each < layer), default=-1)
        if before >= 0 and (before, f"{family.ffn_write}.bias") not in by_place:
            raise UsageError(_nowhere(layer, f"the FFN of layer {before} has no output bias"))
        if before < 0 and not (family.position_embedding or family.embedding_norm) and is_tied(config):
            raise UsageError(_nowhere(layer, "no earlier layer stays, and the embedding is read again at the end"))
        if before < 0:
            scales = family.scales(config)
            bias = bias * scales.residual / scales.embedding
        biases[before] = bias if before not in biases else biases[before] + bias
    return biases


def _nowhere(layer: int, why: str) -> str:
    return (f"the attention output bias of layer {layer} stays when the layer is dropped, and there is nothing to add "
            f"it to ({why}); keep another layer, {INSTEAD}")  # fmt: skip


def _heads(n: int) -> str:
    return "1 head" if n == 1 else f"{n} heads"


def _plus(bias: Tensor, tensor: Tensor) -> Tensor:
    return (tensor.float() + bias).to(tensor.dtype)

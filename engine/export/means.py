"""Mean outputs of pruned components, folded into output biases: `--fill mean`.

The mean of a head's z over a reference is multiplied by its part of the output projection and added to the projection's
bias; the mean of an FFN's output becomes its last bias. Means are of the full model. A family without such biases is
written as a family that computes the same and supports them: Llama, with `attention_bias` or `mlp_bias` in the config,
and a bias of zeros for every other projection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.architecture.families import FAMILIES
from engine.architecture.family import family_of, known_fields, windows_of
from engine.architecture.layer_tensors import TensorPlace, head_numbers, is_attention, is_ffn, place_of
from engine.architecture.transformers_internals import causal_lm_class, model_config
from engine.checkpoints.identity import Identity
from engine.checkpoints.tensors import LazyTensor
from engine.errors import UsageError
from engine.models.masks import Mask, Means

if TYPE_CHECKING:
    from torch import Tensor


def filled(
    identity: Identity, stored: Mapping[str, LazyTensor], mask: Mask, found: Means
) -> tuple[Identity, dict[str, LazyTensor]]:
    """Returns the model, not yet pruned, with the means of the components to prune in its output biases. UsageError: it
    cannot have such biases."""
    family = family_of(identity.config)
    places = {name: place for name in stored if (place := place_of(name)) is not None}
    changed, config = dict(stored), identity.config
    if not (family.has_biases or family.biased_type):
        raise UsageError(f"{family.name} models have no output biases for means; use --fill zero")
    if family.biased_type:
        config = _biased(identity, mask)
        biased = FAMILIES[family.biased_type]
        for says, belongs in ((biased.attention_biases, is_attention), (biased.ffn_biases, is_ffn)):
            if isinstance(says, str) and config.get(says):
                zeros = _zero_biases(stored, {n: p for n, p in places.items() if belongs(family, p.rest)})
                changed |= {bias: zero for bias, zero in zeros.items() if bias not in stored}
    held = {(place.layer, place.rest) for name in changed if (place := place_of(name)) is not None}
    for layer, (heads, keeps_ffn) in enumerate(zip(mask.heads, mask.ffns, strict=True)):
        for out, stays, what in ((family.attention_out, all(heads), "heads"), (family.ffn_write, keeps_ffn, "FFNs")):
            if not stays and (layer, f"{out}.bias") not in held:
                raise UsageError(f"the {what} of {identity.name} have no output biases for means; use --fill zero")
    for name, bias in list(changed.items()):
        place = place_of(name)
        if place is None:
            continue
        gone = [head for head, kept in enumerate(mask.heads[place.layer]) if not kept]
        if place.rest == f"{family.attention_out}.bias" and gone:
            rest = f"{family.attention_out}.weight"
            at, z = head_numbers(family, identity.shape, rest, gone), found.heads[place.layer][gone]
            assert at is not None
            changed[name] = replace(bias, read=partial(_with_heads, bias, stored[place.front + rest], at, z))
        elif place.rest == f"{family.ffn_write}.bias" and not mask.ffns[place.layer]:
            changed[name] = replace(bias, read=partial(_instead, bias, found.ffns[place.layer]))
    return replace(identity, config=config), changed


def _biased(identity: Identity, mask: Mask) -> dict[str, Any]:
    """Returns the config of a model that computes the same and has the biases needed for means. UsageError: there is no
    such model, because no FFN has biases, or the width is not a multiple of the number of heads."""
    config, family, shape = dict(identity.config), family_of(identity.config), identity.shape
    biased = FAMILIES[family.biased_type]
    if mask.n_ffns_pruned and not biased.ffn_biases:
        raise UsageError(f"the FFNs of {family.name} models have no output biases for means; prune heads only, or use "
                         "--fill zero")  # fmt: skip
    if family.biased_type != config["model_type"]:
        if biased.heads_divide_width and shape.d_model % shape.n_heads:
            raise UsageError(f"{family.name} has no output biases for means, and {biased.name}, which may have them, "
                             f"needs a width that is a multiple of its heads: it is {shape.d_model}, with "
                             f"{shape.n_heads} heads; use --fill zero")  # fmt: skip
        reads = [shape.n_ctx, *windows_of(config)]  # the other type has no windows
        config |= {"model_type": family.biased_type, "max_position_embeddings": min(filter(None, reads))}
        config = known_fields(config)
        config["architectures"] = [causal_lm_class(model_config(config)).__name__]
    if mask.n_heads_pruned or family.qkv_biases is True:
        config[str(biased.attention_biases)] = True
    if mask.n_ffns_pruned:
        config[str(biased.ffn_biases)] = True
    return config


def _zero_biases(stored: Mapping[str, LazyTensor], places: Mapping[str, TensorPlace]) -> dict[str, LazyTensor]:
    """Returns a bias of zeros for each of these matrices."""
    found = {}
    for name, place in places.items():
        if place.rest.endswith(".weight") and len(stored[name].shape) == 2:
            weight, bias = stored[name], f"{name.removesuffix('weight')}bias"
            size = weight.shape[:1]
            found[bias] = LazyTensor(bias, size, weight.dtype, partial(_zeros, size, weight.dtype))
    return found


def _zeros(size: tuple[int, ...], dtype: str) -> Tensor:
    import torch

    return torch.zeros(size, dtype=getattr(torch, dtype))


def _with_heads(bias: LazyTensor, weight: LazyTensor, at: tuple[int, np.ndarray], z: np.ndarray) -> Tensor:
    """Returns the output projection's bias plus the mean z (n, d_head) multiplied by the weights at `at`."""
    import torch

    axis, index = at
    through = weight.read().float().index_select(axis, torch.from_numpy(index))
    through = through.T if axis == 1 else through  # (n * d_head, d_model)
    before = bias.read()
    return (before.float() + torch.from_numpy(z.ravel()) @ through).to(before.dtype)


def _instead(bias: LazyTensor, mean: np.ndarray) -> Tensor:
    import torch

    return torch.from_numpy(mean).to(getattr(torch, bias.dtype))

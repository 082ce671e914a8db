"""The weights of heads and of the unembedding as fp32 matrices, whatever the model keeps them in.

A projection that is not a plain matrix (int8 weights, GPT-2's transposed ones) is read by feeding it unit vectors,
which gives its weights back exactly as they are used. Norms multiply by their own weights and (LayerNorm) take the mean
away; that is folded in. Their scale, one number a position, is not: nothing computed from these weights depends on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.architecture.transformers_internals import takes_mean
from engine.models.loading import Loaded
from engine.placement.accelerate_internals import onloaded

if TYPE_CHECKING:
    from torch import Tensor


def output_weights(loaded: Loaded, layer: int) -> Tensor:
    """W_O of a layer, (H, d_head, d_model), times what the model multiplies its output by (Granite)."""
    shape = loaded.identity.shape
    weight, _ = linear(loaded, loaded.family.layer_modules(loaded.model)[layer][0], shape.n_heads * shape.d_head)
    return weight.view(shape.n_heads, shape.d_head, -1) * loaded.scales.residual


def written_weights(loaded: Loaded, layer: int) -> Tensor:
    """W_O of a layer, (H, d_head, d_model), as it reaches the residual stream: a norm behind attention (OLMo 2) is
    folded in without its scale, one number a position."""
    weights, norm = output_weights(loaded, layer), attention_norm_after(loaded, layer)
    return weights if norm is None else weights * _gain(loaded, norm, weights)


def attention_weights(loaded: Loaded, layer: int) -> tuple[Tensor, Tensor, Tensor]:
    """(W_Q, W_K, W_V) of a layer, each (H, d_model, d_head): what the normed residual stream is multiplied with.

    Heads that share a key and value head (Llama's grouped queries) get that one's each. Biases are left out. Norms of
    queries and keys (Qwen3) are folded in without their scale, one number a position and head, or a position (OLMo 2).
    """
    family = loaded.family
    attention = family.attention_modules(loaded.model)[layer]
    projections = [getattr(attention, name) for name in family.attention.qkv]
    outputs = [linear(loaded, each, loaded.identity.shape.d_model)[0] for each in projections]
    heads = [each.transpose(0, 1) for each in _by_head(loaded, outputs)]
    for at, name in enumerate(family.qk_norms):
        gains = _gain(loaded, getattr(attention, name), heads[at]).view(-1, 1, loaded.identity.shape.d_head)
        each = len(heads[at]) // len(gains) if family.norms_all_heads else 1
        heads[at] = heads[at] * gains.repeat_interleave(each, 0)
    query, key, value = heads
    return query, key, value


def _by_head(loaded: Loaded, outputs: list[Tensor]) -> list[Tensor]:
    """Queries, keys and values (..., H, d_head) from what the projections gave."""
    shape = loaded.identity.shape
    if loaded.family.attention.packing == "by head":
        sharing = shape.n_heads // shape.n_key_value_heads
        groups = outputs[0].unflatten(-1, (shape.n_key_value_heads, sharing + 2, shape.d_head))
        keys, values = (groups[..., at, :].repeat_interleave(sharing, dim=-2) for at in (-2, -1))
        return [groups[..., :-2, :].flatten(-3, -2), keys, values]
    if len(outputs) == 1:
        counts = shape.n_heads, shape.n_key_value_heads, shape.n_key_value_heads
        outputs = list(outputs[0].split([count * shape.d_head for count in counts], dim=-1))
    heads = [output.unflatten(-1, (-1, shape.d_head)) for output in outputs]
    return [head.repeat_interleave(shape.n_heads // head.shape[-2], dim=-2) for head in heads]


def linear(loaded: Loaded, module: Any, n_inputs: int) -> tuple[Tensor, Tensor]:
    """(weight (n_inputs, n_outputs), bias (n_outputs,)) of any linear module, fp32."""
    import torch

    with onloaded(module):
        if isinstance(module, torch.nn.Linear) and module.weight.is_floating_point():
            bias = module.weight.new_zeros(len(module.weight)) if module.bias is None else module.bias
            return module.weight.detach().T.float(), bias.detach().float()
        parameter = next(module.parameters())
        dtype = parameter.dtype if parameter.is_floating_point() else loaded.model.dtype
        units = torch.eye(n_inputs, dtype=dtype, device=parameter.device)
    with torch.inference_mode():
        bias = module(torch.zeros_like(units[:1])).float()[0]
        return module(units).float() - bias, bias


def normed(loaded: Loaded, norm: Any, rows: Tensor) -> Tensor:
    """(..., d_model): the rows after a norm without its bias and scale; unchanged where `norm` is None."""
    if norm is None:
        return rows
    if takes_mean(norm):
        rows = rows - rows.mean(-1, keepdim=True)
    return rows * _gain(loaded, norm, rows)


def folded(loaded: Loaded, norm: Any, readers: Tensor) -> Tensor:
    """(..., d_model): vectors whose inner product with the unnormed stream is that of `readers` with the normed one."""
    if norm is None:
        return readers
    readers = readers * _gain(loaded, norm, readers)
    return readers - readers.mean(-1, keepdim=True) if takes_mean(norm) else readers


def _gain(loaded: Loaded, norm: Any, like: Tensor) -> Tensor:
    """(d_model,), or as many as the norm is of: what it multiplies by, where what it is for lies."""
    with onloaded(norm):
        return norm.weight.to(like.device).float() + loaded.family.norm_offset


def attention_norm(loaded: Loaded, layer: int) -> Any:
    """The norm in front of a layer's attention; None in OPT-350m and OLMo 2, where it comes after."""
    if loaded.family.norms_come_behind(loaded.model) or not loaded.family.norms[0]:
        return None
    return getattr(loaded.family.layer_list(loaded.model)[layer], loaded.family.norms[0])


def attention_norm_after(loaded: Loaded, layer: int) -> Any:
    """The norm that what attention gives goes through before the residual sum; None where there is none."""
    name = loaded.family.norms_after[0]
    return getattr(loaded.family.layer_list(loaded.model)[layer], name) if name else None


def embedding(loaded: Loaded, token_ids: Tensor | slice = slice(None)) -> Tensor:
    """(..., d_model): the residual stream's token part in front of layer 0, without positions."""
    import torch

    embed = loaded.model.get_input_embeddings()
    if isinstance(token_ids, slice):
        token_ids = torch.arange(len(embed.weight))[token_ids]
    with torch.inference_mode():
        rows = embed(token_ids.to(embed.weight.device)).float() * loaded.scales.embedding  # Gemma scales them there
        if loaded.family.embedding_norm:
            rows = getattr(loaded.model.base_model, loaded.family.embedding_norm)(rows.to(embed.weight.dtype)).float()
        project_in = loaded.family.projection(loaded.model, "project_in")
        return rows if project_in is None else rows @ project_in.weight.float().T


def norms_behind(loaded: Loaded, layer: int) -> tuple[Any, Any]:
    """The norms that the residual stream itself goes through behind a layer's attention and behind its FFN: None, but
    in OPT-350m."""
    if not loaded.family.norms_come_behind(loaded.model):
        return None, None
    module = loaded.family.layer_list(loaded.model)[layer]
    behind_attention, behind_ffn = loaded.family.norms
    return getattr(module, behind_attention), getattr(module, behind_ffn)


def norm_scale(norm: Any, rows: Tensor) -> Tensor:
    """(..., 1): what the norm divides these rows by."""
    rows = rows.float()
    size = rows.var(-1, correction=0, keepdim=True) if takes_mean(norm) else rows.square().mean(-1, keepdim=True)
    return (size + (norm.eps if hasattr(norm, "eps") else norm.variance_epsilon)).sqrt()


def unembedding(
    loaded: Loaded, token_ids: Tensor | slice = slice(None), final_norm: bool = True, zero_mean: bool = False
) -> Tensor:
    """(..., d_model): whose inner product with the residual stream is a token's logit, up to one scale a position; with
    `zero_mean` the logit's distance from the mean over the vocabulary."""
    import torch

    with torch.inference_mode():
        weight = loaded.model.get_output_embeddings().weight
        rows = weight[token_ids].float()
        if zero_mean:
            rows = rows - weight.mean(0, dtype=torch.float32)
        project_out = loaded.family.projection(loaded.model, "project_out")
        if project_out is not None:
            rows = rows @ project_out.weight.float()
        rows = rows / loaded.scales.logits_divisor
        return folded(loaded, loaded.family.final_norm(loaded.model), rows) if final_norm else rows


def output_bias(loaded: Loaded, layer: int) -> Tensor:
    """(d_model,): what a layer's attention writes when all heads are silent."""
    shape = loaded.identity.shape
    _, bias = linear(loaded, loaded.family.layer_modules(loaded.model)[layer][0], shape.n_heads * shape.d_head)
    return bias * loaded.scales.residual

"""Attention patterns and head outputs of a loaded model, layer by layer while it runs: nothing larger than one layer's
patterns is ever held.

Patterns exist only in eager attention, so the model is switched to it while the context is open.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from engine.loading import Loaded

Visit = Callable[[int, Any, Any], None]  # layer, pattern (B, H, T, T) fp32, z (B, T, H, d_head)


@contextmanager
def visited(loaded: Loaded, visit: Visit) -> Iterator[None]:
    """While open, every forward pass calls `visit(layer, pattern, z)` once a layer; z is what W_O is applied to."""
    model, shape = loaded.model, loaded.identity.shape
    before, hooks, waiting = model.config._attn_implementation, [], {}

    def on_z(layer: int) -> Any:
        def hook(module: Any, args: tuple[Any, ...]) -> None:
            waiting[layer] = args[0]

        return hook

    def on_pattern(layer: int) -> Any:
        def hook(module: Any, args: Any, output: tuple[Any, ...]) -> None:
            pattern = output[1].float()
            visit(layer, pattern, waiting.pop(layer).view(pattern.shape[0], pattern.shape[2], shape.n_heads,
                                                          shape.d_head))  # fmt: skip

        return hook

    try:
        model.set_attn_implementation("eager")
        for layer, (attention, (attention_out, _)) in enumerate(
            zip(loaded.family.attention_modules(model), loaded.family.layer_modules(model), strict=True)
        ):
            hooks.append(attention_out.register_forward_pre_hook(on_z(layer)))
            hooks.append(attention.register_forward_hook(on_pattern(layer)))
        yield
    finally:
        for hook in hooks:
            hook.remove()
        model.set_attn_implementation(before)


def output_weights(loaded: Loaded, layer: int) -> Any:
    """W_O of a layer as (H, d_head, d_model) fp32, read by feeding unit vectors: right for int8 weights too."""
    import torch

    shape = loaded.identity.shape
    module = loaded.family.layer_modules(loaded.model)[layer][0]
    parameter = next(module.parameters())
    width = shape.n_heads * shape.d_head
    dtype = parameter.dtype if parameter.is_floating_point() else loaded.model.dtype
    units = torch.eye(width, dtype=dtype, device=parameter.device)
    with torch.inference_mode():
        rows = module(units).float() - module(torch.zeros_like(units[:1])).float()
    return rows.view(shape.n_heads, shape.d_head, -1)


def unembedding(loaded: Loaded, token_ids: Any) -> Any:
    """(..., d_model) fp32: what the residual stream's inner product with gives each token's logit, up to one scale a
    position.

    The final norm's own weights are folded in (and a LayerNorm's centring); its scale, one number a position, is not.
    """
    import torch

    model = loaded.model
    with torch.inference_mode():
        rows = model.get_output_embeddings().weight[token_ids].float()
        if (project_out := loaded.family.project_out(model)) is not None:
            rows = rows @ project_out.weight.float()
        if (norm := loaded.family.final_norm(model)) is not None:
            rows = rows * norm.weight.float()
            if isinstance(norm, torch.nn.LayerNorm):
                rows = rows - rows.mean(-1, keepdim=True)
    return rows

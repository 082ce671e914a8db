"""Attention patterns and head outputs of a loaded model, layer by layer while it runs: never more than one layer's
patterns are held.

Patterns exist only in eager attention, so the model is switched to it while the context is open.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from engine.loading import Loaded

Visit = Callable[[int, Any, Any, Any], None]  # layer, pattern (B, H, T, T) fp32, z (B, T, H, d_head), attention's input


@contextmanager
def visited(loaded: Loaded, visit: Visit, embeddings_everywhere: bool = False) -> Iterator[None]:
    """While open, every forward pass calls `visit(layer, pattern, z, x)` once a layer.

    z is what W_O is applied to, x (B, T, d_model) what W_Q, W_K and W_V are. `embeddings_everywhere` feeds every layer
    the input of layer 0, as llm-interpret does for its copying score.
    """
    model, shape = loaded.model, loaded.identity.shape
    before, hooks = model.config._attn_implementation, []
    waiting: dict[int, Any] = {}
    first: list[Any] = []

    def on_layer(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        held = args[0] if args else kwargs["hidden_states"]
        if module is layers[0]:
            first[:] = [held]
        return ((first[0], *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": first[0]})

    def on_z(layer: int) -> Any:
        def hook(module: Any, args: tuple[Any, ...]) -> None:
            waiting[layer] = args[0]

        return hook

    def on_pattern(layer: int) -> Any:
        def hook(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: tuple[Any, ...]) -> None:
            pattern = output[1].float()
            z = waiting.pop(layer).view(pattern.shape[0], pattern.shape[2], shape.n_heads, shape.d_head)
            visit(layer, pattern, z, args[0] if args else kwargs["hidden_states"])

        return hook

    layers = loaded.family.layer_list(model)
    try:
        model.set_attn_implementation("eager")
        if embeddings_everywhere:
            hooks += [layer.register_forward_pre_hook(on_layer, with_kwargs=True) for layer in layers]
        for layer, (attention, (attention_out, _)) in enumerate(
            zip(loaded.family.attention_modules(model), loaded.family.layer_modules(model), strict=True)
        ):
            hooks.append(attention_out.register_forward_pre_hook(on_z(layer)))
            hooks.append(attention.register_forward_hook(on_pattern(layer), with_kwargs=True))
        yield
    finally:
        for hook in hooks:
            hook.remove()
        model.set_attn_implementation(before)

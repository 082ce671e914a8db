"""Attention patterns and head outputs of a loaded model, layer by layer while it runs: never more than one layer's
patterns are held.

transformers' fast attention never has a pattern, and its eager one makes four copies of it. So the model attends by a
function of our own while the context is open, the same for every family.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from engine.loading import Loaded

Visit = Callable[[int, Any, Any, Any], None]  # layer, pattern (B, H, T, T) fp32, z and values (B, H, T, d_head)
NAME = "headroom"
_visit: ContextVar[Visit] = ContextVar("visit")


@contextmanager
def visited(loaded: Loaded, visit: Visit, embeddings_everywhere: bool = False) -> Iterator[None]:
    """While open, every forward pass calls `visit(layer, pattern, z, values)` once a layer.

    z is what W_O is applied to; values are those found at each position, biases included, one set a query head.
    `embeddings_everywhere` feeds every layer the input of layer 0, as llm-interpret does for its copying score.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, eager_mask)
    model, hooks, first = loaded.model, [], []
    before, token = model.config._attn_implementation, _visit.set(visit)

    def on_layer(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        held = args[0] if args else kwargs["hidden_states"]
        if module is layers[0]:
            first[:] = [held]
        return ((first[0], *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": first[0]})

    layers = loaded.family.layer_list(model)
    try:
        model.set_attn_implementation(NAME)
        if embeddings_everywhere:
            hooks += [layer.register_forward_pre_hook(on_layer, with_kwargs=True) for layer in layers]
        yield
    finally:
        for hook in hooks:
            hook.remove()
        model.set_attn_implementation(before)
        _visit.reset(token)


def _attend(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float, **ignored: Any
) -> tuple[Any, None]:
    """What transformers' attention functions give: z (B, T, H, d_head), and no pattern, which `visit` has had."""
    groups = query.shape[1] // key.shape[1]  # Llama: several query heads share a key and a value head
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = (query @ key.transpose(-1, -2)).float().mul_(scaling).add_(attention_mask)
    pattern = scores.softmax(-1)
    del scores
    z = pattern.to(value.dtype) @ value
    _visit.get()(module.layer_idx, pattern, z, value)
    return z.transpose(1, 2), None

"""Attention patterns and head outputs of a loaded model, layer by layer while it runs: never more than one layer's
patterns are held.

transformers' fast attention never has a pattern, and its eager one makes four copies of it. So the model attends by a
function of our own while the context is open, the same for every family.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from engine.architecture.transformers_internals import additive_mask, attention_named
from engine.models.loading import Loaded

if TYPE_CHECKING:
    from torch import Tensor

# layer, pattern (B, H, T, T), z and values (B, H, T, d_head), all fp32
Visit = Callable[[int, "Tensor", "Tensor", "Tensor"], None]
Patterns = Mapping[int, "Tensor"]  # by layer, as `visit` gets them
# by (layer, head): (T, T), destination by source: a pattern; or bool: where the own pattern stays, else it is 0
Replaced = Mapping[tuple[int, int], "Tensor"]
NAME = "headroom"
_visit: ContextVar[Visit] = ContextVar("visit")
_forced: ContextVar[Patterns] = ContextVar("forced")
_replaced: ContextVar[Replaced] = ContextVar("replaced")


def unseen(layer: int, pattern: Tensor, z: Tensor, values: Tensor) -> None:
    """A visit that looks at nothing."""


@contextmanager
def visited(
    loaded: Loaded,
    visit: Visit = unseen,
    embeddings_everywhere: bool = False,
    forced: Patterns | None = None,
    replaced: Replaced | None = None,
) -> Iterator[None]:
    """While open, every forward pass calls `visit(layer, pattern, z, values)` once a layer.

    z is what W_O is applied to; values are those found at each position, biases included, one set a query head.
    `embeddings_everywhere` feeds every layer the input of layer 0, as llm-interpret does for its copying score.
    A layer in `forced` attends by that pattern, whatever its queries and keys say; so does a single head in `replaced`.
    Products of patterns are fp32 in models of other types too: exacter, and processors without bf16 take 20 to 70 times
    as long for them in bf16.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, additive_mask())
    model, first = loaded.model, []
    asked = {_visit: visit, _forced: forced or {}, _replaced: replaced or {}}

    def on_layer(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        held = args[0] if args else kwargs["hidden_states"]
        if module is layers[0]:
            first[:] = [held]
        return ((first[0], *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": first[0]})

    layers = loaded.family.layer_list(model)
    with attention_named(model, NAME), ExitStack() as ending:
        for variable, value in asked.items():
            ending.callback(variable.reset, variable.set(value))
        for layer in layers if embeddings_everywhere else ():
            ending.enter_context(layer.register_forward_pre_hook(on_layer, with_kwargs=True))
        yield


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float,
    softcap: float | None = None,
    **ignored: Any,
) -> tuple[Tensor, None]:
    """What transformers' attention functions give: z (B, T, H, d_head), and no pattern, which `visit` has had."""
    import torch

    dtype = query.dtype
    query, key, value = query.float(), key.float(), value.float()
    groups = query.shape[1] // key.shape[1]  # Llama: several query heads share a key and a value head
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    pattern = _forced.get().get(module.layer_idx)
    if pattern is None:
        scores = (query @ key.transpose(-1, -2)).mul_(scaling)
        if softcap is not None:
            scores.div_(softcap).tanh_().mul_(softcap)
        pattern = scores.add_(attention_mask).softmax(-1)
        del scores
    for (layer, head), instead in _replaced.get().items():
        if layer == module.layer_idx:
            own = pattern[:, head]
            pattern[:, head] = instead.to(pattern) * own if instead.dtype == torch.bool else instead.to(pattern)
    z = pattern @ value
    _visit.get()(module.layer_idx, pattern, z, value)
    return z.transpose(1, 2).to(dtype), None

"""A pass whose last layer is computed only where something is read from it: nothing behind its heads looks across
positions. In a model of few layers that is much of the work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from engine.models.loading import Loaded

if TYPE_CHECKING:
    from torch import Tensor


@contextmanager
def last_layer_at(loaded: Loaded, places: Sequence[tuple[int, int]], length: int) -> Iterator[Any]:
    """Context in which what follows the heads in the last layer is computed at these (row, position) alone and gives 0
    elsewhere; rows have `length` positions. Other hooks on those modules, set before or meanwhile, see the places only:
    (place, ...) in the order given.
    """
    import torch

    at = torch.tensor([row * length + position for row, position in places])
    family, hooks = loaded.family, []
    layer = family.layer_list(loaded.model)[-1]
    if getattr(layer, "is_dropped", False):  # it is not run, and restarts need the complete layer before it
        yield
        return

    def only_there(first: Any, last: Any) -> None:
        leading: list[Any] = []  # (B * T,) of OPT's FFNs, (B, T) of all else

        def pick(module: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
            leading.append(args[0].shape[:-1])
            return (args[0].flatten(0, -2).index_select(0, at.to(args[0].device)), *args[1:])

        def spread(module: Any, args: tuple[Any, ...], output: Tensor) -> Tensor:
            shape = leading.pop()
            whole = output.new_zeros(shape.numel(), output.shape[-1])
            return whole.index_copy(0, at.to(output.device), output).view(*shape, -1)

        hooks.append(first.register_forward_pre_hook(pick, prepend=True))
        hooks.append(last.register_forward_hook(spread))

    try:
        parent, _, name = family.attention_out.rpartition(".")
        if out := getattr(attrgetter(parent)(layer), name, None):  # a layer without heads has none
            only_there(out, out)
        ffn_out = attrgetter(family.ffn_out)(layer)
        only_there(attrgetter(family.ffn_in)(layer) if family.ffn_in else ffn_out, ffn_out)
        yield
    finally:
        for hook in hooks:
            hook.remove()

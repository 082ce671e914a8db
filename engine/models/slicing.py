"""A pruned model that is really smaller: what a mask prunes is not computed at all, so the seconds fall with the level.
And a pass whose last layer is computed only where something is read from it.

A layer that loses all its heads and its FFN is not run: of it the attention output bias is added, and the norms behind
(OPT-350m), which the stream itself goes through, stay. One that keeps at most three quarters of its heads gets
projections without the pruned ones; with all of them gone its attention is the output bias alone. A pruned FFN is
skipped. Everything else is masked as before, as are families whose queries, keys and values come from one projection,
and OLMo 2, where the queries of all heads go through one norm.
int8 weights are sliced with their scales. The numbers are those of the mask up to the rounding of another order of
sums. Weights that are not on the device that runs them are sliced in each pass, since their slices do not fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache as once
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.architecture.layer_tensors import key_heads, positions
from engine.architecture.transformers_internals import count_tokens, read_by_head
from engine.kernels.bitsandbytes_internals import layer_like, quantized
from engine.models.loading import Loaded
from engine.models.masks import Mask, pruned, refuse_faulty
from engine.placement.accelerate_internals import is_offloaded, onloaded

if TYPE_CHECKING:
    from torch import Tensor

# a layer that keeps more heads is masked where a mask is used for one measurement: copying its weights would cost more
# than it saves
SLICE_BELOW = 0.75


@dataclass(frozen=True)
class Sliced:
    """The smaller parts of a model under one mask, made once and put in place as often as needed. `swaps` are (parent,
    attribute, what stands there meanwhile); `reads` are (attention, which key and value head each head reads) where
    heads share them unevenly and a cache is to hold each once; `masked` are the components left to the mask's hooks;
    `n_bytes` are what the layers then hold, of `n_bytes_full`.
    """

    swaps: tuple[tuple[Any, str, Any], ...]
    reads: tuple[tuple[Any, tuple[int, ...]], ...]
    masked: Mask
    n_bytes: int
    n_bytes_full: int


def sliced(loaded: Loaded, mask: Mask, as_exported: bool = False) -> Sliced:
    """The smaller parts for `mask`; nothing of the model changes until they are `applied`. `as_exported`: each layer
    without some of its heads is cut, and shared keys and values are cached once, as in an exported `small` folder."""
    import torch

    if not mask.is_full:
        refuse_faulty(loaded)
    shape, reads = loaded.identity.shape, []
    family, swaps, still = loaded.family, [], np.ones((len(mask.heads), len(mask.heads[0])), bool)
    layers, dropped = family.layer_list(loaded.model), set(mask.layers_dropped)
    holder = attrgetter(family.layers)(loaded.model)
    for index, (layer, attention) in enumerate(zip(layers, family.attention_modules(loaded.model), strict=True)):
        if index in dropped:
            swaps.append((holder, str(index), _dropped(loaded, layer, index)))
            continue
        kept = [head for head, keep in enumerate(mask.heads[index]) if keep]
        # smeared keys: accelerate would move the complete mixing weights into a module that has a slice of them
        n_most = shape.n_heads - 1 if as_exported else SLICE_BELOW * shape.n_heads
        is_whole = family.attention.is_one_matrix or len(kept) > n_most
        if is_whole or (kept and (family.norms_all_heads or is_offloaded(attention))):
            still[index] = mask.heads[index]
        elif kept:
            found, read = _attention(loaded, attention, kept, index in loaded.placing.moved, as_exported)
            swaps, reads = swaps + found, reads + ([(attention, read)] if read else [])
        else:
            out = attrgetter(family.attention.out)(layer)
            swaps.append((*_holder(layer, family.attention.module), _silent(out, index)))
        if not mask.ffns[index]:
            swaps.append((*_holder(layer, family.ffn_out), _modules()[1]()))
            swaps += [(*_holder(layer, family.ffn_in), torch.nn.Identity())] if family.ffn_in else []
    masked = Mask.from_arrays(still, np.ones(len(mask.ffns), bool))
    before = [getattr(parent, name) for parent, name, after in swaps if hasattr(after, "forward")]
    after = [module for _, _, module in swaps if hasattr(module, "forward")]
    full_bytes = _n_bytes(layers)
    return Sliced(tuple(swaps), tuple(reads), masked, full_bytes - _n_bytes(before) + _n_bytes(after), full_bytes)


@contextmanager
def applied(loaded: Loaded, parts: Sliced) -> Iterator[None]:
    """Context in which the model runs without what the mask prunes; it is as before afterwards, whatever happens."""
    with ExitStack() as ending:
        ending.enter_context(pruned(loaded, parts.masked))  # first: it looks for modules that may be swapped away
        for reads in parts.reads:
            ending.enter_context(read_by_head(*reads))
        for parent, name, part in parts.swaps:
            ending.callback(setattr, parent, name, getattr(parent, name))
            setattr(parent, name, part)
        yield


def _holder(layer: Any, path: str) -> tuple[Any, str]:
    """The module that holds the one of that path, and its name there."""
    parent, _, name = path.rpartition(".")
    return layer.get_submodule(parent), name


def _attention(
    loaded: Loaded, attention: Any, kept: Sequence[int], is_moved: bool, as_exported: bool
) -> tuple[list[tuple[Any, str, Any]], tuple[int, ...]]:
    """What an attention module needs to compute these heads alone, and which key head each of them reads (nothing where
    no key head is shared, or all by as many heads); `is_moved`: it does not lie where it runs."""
    shape = loaded.identity.shape
    groups, keys = shape.n_heads // shape.n_key_value_heads, key_heads(shape, kept)
    reads, each = tuple(keys.index(head // groups) for head in kept), len(kept) // len(keys)
    is_even = reads == tuple(number // each for number in range(len(kept)))
    if not is_even and not as_exported:  # a key head for each head
        keys, reads, each, is_even = [head // groups for head in kept], (), 1, True
    query_rows, key_rows = (positions(heads, shape.d_head) for heads in (kept, keys))
    query, key, value = loaded.family.attention.qkv
    out, cut = loaded.family.attention.out.rpartition(".")[2], _modules()[3] if is_moved else _slice
    swaps: list[tuple[Any, str, Any]] = [
        (attention, query, cut(getattr(attention, query), rows=query_rows)),
        (attention, key, cut(getattr(attention, key), rows=key_rows)),
        (attention, value, cut(getattr(attention, value), rows=key_rows)),
        (attention, out, cut(getattr(attention, out), columns=query_rows)),
    ]
    if getattr(attention, "smear", None) is not None:  # one number a key head
        swaps.append((attention, "smear", type(attention.smear)(attention.smear.detach()[keys], requires_grad=False)))
    swaps += [(attention, name, len(kept)) for name in ("num_heads", "num_attention_heads") if hasattr(attention, name)]
    if hasattr(attention, "num_key_value_heads"):
        swaps.append((attention, "num_key_value_heads", len(keys)))
    if hasattr(attention, "num_key_value_groups"):
        swaps.append((attention, "num_key_value_groups", each if is_even else 1))
    return swaps, () if is_even else reads


def _slice(
    linear: Any, rows: np.ndarray | None = None, columns: np.ndarray | None = None, is_empty: bool = False
) -> Any:  # fmt: skip
    """The linear module with these outputs (rows of its weight) or these inputs (columns) alone; `is_empty`: without
    values."""
    import torch

    def cut(matrix: Tensor) -> Tensor:
        matrix = matrix.detach().to("meta") if is_empty else matrix.detach()
        at = torch.from_numpy(columns if rows is None else rows).to(matrix.device)
        return matrix.index_select(1 if rows is None else 0, at)

    small: Any
    weight, bias = linear.weight, linear.bias
    if weight.is_floating_point():
        small = type(linear)(1, 1, bias=False, device="meta")
        small.weight = torch.nn.Parameter(cut(weight), requires_grad=False)
    else:
        data, scales = quantized(linear)
        small = layer_like(linear, cut(data), scales if rows is None else cut(scales))
        if hasattr(linear, "shared"):
            small.shared = linear.shared
    if bias is not None:
        bias = torch.nn.Parameter(bias.detach() if rows is None else cut(bias), requires_grad=False)
    small.bias = bias
    small.out_features, small.in_features = small.weight.shape
    return small.eval()


def _n_bytes(modules: Sequence[Any]) -> int:
    """Bytes of the parameters of these modules."""
    return sum(each.numel() * each.element_size() for module in modules for each in module.parameters())


def _silent(out: Any, index: int) -> Any:
    """Attention without heads: the output projection's bias at every position."""
    with onloaded(out):
        return _modules()[0](out.bias, index == 0)


def _dropped(loaded: Loaded, layer: Any, index: int) -> Any:
    """What stays of a layer that is not run."""
    family = loaded.family
    norms = family.norms if family.norms_come_behind(loaded.model) else ()
    out = attrgetter(family.attention.out)(layer)
    with onloaded(out):
        after = getattr(layer, family.norms_after[0]) if family.norms_after[0] else None
        bias = out.bias if out.bias is None else out.bias * loaded.scales.residual
        kept = [getattr(layer, name) for name in norms]
        return _modules()[2](bias, after, kept, index == 0, family.is_adapted)


@once
def _modules() -> tuple[Any, Any, Any, Any]:
    import torch

    class Silent(torch.nn.Module):
        def __init__(self, bias: Tensor, is_first: bool) -> None:
            super().__init__()
            self.bias, self.is_first = bias, is_first

        def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, None]:
            if self.is_first:
                count_tokens(hidden_states, (*args, *kwargs.values()))
            nothing = torch.zeros_like(hidden_states)
            return (nothing if self.bias is None else nothing + self.bias.to(nothing.dtype)), None

    class Nothing(torch.nn.Module):
        def forward(self, hidden_states: Tensor) -> Tensor:
            return torch.zeros_like(hidden_states)

    class Dropped(torch.nn.Module):
        is_dropped = True  # for who looks for the parts of a layer

        def __init__(
            self, bias: Tensor | None, after: Any, norms: Sequence[Any], is_first: bool, gives_tuple: bool
        ) -> None:
            super().__init__()
            self.bias, self.after, self.is_first = bias, None if bias is None else after, is_first
            self.norms, self.gives_tuple = torch.nn.ModuleList(norms), gives_tuple

        def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor | tuple[Tensor, None]:
            if self.is_first:
                count_tokens(hidden_states, (*args, *kwargs.values()))
            if self.bias is not None:
                bias = self.bias.to(hidden_states)
                hidden_states = hidden_states + (bias if self.after is None else self.after(bias))
            for norm in self.norms:
                hidden_states = norm(hidden_states)
            return (hidden_states, None) if self.gives_tuple else hidden_states

    class Resliced(torch.nn.Module):
        """A slice that is made in each pass; what it registers is its size alone."""

        def __init__(self, linear: Any, **which: Any) -> None:
            super().__init__()
            self.whole, self.which = (linear,), which  # a tuple: no module of its own
            self.size = _slice(linear, **which, is_empty=True)

        def forward(self, x: Tensor) -> Tensor:
            with onloaded(*self.whole):
                return _slice(*self.whole, **self.which)(x)

    return Silent, Nothing, Dropped, Resliced


@contextmanager
def last_layer_at(loaded: Loaded, places: Sequence[tuple[int, int]], length: int) -> Iterator[Any]:
    """Context in which what follows the heads in the last layer is computed at these (row, position) alone and gives 0
    elsewhere; rows have `length` positions. Nothing behind the heads looks across positions, and in a model of few
    layers that is much of the work. Other hooks on those modules, set before or meanwhile, see the places only:
    (place, ...) in the order given.
    """
    import torch

    at = torch.tensor([row * length + position for row, position in places])
    family, hooks = loaded.family, ExitStack()
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

        hooks.enter_context(first.register_forward_pre_hook(pick, prepend=True))
        hooks.enter_context(last.register_forward_hook(spread))

    with hooks:
        parent, _, name = family.attention.out.rpartition(".")
        if out := getattr(attrgetter(parent)(layer), name, None):  # a layer without heads has none
            only_there(out, out)
        ffn_out = attrgetter(family.ffn_out)(layer)
        only_there(attrgetter(family.ffn_in)(layer) if family.ffn_in else ffn_out, ffn_out)
        yield

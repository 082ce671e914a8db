"""Forward passes over rows of different lengths, without padding: all rows of a pass are concatenated, and everything
but attention is computed for their tokens only. Attention is computed by groups of rows of similar length, padded as by
`engine.questions.encoding.batches`, so that no number depends on which groups share a pass.

However, LLM.int8() finds outlier columns among everything in a pass, including padding. With bitsandbytes' layers, each
group therefore has a separate, padded pass, as when the stored results were computed. Other kernels have other keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache as once
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from engine.architecture.families.definition import FULL, SLIDING
from engine.architecture.family import windows_of
from engine.architecture.transformers_internals import (
    attention_named,
    capped_attention,
    keys_and_values,
    sdpa_attention,
)
from engine.kernels.cpu_kernels import FP32, OWN
from engine.models.loading import Loaded
from engine.models.slicing import last_layer_at
from engine.questions.encoding import Row, batches, joined

if TYPE_CHECKING:
    from torch import Tensor

Place = tuple[int, int]  # row, position
ATTENTION = "headroom_end_to_end"  # the name under which `_attention` is registered in transformers


@dataclass(frozen=True)
class Prefix:
    """The first `n` tokens of all rows: keys and values (1, H, n, d_head) of each layer that has heads."""

    n: int
    layers: dict[int, tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class _Group:
    """Rows of one padded attention. `padded` (B, T): each token's position in the pass, arbitrary for padding; `real`
    (n,): which of the B * T are tokens, in the pass's order, None without padding; `mask` (B, 1, T, n_prefix + T);
    `windowed`: the same of layers with a window, None if no row is longer."""

    rows: Sequence[Row]
    n_prefix: int
    start: int
    padded: Tensor
    real: Tensor | None
    mask: Tensor | None
    windowed: Tensor | None

    @cached_property
    def keys(self) -> Tensor:
        """Returns `_key_positions` of the rows, which only models with ALiBi read."""
        return _key_positions(self.rows, self.n_prefix).to(self.padded.device)


@dataclass(frozen=True)
class _Layout:
    groups: tuple[_Group, ...]
    prefix: Prefix | None
    in_fp32: bool
    windows: tuple[int | None, ...]  # by layer; empty if none has a window


_layout: ContextVar[_Layout] = ContextVar("layout")  # some models do not pass on to attention what they are given


def passes(loaded: Loaded, rows: Sequence[Row]) -> list[list[list[Row]]]:
    """Returns the groups of rows, in order, of each forward pass."""
    groups = batches(rows)
    return [[group] for group in groups] if _are_separate(loaded) else joined(groups)


def _padding_counts(loaded: Loaded) -> bool:
    """Whether a pass is padded; models whose attention was adapted take no masks of their own, so theirs never are."""
    return _are_separate(loaded) and not loaded.family.is_adapted


def _are_separate(loaded: Loaded) -> bool:
    return loaded.spec.precision == "int8" and loaded.spec.int8_threshold > 0 and loaded.products.int8 == OWN


def compute_prefix(loaded: Loaded, tokens: Sequence[int]) -> Prefix:
    """Computes, in a separate pass, the Prefix of rows that begin with these tokens."""
    import torch
    from transformers import DynamicCache

    inputs = torch.tensor([tokens], device=loaded.model.get_input_embeddings().weight.device)
    kept = DynamicCache()  # a model's own would drop what is outside of a window
    with torch.inference_mode():
        cache = loaded.model.base_model(input_ids=inputs, use_cache=True, past_key_values=kept).past_key_values
    return Prefix(len(tokens), keys_and_values(cache))


def hidden_states(loaded: Loaded, groups: Sequence[Sequence[Row]], prefix: Prefix | None = None) -> Tensor:
    """Returns (place, d_model): the unembedding's input at each of `read_places` of all rows in order, from one forward
    pass over the tokens after the `prefix`."""
    import torch

    with torch.inference_mode():
        return _hidden_of_groups(loaded, groups, prefix)


def tokens_computed(loaded: Loaded, rows: Sequence[Row]) -> list[int]:
    """Returns how many tokens `gradient_pass` computes for each row, including padding if it is computed."""
    longest = max(len(row.tokens) for row in rows)
    return [longest if _padding_counts(loaded) else len(row.tokens) for row in rows]


def gradient_pass(loaded: Loaded, rows: Sequence[Row]) -> Tensor:
    """Returns the `hidden_states` of these rows, longest first, with gradients."""
    groups = [rows] if _are_separate(loaded) else batches(rows)
    return _hidden_of_groups(loaded, groups, None)


def _hidden_of_groups(loaded: Loaded, groups: Sequence[Sequence[Row]], prefix: Prefix | None) -> Tensor:
    rows = [row for group in groups for row in group]
    return (_padded if _padding_counts(loaded) else _end_to_end)(loaded, groups, read_places(rows), prefix)


def read_places(rows: Sequence[Row]) -> list[Place]:
    """Returns the (row, position) of all positions that are read."""
    return sorted({(index, position) for index, row in enumerate(rows) for _, position, _ in row.read})


def token_numbers(loaded: Loaded, rows: Sequence[Row], places: Sequence[Place]) -> list[int]:
    """Returns the number of each place among all tokens that a pass over these rows computes, including padding."""
    if _padding_counts(loaded):
        longest = max(len(row.tokens) for row in rows)
        return [row * longest + position for row, position in places]
    starts = list(accumulate((len(row.tokens) for row in rows), initial=0))
    return [starts[row] + position for row, position in places]


def padded_inputs(loaded: Loaded, rows: Sequence[Row], n_prefix: int = 0) -> dict[str, Any]:
    """Returns `input_ids`, `position_ids` (B, T), `attention_mask` (B, 1, T, n_prefix + T), two of them by type of
    layer if only some have a window, or None for one pass, padded right; the prefix before all rows is visible to every
    token."""
    import torch

    dtype, device = loaded.model.dtype, loaded.model.get_input_embeddings().weight.device
    length = max(len(row.tokens) for row in rows)
    ids, positions = (
        torch.tensor([[*part, *[0] * (length - len(part))] for part in parts], device=device)
        for parts in ([row.tokens for row in rows], [row.positions for row in rows])
    )
    mask: Any = _mask(rows, dtype, device, n_prefix)
    windows = windows_of(loaded.identity.config)
    if (window := _window_within(windows, rows)) is not None:
        mask = _mask(rows, dtype, device, n_prefix, window)
        if None in windows:
            mask = {FULL: _mask(rows, dtype, device, n_prefix, _longest(rows)), SLIDING: mask}
    return {"input_ids": ids, "position_ids": positions, "attention_mask": mask}


def _padded(loaded: Loaded, groups: Sequence[Sequence[Row]], places: Sequence[Place], prefix: Prefix | None) -> Tensor:
    """Runs the pass over one group."""
    from transformers import DynamicCache

    (rows,), model, before = groups, loaded.model, None
    inputs = padded_inputs(loaded, rows, 0 if prefix is None else prefix.n)
    if prefix is not None:
        before = DynamicCache()
        for layer, parts in prefix.layers.items():
            keys, values = (each.expand(len(rows), -1, -1, -1) for each in parts)
            before.update(keys, values, layer)
    with last_layer_at(loaded, places, inputs["input_ids"].shape[1]):
        found = model.base_model(**inputs, past_key_values=before, use_cache=before is not None).last_hidden_state
    return found[[row for row, _ in places], [position for _, position in places]]


def _end_to_end(
    loaded: Loaded, groups: Sequence[Sequence[Row]], places: Sequence[Place], prefix: Prefix | None
) -> Tensor:
    """Runs the pass over any groups, without padding."""
    import torch

    model, rows = loaded.model, [row for group in groups for row in group]
    device = model.get_input_embeddings().weight.device
    read = token_numbers(loaded, rows, places)
    ids = torch.tensor([[token for row in rows for token in row.tokens]], device=device)
    positions = torch.tensor([[position for row in rows for position in row.positions]], device=device)
    in_fp32 = torch.is_grad_enabled() and loaded.products.attention == FP32
    dtype = torch.float32 if in_fp32 else model.dtype
    windows = windows_of(loaded.identity.config)
    grouped = _grouped(groups, windows, dtype, device, 0 if prefix is None else prefix.n)
    layout = _Layout(tuple(grouped), prefix, in_fp32, windows)
    _register()
    before = _layout.set(layout)
    try:
        with attention_named(model, ATTENTION), last_layer_at(loaded, [(0, at) for at in read], ids.shape[1]):
            return model.base_model(input_ids=ids, position_ids=positions, use_cache=False).last_hidden_state[0, read]
    finally:
        _layout.reset(before)


def _longest(rows: Sequence[Row]) -> int:
    """Returns how many tokens the last one of the longest text sees, itself included."""
    return 1 + max(position for row in rows for position in row.positions)


def _window_within(windows: Sequence[int | None], rows: Sequence[Row]) -> int | None:
    """Returns the window that layers have if a row is longer, else None."""
    window = next(filter(None, windows), None)
    return window if window is not None and window < _longest(rows) else None


def _mask(rows: Sequence[Row], dtype: Any, device: Any, n_prefix: int, window: int | None = None) -> Tensor | None:
    """Returns (B, 1, T, n_prefix + T), added to the attention of rows padded right, whose tokens see at most `window`
    tokens; None if it is not given and causal attention is enough."""
    import torch

    length = max(len(row.tokens) for row in rows)
    branch = torch.tensor([[*row.branch, *[-1] * (length - len(row.branch))] for row in rows])  # -1 = padding
    if not n_prefix and not bool((branch > 0).any()) and window is None:
        return None  # padding comes last, so causal attention hides it
    earlier = torch.ones(length, length, dtype=torch.bool).tril()
    visible = (branch[:, None, :] == 0) | (branch[:, None, :] == branch[:, :, None])  # (B, T destination, T source)
    hidden = ~(earlier & visible)[:, None]
    hidden = torch.cat([torch.zeros(*hidden.shape[:3], n_prefix, dtype=torch.bool), hidden], dim=-1)
    if window is not None:
        there = _key_positions(rows, n_prefix)
        hidden |= (there[:, n_prefix:, None] - there[:, None, :] >= window)[:, None]
    # finfo.min and not -inf: a row that sees nothing would be nan
    return torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, torch.finfo(dtype).min).to(device)


def _key_positions(rows: Sequence[Row], n_prefix: int) -> Tensor:
    """Returns (B, n_prefix + T): the position in its text of each key of rows padded right."""
    import torch

    length = max(len(row.tokens) for row in rows)
    here = torch.tensor([[*row.positions, *[0] * (length - len(row.positions))] for row in rows])
    return torch.cat([torch.arange(n_prefix).expand(len(rows), -1), here], dim=-1)


def _grouped(
    groups: Sequence[Sequence[Row]], windows: Sequence[int | None], dtype: Any, device: Any, n_prefix: int
) -> Iterator[_Group]:
    import torch

    start = 0
    for rows in groups:
        lengths = torch.tensor([len(row.tokens) for row in rows])
        steps = torch.arange(int(lengths.max()))
        is_real = steps < lengths[:, None]  # (B, T)
        begins = start + lengths.cumsum(0) - lengths
        padded = (begins[:, None] + steps).where(is_real, begins[:, None])
        real = None if bool(is_real.all()) else is_real.flatten().nonzero()[:, 0].to(device)
        window = _window_within(windows, rows)
        windowed = None if window is None else _mask(rows, dtype, device, n_prefix, window)
        mask = _mask(rows, dtype, device, n_prefix)
        yield _Group(rows, n_prefix, start, padded.to(device), real, mask, windowed)
        start += int(lengths.sum())


@once
def _register() -> None:
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, _attention)


def _attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **options: Any
) -> tuple[Tensor, None]:
    """Returns ((1, n, H, d_head), None), as transformers expects of an attention function, for `query` (1, H, n,
    d_head), `key` and `value`; group by group, by transformers' function for torch's scaled_dot_product_attention, or
    its plain one for models that cap scores. `slopes` (H,): what is added to scores is these times a key's position."""
    import torch

    layout, slopes = _layout.get(), options.pop("slopes", None)
    is_capped, prefix, found = options.get("softcap") is not None, layout.prefix, []
    attend = capped_attention() if is_capped else sdpa_attention()
    for group in layout.groups:
        q, k, v = (_as_rows(each, group) for each in (query, key, value))
        if layout.in_fp32:
            q, k, v = q.float(), k.float(), v.float()
        if prefix is not None:
            k, v = (torch.cat([before.expand(len(each), -1, -1, -1), each], dim=2)
                    for before, each in zip(prefix.layers[module.layer_idx], (k, v), strict=True))  # fmt: skip
        has_window = group.windowed is not None and layout.windows[module.layer_idx] is not None
        mask = group.windowed if has_window else group.mask
        mask = None if mask is None else mask.to(q)
        if mask is None and (is_capped or slopes is not None):
            hidden = torch.full((q.shape[2], q.shape[2]), torch.finfo(q.dtype).min, dtype=q.dtype, device=q.device)
            mask = hidden.triu(1)
        if mask is not None and slopes is not None:  # ALiBi, rounded as transformers does
            mask = mask + (slopes[:, None, None] * group.keys.to(slopes.device)[:, None, None]).to(mask.dtype)
        z = attend(module, q, k, v, mask, **options)[0].flatten(0, 1)  # (B * T, H, d_head)
        found.append(z if group.real is None else z.index_select(0, group.real.to(z.device)))
    return (found[0] if len(found) == 1 else torch.cat(found))[None].to(query.dtype), None


def _as_rows(value: Tensor, group: _Group) -> Tensor:
    """Converts (1, H, n, d_head) to (B, H, T, d_head)."""
    by_token, (n_rows, length) = value[0].transpose(0, 1), group.padded.shape
    if group.real is None:
        rows = by_token[group.start : group.start + n_rows * length]
    else:
        rows = by_token.index_select(0, group.padded.flatten().to(value.device))
    return rows.unflatten(0, (n_rows, length)).transpose(1, 2)

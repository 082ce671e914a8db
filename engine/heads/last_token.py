"""What a model predicts after a prompt with the output of one head replaced, or with the residual stream changed at one
layer: exact, for all heads or layers at the cost of about one more pass.

One full pass keeps the prompt's keys and values, and each layer's input (`read_prompt`). Each head is then a row of its
last tokens alone: it joins the others in its head's layer, and attends to the prompt's keys and values and its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache as once
from typing import TYPE_CHECKING, Any

from engine.accuracy.passes import compute_prefix
from engine.accuracy.restarts import kept, starting_at
from engine.accuracy.scoring import hidden_of
from engine.architecture.family import windows_of
from engine.architecture.transformers_internals import attention_named
from engine.errors import HeadroomError
from engine.models.loading import Loaded
from engine.models.masks import refuse_faulty

if TYPE_CHECKING:
    from torch import Tensor

ROWS = 512  # of a pass: bounds memory
ATTENTION = "headroom_last_token"  # the name under which `_attend` is registered in transformers
# by layer, keys and values (H, T, d_head), and how many tokens it attends to, None for all
_before: ContextVar[Mapping[int, tuple[Tensor, Tensor, int | None]]] = ContextVar("before")


def head_outputs(loaded: Loaded, ids: Sequence[int], back: int = 1) -> Tensor:
    """Returns (L, H, d_head): z of every head at the `back`-th last token of a prompt (1 = the last)."""
    import torch

    shape, found = loaded.identity.shape, {}
    with torch.inference_mode(), ExitStack() as hooks:
        for layer, (out, _) in enumerate(loaded.family.layer_modules(loaded.model)):
            hooks.enter_context(
                out.register_forward_pre_hook(lambda _, args, at=layer: found.update({at: args[0][0, -back]}))
            )
        hidden_of(loaded, [list(ids)])
        return torch.stack([found[layer].float().cpu() for layer in found]).view(-1, shape.n_heads, shape.d_head)


def hidden_with(loaded: Loaded, ids: Sequence[int], instead: Tensor, back: int = 1) -> Tensor:
    """Returns (1 + L * H, d_model): the unembedding's input at the last token of a prompt, as it is and then with the z
    of each head in turn replaced by `instead` (L, H, d_head) at the `back`-th last token. Call inside `pruned` for a
    pruned model. HeadroomError: the model mixes the keys of neighboring tokens."""
    import torch

    n_layers, n_heads = instead.shape[:2]
    with torch.inference_mode():
        prompt, outs = _read_for_heads(loaded, ids), loaded.family.layer_modules(loaded.model)
        rows = [(0, -1), *((layer, head) for layer in range(n_layers) for head in range(n_heads))]
        parts = [rows[start : start + ROWS] for start in range(0, len(rows), ROWS)]
        found = []
        for part in parts:
            heads = {layer: [head for at, head in part if at == layer] for layer in {at for at, _ in part}}
            joining = {
                layer: prompt.inputs[layer][:, -back:].expand(len(each), -1, -1) for layer, each in heads.items()
            }
            with ExitStack() as hooks:
                for layer, each in heads.items():
                    hooks.enter_context(_replaced(outs[layer][0], each, instead[layer]))
                found.append(hidden_after(loaded, ids, joining, prompt))
        return torch.cat(found)


def hidden_changed(loaded: Loaded, ids: Sequence[int], change: Callable[[int, Tensor], Tensor]) -> Tensor:
    """Returns (1 + L, d_model): the unembedding's input at the last token of a prompt, as it is and then with the input
    (d_model,) of each layer in turn as `change` makes it of the layer and itself. As for `hidden_with`."""
    import torch

    with torch.inference_mode():
        prompt = _read_for_heads(loaded, ids)
        last = {layer: each[:, -1:] for layer, each in prompt.inputs.items()}
        changed = {layer: change(layer, each[0, 0]).to(each)[None, None] for layer, each in last.items()}
        joining = {layer: torch.cat([last[0], each]) if layer == 0 else each for layer, each in changed.items()}
        return hidden_after(loaded, ids, joining, prompt)


@dataclass(frozen=True)
class PromptRead:
    """A prompt as a model reads it, by layer.

    inputs: each layer's, (1, n, d_model)
    keys_and_values: (H, n, d_head) each
    """

    inputs: dict[int, Tensor]
    keys_and_values: dict[int, tuple[Tensor, Tensor]]


def read_prompt(loaded: Loaded, ids: Sequence[int]) -> PromptRead:
    """Returns a prompt as read in one pass."""
    with kept(loaded, {*range(loaded.identity.shape.n_layers)}) as inputs:
        prompt = compute_prefix(loaded, ids)
    return PromptRead(inputs, {layer: (keys[0], values[0]) for layer, (keys, values) in prompt.layers.items()})


def smears(loaded: Loaded) -> bool:
    """Returns whether the model mixes the keys of neighboring tokens, so that no pass may begin after a prompt's first
    token."""
    return any(getattr(each, "smear", None) is not None for each in loaded.family.attention_modules(loaded.model))


def _read_for_heads(loaded: Loaded, ids: Sequence[int]) -> PromptRead:
    refuse_faulty(loaded)
    if smears(loaded):
        raise HeadroomError(f"{loaded.identity.name} has smeared keys, so nothing can be replaced at the last token "
                            "alone; choose a model without")  # fmt: skip
    return read_prompt(loaded, ids)


def hidden_after(loaded: Loaded, ids: Sequence[int], joining: Mapping[int, Tensor], prompt: PromptRead) -> Tensor:
    """Returns (row, d_model), the unembedding's input at the last token, of a pass over rows of the prompt's last n
    tokens, of which some join (row, n, d_model) at each layer, the lowest first."""
    import torch

    model, family, n, first = loaded.model, loaded.family, joining[min(joining)].shape[1], min(joining)
    device = model.get_input_embeddings().weight.device
    tokens = torch.tensor([ids[-n:]], device=device)
    positions = torch.arange(len(ids) - n, len(ids), device=device)[None]
    windows = windows_of(loaded.identity.config) or (None,) * loaded.identity.shape.n_layers
    before = {layer: (keys[:, :-n], values[:, :-n], windows[layer])
              for layer, (keys, values) in prompt.keys_and_values.items()}  # fmt: skip
    modules = family.layer_list(model)
    _register()
    with ExitStack() as ending:
        ending.callback(_before.reset, _before.set(before))
        ending.enter_context(attention_named(model, ATTENTION))
        for layer, rows in sorted(joining.items()):
            ending.enter_context(starting_at(loaded, first, rows) if layer == first else _joined(modules[layer], rows))
        return model.base_model(input_ids=tokens, position_ids=positions, use_cache=False).last_hidden_state[:, -1]


def _joined(layer: Any, more: Tensor) -> Any:
    """Returns the hook, to be removed, after which a layer reads `more` rows in addition."""
    import torch

    def join(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        held = args[0] if args else kwargs["hidden_states"]
        rows = torch.cat([held, more.to(held.device)])
        return ((rows, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": rows})

    return layer.register_forward_pre_hook(join, with_kwargs=True)


def _replaced(out: Any, heads: Sequence[int], instead: Tensor) -> Any:
    """Returns the hook, to be removed, by which the last rows have the z of one of these heads each replaced by its row
    of `instead` (H, d_head), at their first token."""
    import torch

    which = torch.tensor([head for head in heads if head >= 0], dtype=torch.long)
    rows = torch.arange(-len(which), 0)  # only the first row of all is replaced nowhere

    def replace(module: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        z = args[0].clone()
        z.unflatten(-1, instead.shape)[rows, 0, which] = instead[which].to(z)  # (row, n, H, d_head), of the same memory
        return (z, *args[1:])

    return out.register_forward_pre_hook(replace)


@once
def _register() -> None:
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, _attend)


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    scaling: float,
    softcap: float | None = None,
    slopes: Tensor | None = None,
    **ignored: Any,
) -> tuple[Tensor, None]:
    """Returns (z (row, n, H, d_head), None), as transformers expects of an attention function: the queries of all rows
    read the prompt's keys in one product."""
    import torch

    keys, values, window = _before.get()[module.layer_idx]
    query, n = query.unflatten(1, (key.shape[1], -1)), query.shape[2]  # (row, key head, heads that share it, n, d_head)
    there, here = torch.einsum("rkgnd,ktd->rkgnt", query, keys), torch.einsum("rkgnd,rkmd->rkgnm", query, key)
    scores = torch.cat([there, here], -1).float() * scaling
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    source = torch.arange(scores.shape[-1], device=scores.device)
    if slopes is not None:  # ALiBi: (key head, heads that share it, 1, 1)
        scores += slopes.to(scores).unflatten(0, (key.shape[1], -1))[..., None, None] * source
    distance = source[-n:, None] - source
    scores.masked_fill_((distance < 0) | (distance >= (window or len(source))), -torch.inf)
    pattern = scores.softmax(-1).to(value)
    z = torch.einsum("rkgnt,ktd->rkgnd", pattern[..., :-n], values)
    z = z + torch.einsum("rkgnm,rkmd->rkgnd", pattern[..., -n:], value)
    return z.flatten(1, 2).transpose(1, 2), None

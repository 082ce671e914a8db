"""Forms of an export: the config, and the tensors, made one by one from those of the base model's files.

`masked`: the stock architecture. The attention output projection has zeros for pruned heads (its bias stays), and the
last matrix of a pruned FFN and its bias are zero: the same as Headroom's mask, bit for bit.
`small`: pruned components are not stored, except their output biases. Layers are uneven, as expressed by transformers'
`per_layer_config`, and a modeling file that builds them is included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.architecture.families.definition import Family
from engine.architecture.family import family_of, is_tied
from engine.architecture.layer_tensors import CONSTANT, head_numbers, is_attention, is_ffn, key_heads, place_of
from engine.architecture.model_config import UNEMBEDDINGS, n_parameters
from engine.checkpoints.compact_checkpoint import PRUNED, stock_config
from engine.checkpoints.identity import Identity
from engine.checkpoints.tensors import LazyTensor, finite
from engine.checkpoints.validation import refuse_unless_loaded
from engine.checkpoints.weight_files import read_json
from engine.errors import UsageError
from engine.export.folders import PlannedTensor
from engine.models.masks import Mask

if TYPE_CHECKING:
    from torch import Tensor

FORMS = ("masked", "small", "even")
MODELING = "modeling_pruned"  # the file included in the form `small`


@dataclass(frozen=True)
class ExportForm:
    """A form of one model under one mask: `config` is its config.json, `files` other files to write (text by name);
    `is_tied`: the unembedding is the embedding."""

    config: Mapping[str, Any]
    tensors: tuple[PlannedTensor, ...]
    is_tied: bool
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def n_params(self) -> int:
        return n_parameters([(tensor.name, tensor.shape) for tensor in self.tensors], self.is_tied)

    @property
    def n_bytes(self) -> int:
        return sum(tensor.n_bytes for tensor in self.tensors)


def masked(identity: Identity, stored: Mapping[str, LazyTensor], mask: Mask) -> ExportForm:
    """Returns the plan of the form `masked`: all tensors, some with zeros."""
    family, shape = family_of(identity.config), identity.shape
    planned = []
    for name, tensor in stored.items():
        change: Callable[[Tensor], Tensor] | None = None
        place = place_of(name)
        if place is not None:
            module, _, kind = place.rest.rpartition(".")
            pruned = [head for head, kept in enumerate(mask.heads[place.layer]) if not kept]
            if module == family.attention.out and kind == "weight" and pruned:
                found = head_numbers(family, shape, place.rest, pruned)
                assert found is not None
                change = partial(_zeroed_at, found[0], found[1])
            elif module == family.ffn_write and not mask.ffns[place.layer]:
                change = _zeroed
        planned.append(PlannedTensor(name, tensor.shape, tensor.dtype, partial(made, tensor, change)))
    return ExportForm(identity.config, tuple(planned), is_tied(identity.config))


def small(identity: Identity, stored: Mapping[str, LazyTensor], mask: Mask) -> ExportForm:
    """Returns the plan of the form `small`. UsageError: heads cannot be cut out."""
    family, shape, stock = family_of(identity.config), identity.shape, identity.config
    if not family.is_verified:
        raise UsageError(f"{identity.name} is of type {family.name}, whose code --form small does not know; use --form "
                         "masked")  # fmt: skip
    refuse_some_heads(family, mask)
    kept = [[head for head, keeps in enumerate(row) if keeps] for row in mask.heads]
    layers: dict[str, dict[str, Any]] = {}
    for layer, heads in enumerate(kept):
        own: dict[str, Any] = {}
        if len(heads) < shape.n_heads:
            own["num_attention_heads"] = len(heads) or int(
                layer == 0
            )  # one of zeros in layer 0, where transformers counts tokens
        n = len(key_heads(shape, heads))
        if n < shape.n_key_value_heads < shape.n_heads and family.cuts_heads:
            own["num_key_value_heads"] = n or int(layer == 0)
        if skip := [name for name, gone in (("attention", not heads), ("mlp", not mask.ffns[layer])) if gone]:
            own["skip"] = skip
        if own:
            layers[str(layer)] = own
    norms_before = not family.can_norm_behind or stock.get("do_layer_norm_before") is not False
    norms = {name: at for at, name in enumerate(family.norms_before) if norms_before and name}
    planned = []
    for name, tensor in stored.items():
        size, change, place = list(tensor.shape), None, place_of(name)
        if place is not None:
            module, _, kind = place.rest.rpartition(".")
            heads, keeps_ffn = kept[place.layer], mask.ffns[place.layer]
            gone = not heads if is_attention(family, place.rest) or norms.get(module) == 0 else (
                not keeps_ffn and (is_ffn(family, place.rest) or norms.get(module) == 1))  # fmt: skip
            if gone and kind == "bias" and module == family.attention.out:
                name = f"{place.front}{module.rpartition('.')[0]}.{CONSTANT}"
            elif gone and kind == "bias" and module == family.ffn_write:
                name = f"{place.front}{family.ffn_out}.{CONSTANT}"
                change = _zeroed  # it adds exactly 0
            elif gone:
                continue
            elif len(heads) < shape.n_heads and (found := head_numbers(family, shape, place.rest, heads)):
                size[found[0]] = len(found[1])
                change = partial(taken_at, *found)
        elif name in UNEMBEDDINGS:  # GPT-NeoX's files may use an old name, known only for that type
            name = UNEMBEDDINGS[0]
        planned.append(PlannedTensor(name, tuple(size), tensor.dtype, partial(made, tensor, change)))
    kind = stock["model_type"]
    config = {**stock, "model_type": f"{PRUNED}{kind}", "architectures": ["PrunedForCausalLM"],
              "auto_map": {"AutoConfig": f"{MODELING}.PrunedConfig",
                           "AutoModelForCausalLM": f"{MODELING}.PrunedForCausalLM"},
              "per_layer_config": layers, "kept_heads": kept, "head_dim": shape.d_head}  # fmt: skip
    code = Path(__file__).with_name(f"{MODELING}.py").read_text(encoding="utf-8")
    parts = "".join(f"    {name}={value!r},\n" for name, value in _parts(stock).items())
    code += f"\n\nPrunedConfig, PrunedForCausalLM = pruned_classes(\n{parts})\n"
    return ExportForm(config, tuple(planned), is_tied(stock), {f"{MODELING}.py": code})


def refuse_some_heads(family: Family, mask: Mask) -> None:
    """Raises UsageError if a layer loses some of its heads and what the others compute depends on those."""
    for layer in [layer for layer, row in enumerate(mask.heads) if any(row) and not all(row)]:
        if not family.cuts_heads:
            raise UsageError(f"{family.name} holds queries, keys, and values of several heads together, and "
                             f"--form small and even cannot cut out a part of layer {layer}; prune all of its heads "
                             f"(L{layer}H*), or use --form masked")  # fmt: skip
        if family.norms_all_heads:
            raise UsageError(f"{family.name} norms the queries of all heads of a layer together, so that no part of "
                             f"them can be cut out of layer {layer}; prune all of its heads (L{layer}H*), or use "
                             "--form masked")  # fmt: skip


def _parts(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a stock model's arguments for `engine.export.modeling_pruned.pruned_classes`."""
    family = family_of(config)
    return {"kind": config["model_type"], "layers": family.layers, "attention": family.attention.module,
            "out": family.attention.out.rpartition(".")[2], "projections": family.attention.qkv, "ffn": family.ffn_out,
            "ffn_begins": family.ffn_in, "norms": family.norms_before}  # fmt: skip


def made(tensor: LazyTensor, change: Callable[[Tensor], Tensor] | None) -> Tensor:
    """Returns the stored tensor, changed. HeadroomError: a value is not a finite number."""
    whole = finite(tensor.name, tensor.read())
    return whole if change is None else change(whole)


def _zeroed_at(axis: int, index: Any, tensor: Tensor) -> Tensor:
    import torch

    return tensor.index_fill(axis, torch.from_numpy(index), 0)


def taken_at(axis: int, index: Any, tensor: Tensor) -> Tensor:
    """Returns the values at these indices along the axis."""
    import torch

    return tensor.index_select(axis, torch.from_numpy(index))


def _zeroed(tensor: Tensor) -> Tensor:
    return tensor.new_zeros(tensor.shape)


def small_model(folder: Path, dtype: Any) -> Any:
    """Returns the model in a folder of the form `small`, built by Headroom's copy of the modeling file."""
    from engine.export.modeling_pruned import pruned_classes

    config = read_json(folder / "config.json", "the export is damaged")
    _, made = pruned_classes(**_parts(stock_config(config, str(folder))))
    model, report = made.from_pretrained(folder, dtype=dtype, local_files_only=True, output_loading_info=True)
    refuse_unless_loaded(str(folder), report)
    return model.eval()

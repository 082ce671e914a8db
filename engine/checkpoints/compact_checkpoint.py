"""Folders of the form `small` that `headroom export` wrote, opened as the stock model that they are of: what is not
stored is zero, and every head lies where it lay in the base model. The code that such a folder holds is never run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.architecture.family import FAMILIES, Family, family_of, known_fields, shape_of
from engine.architecture.layer_tensors import CONSTANT, TensorPlace, head_numbers, is_attention, place_of
from engine.architecture.transformers_internals import model_config
from engine.checkpoints.tensors import LazyTensor, stored_tensors, under_own_names
from engine.checkpoints.weight_files import read_json
from engine.errors import HeadroomError
from engine.shapes import ModelShape

if TYPE_CHECKING:
    from torch import Tensor

PRUNED = "pruned_"  # what the type of such a model begins with


def is_small(config: Mapping[str, Any]) -> bool:
    """Whether a config.json is of such a folder."""
    kind = config.get("model_type")
    return isinstance(kind, str) and kind.startswith(PRUNED) and kind.removeprefix(PRUNED) in FAMILIES


def stock_config(config: Mapping[str, Any], folder: str = "the folder") -> Mapping[str, Any]:
    """The known fields of a config.json; of such a folder, those of the stock model. HeadroomError: the architecture is
    not supported, the weights are quantized, or its description of the layers is inconsistent."""
    if (asked := config.get("quantization_config")) is not None:
        method = asked.get("quant_method", "another") if isinstance(asked, Mapping) else "another"
        raise HeadroomError(
            f"{folder}/config.json asks for {str(method)[:40]!r} quantization; Headroom quantizes plain weights "
            "itself: use the model that it was made from"
        )
    if not is_small(config):
        if "per_layer_config" in config:
            raise HeadroomError(f"{folder} has layers of different sizes (per_layer_config), which Headroom opens only "
                                "where it has written them; use the model that it was made from")  # fmt: skip
        return known_fields(config)
    stock = known_fields({**config, "model_type": str(config["model_type"]).removeprefix(PRUNED)})
    shape = shape_of(stock)
    kept, own = config.get("kept_heads"), config.get("per_layer_config")
    sound = isinstance(own, dict) and isinstance(kept, list) and all(_are_heads(each, shape.n_heads) for each in kept)
    if not (sound and isinstance(kept, list) and len(kept) == shape.n_layers):
        raise HeadroomError(f"{folder}: config.json says in kept_heads {str(kept)[:60]!r}, which are not heads of "
                            f"{shape.n_layers} layers; export the model again")  # fmt: skip
    return stock


@contextmanager
def stock_tensors(folder: Path, is_tied: bool) -> Iterator[dict[str, LazyTensor]]:
    """The tensors of a folder as the stock model has them, readable while the context is open; as `stored_tensors`."""
    config = read_json(folder / "config.json", "the folder is damaged")
    with stored_tensors(folder, is_tied) as in_files:
        stored = under_own_names(in_files, family_of(stock_config(config, str(folder))))
        yield _spread_out(config, stored) if is_small(config) else stored


def _spread_out(config: Mapping[str, Any], tensors: Mapping[str, LazyTensor]) -> dict[str, LazyTensor]:
    """The tensors of the stock model, each made when it is asked for."""
    stock = stock_config(config)
    family, shape, kept = family_of(stock), shape_of(stock), config["kept_heads"]
    due, dtype, front = _layer_shapes(stock, family), next(iter(tensors.values())).dtype, f"{family.layers}."
    spread = {}
    for name, tensor in tensors.items():
        place = place_of(name)
        if place is None:
            spread[name] = tensor
            continue
        front = place.front.removesuffix(f"{place.layer}.")
        if place.rest.endswith(f".{CONSTANT}"):
            module = family.attention.out if is_attention(family, place.rest) else family.ffn_write
            whole = f"{place.front}{module}.bias"
            spread[whole] = LazyTensor(whole, tensor.shape, tensor.dtype, tensor.read)
            continue
        size = due.get(place.rest, tensor.shape)
        if size != tensor.shape:
            read = partial(_spread, tensor, size, family, shape, place, kept[place.layer])
            tensor = LazyTensor(name, size, tensor.dtype, read)
        spread[name] = tensor
    for layer in range(shape.n_layers):
        for rest, size in due.items():
            name = f"{front}{layer}.{rest}"
            spread.setdefault(name, LazyTensor(name, size, dtype, partial(_nothing, name, size, dtype)))
    return spread


def _layer_shapes(config: Mapping[str, Any], family: Family) -> dict[str, tuple[int, ...]]:
    """Name within a layer -> shape, of every tensor that a layer of the stock model holds."""
    import torch
    import transformers

    whole = model_config(config)
    whole.num_hidden_layers = 1
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(whole)
    return {rest: tuple(value.shape) for rest, value in family.layer_list(model)[0].state_dict().items()}


def _are_heads(heads: Any, n_heads: int) -> bool:
    return isinstance(heads, list) and heads == sorted({*heads} & {*range(n_heads)})


def _nothing(name: str, size: tuple[int, ...], dtype: str) -> Tensor:
    """Zeros; a norm whose part is gone scales by 1."""
    import torch

    is_scale = len(size) == 1 and name.endswith("weight")
    return (torch.ones if is_scale else torch.zeros)(size, dtype=getattr(torch, dtype))


def _spread(
    source: LazyTensor,
    size: tuple[int, ...],
    family: Family,
    shape: ModelShape,
    place: TensorPlace,
    kept: Sequence[int],
) -> Tensor:
    import torch

    axis, index = head_numbers(family, shape, place.rest, kept) or (0, [])
    tensor = source.read()
    if tensor.dim() != len(size) or any(n != (len(index) if at == axis else size[at])
                                        for at, n in enumerate(tensor.shape)):  # fmt: skip
        raise HeadroomError(f"{source.name} is {tuple(tensor.shape)}, which is not what config.json says of its layer; "
                            "export the model again")  # fmt: skip
    return tensor.new_zeros(size).index_copy(axis, torch.as_tensor(index), tensor)

"""What a form of export has: its config, and its tensors, made one by one from those of the base model's files.

`masked`: the stock architecture. The attention output projection has zeros where pruned heads come in (its bias stays),
and the last matrix of a pruned FFN is zero, its bias too: what Headroom's mask does, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from engine.export.folders import Planned
from engine.models.architectures import family_of
from engine.models.checkpoints import Identity
from engine.models.headers import TYPES
from engine.models.layer_tensors import head_numbers, place_of
from engine.models.masks import Mask
from engine.models.tensors import Stored, finite

if TYPE_CHECKING:
    from torch import Tensor

FORMS = ("masked", "small", "even")


@dataclass(frozen=True)
class Plan:
    """A form of one model under one mask: `config` is its config.json, `files` what else is to be written (text by
    name), `says` what is to be known of it."""

    config: Mapping[str, Any]
    tensors: tuple[Planned, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    says: tuple[str, ...] = ()

    n_params: int = 0

    @property
    def n_bytes(self) -> int:
        return sum(tensor.n_bytes for tensor in self.tensors)


def masked(identity: Identity, stored: Mapping[str, Stored], mask: Mask) -> Plan:
    """The plan of the form `masked`: every tensor that is there, some with zeros."""
    family, shape = family_of(identity.config), identity.shape
    planned = []
    for name, tensor in stored.items():
        change: Callable[[Tensor], Tensor] | None = None
        place = place_of(name)
        if place is not None:
            module, _, kind = place.rest.rpartition(".")
            pruned = [head for head, kept in enumerate(mask.heads[place.layer]) if not kept]
            if module == family.attention_out and kind == "weight" and pruned:
                found = head_numbers(family, shape, place.rest, pruned)
                assert found is not None
                change = partial(_zeroed_at, found[0], found[1])
            elif module == family.ffn_write and not mask.ffns[place.layer]:
                change = _zeroed
        planned.append(Planned(name, bytes_of(tensor.shape, tensor.dtype), partial(_made, tensor, change)))
    return Plan(identity.config, tuple(planned), n_params=identity.n_params)


def bytes_of(shape: tuple[int, ...], dtype: str) -> int:
    """Bytes of a tensor of that shape and type (torch's name)."""
    n = TYPES[dtype][0]
    for size in shape:
        n *= size
    return n


def _made(tensor: Stored, change: Callable[[Tensor], Tensor] | None) -> Tensor:
    whole = finite(tensor.name, tensor.read())
    return whole if change is None else change(whole)


def _zeroed_at(axis: int, index: Any, tensor: Tensor) -> Tensor:
    import torch

    return tensor.index_fill(axis, torch.from_numpy(index), 0)


def _zeroed(tensor: Tensor) -> Tensor:
    return tensor.new_zeros(tensor.shape)

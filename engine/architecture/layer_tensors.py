"""Which tensor of a checkpoint is what of a layer, and where a head's numbers lie in it: by names alone, for all that
cuts, zeroes or spreads weights without building a model.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.architecture.families import FAMILIES
from engine.architecture.families.definition import Family
from engine.shapes import ModelShape

LISTS = sorted({family.layers.rpartition(".")[2] for family in FAMILIES.values()})  # what files call the layers
IN_LAYER = re.compile(rf"(.*\.)?(?:{'|'.join(LISTS)})\.(\d+)\.(.+)")
CONSTANT = "constant"  # what a part that is gone still adds at every position: its output bias


@dataclass(frozen=True)
class TensorPlace:
    """Tensor `rest` (such as `self_attn.q_proj.weight`) of layer `layer`; `front` is what its name begins with."""

    front: str
    layer: int
    rest: str


def place_of(name: str) -> TensorPlace | None:
    """Where the tensor of that name belongs; None outside of the layers."""
    found = IN_LAYER.fullmatch(name)
    return None if found is None else TensorPlace(name[: found.start(3)], int(found[2]), found[3])


def is_matrix(name: str, shape: Sequence[int]) -> bool:
    """Whether a tensor is a matrix that int8 quantizes: those of layers, and OPT-350m's next to the embedding."""
    return len(shape) == 2 and (place_of(name) is not None or ".project_" in f".{name}")


def is_attention(family: Family, rest: str) -> bool:
    """Whether a tensor belongs to the attention of its layer, its norm aside."""
    return rest.startswith(f"{family.attention.module}.")


def is_ffn(family: Family, rest: str) -> bool:
    """Whether a tensor belongs to the FFN of its layer, its norm aside."""
    return rest.startswith(tuple(f"{module}." for module in (family.ffn_in, family.ffn_out) if module))


def head_numbers(family: Family, shape: ModelShape, rest: str, kept: Sequence[int]) -> tuple[int, np.ndarray] | None:
    """(axis, indices along it) of what these heads take of a tensor, in its own order; None where heads have no part
    of it. A key and value head that several share counts where one of them is kept."""
    module, _, kind = rest.rpartition(".")
    transposed = family.attention.packing == "joined" and kind == "weight"  # GPT-2's Conv1D holds (inputs, outputs)
    if module == family.attention.out:
        return None if kind == "bias" else (0 if transposed else 1, positions(kept, shape.d_head))
    within, _, name = module.rpartition(".")
    if within != family.attention.module or name not in family.attention.qkv:
        return None
    if family.attention.packing == "by head":  # of each key head: queries of the heads that share it, key, value
        sharing, keys = shape.n_heads // shape.n_key_value_heads, key_heads(shape, kept)
        parts = [head + 2 * (head // sharing) for head in kept]
        parts += [(sharing + 2) * key + sharing + which for key in keys for which in (0, 1)]
        return 0, positions(sorted(parts), shape.d_head)
    if family.attention.is_one_matrix:  # all queries, all keys, all values
        width, d_kv = shape.n_heads * shape.d_head, shape.n_key_value_heads * shape.d_head
        queries, keys = positions(kept, shape.d_head), positions(key_heads(shape, kept), shape.d_head)
        return int(transposed), np.concatenate([queries, width + keys, width + d_kv + keys])
    return 0, positions(kept if name == family.attention.qkv[0] else key_heads(shape, kept), shape.d_head)


def key_heads(shape: ModelShape, kept: Sequence[int]) -> list[int]:
    """The key and value heads that these heads read, in order."""
    return sorted({head // (shape.n_heads // shape.n_key_value_heads) for head in kept})


def positions(heads: Sequence[int], width: int) -> np.ndarray:
    """Indices of what these heads have, `width` each, side by side."""
    return (np.array(heads, int)[:, None] * width + np.arange(width)).ravel()

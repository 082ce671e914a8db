"""How many parameters a model has: counted from the tensors in its files, or part by part from its config.json."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.architecture.families import FAMILIES
from engine.architecture.family import family_of, is_tied, smears_keys
from engine.shapes import ModelShape

# masks and angles that older files hold next to the weights; recomputed from the config
BUFFERS = re.compile(r"(.*\.)?((attn|attention)\.(masked_)?bias|rotary_emb\.inv_freq|position_ids|decoder\.version)")
OLD = [family.old_unembedding for family in FAMILIES.values() if family.old_unembedding]
UNEMBEDDINGS = tuple(f"{name}.weight" for name in ("lm_head", *OLD))  # the first is the name that transformers has
TABLES = [(family.token_embedding, family.position_embedding) for family in FAMILIES.values()]
EMBEDDINGS = {"lm_head", *OLD, *(name for names in TABLES for name in names if name)}
SCALE_BYTES = 4  # bitsandbytes keeps the largest absolute weight of each output of a matrix, in fp32


@dataclass(frozen=True)
class Part:
    """A part of a model: its parameters, those of them that int8 stores in one byte, and the outputs of these matrices,
    each of which has a scale."""

    n_params: int = 0
    n_quantised: int = 0
    n_outputs: int = 0

    def n_bytes(self, precision: str) -> int:
        """What it takes in memory in that precision."""
        if precision == "int8":
            return self.n_quantised + 2 * (self.n_params - self.n_quantised) + SCALE_BYTES * self.n_outputs
        return self.n_params * (4 if precision == "fp32" else 2)


@dataclass(frozen=True)
class Parts:
    """A model in the order of its passes: `embeddings` of tokens and positions, each of `n_layers` layers alike, the
    `end` (its norm, and OPT-350m's projection) and the `head`, empty where it is the embedding of tokens."""

    embeddings: Part
    layer: Part
    end: Part
    head: Part
    n_layers: int

    @property
    def n_params(self) -> int:
        return self._sum("n_params")

    @property
    def n_quantised(self) -> int:
        return self._sum("n_quantised")

    def n_bytes(self, precision: str) -> int:
        """What all of it takes in memory in that precision."""
        return self.n_layers * self.layer.n_bytes(precision) + sum(
            part.n_bytes(precision) for part in (self.embeddings, self.end, self.head)
        )

    def _sum(self, name: str) -> int:
        once = sum(getattr(part, name) for part in (self.embeddings, self.end, self.head))
        return once + self.n_layers * getattr(self.layer, name)


def n_parameters(shapes: Iterable[tuple[str, tuple[int, ...]]], tied: bool) -> tuple[int, int]:
    """(parameters, parameters that int8 stores in one byte) of a model that holds tensors of these names and shapes:
    an unembedding that is the embedding counts once, buffers do not."""
    n_params = n_quantised = 0
    for name, shape in shapes:
        if BUFFERS.fullmatch(name) or (tied and name.endswith(UNEMBEDDINGS)):
            continue
        count = 1
        for size in shape:
            count *= size
        n_params += count
        if len(shape) == 2 and not any(part in name for part in EMBEDDINGS):
            n_quantised += count
    return n_params, n_quantised


def n_parameters_of(config: Mapping[str, Any], shape: ModelShape) -> tuple[int, int]:
    """The same from a config.json, before any weights are there."""
    parts = parts_of(config, shape)
    return parts.n_params, parts.n_quantised


def embedding_width(config: Mapping[str, Any], shape: ModelShape) -> int:
    """How wide the embeddings of tokens are: d_model, but in OPT-350m."""
    return config.get("word_embed_proj_dim") or shape.d_model


def parts_of(config: Mapping[str, Any], shape: ModelShape) -> Parts:
    """The parts of the model of a config.json."""
    d, d_mlp, family, width = shape.d_model, shape.d_mlp, family_of(config), embedding_width(config, shape)
    d_kv, d_heads = shape.d_head * shape.n_key_value_heads, shape.d_head * shape.n_heads
    norm = 2 * d if family.has_biases else d
    matrices = 2 * d * (d_heads + d_kv) + (3 if family.is_gated else 2) * d * d_mlp
    qkv, inner = d_heads + 2 * d_kv, d_mlp * (2 if family.is_gated else 1)
    rest = 2 * norm + shape.n_key_value_heads * smears_keys(config)
    if config.get(family.attention_biases, family.has_biases):
        rest += qkv + d
    elif family.has_qkv_biases:
        rest += qkv
    if config.get(family.ffn_biases, family.has_biases):
        rest += inner + d
    tokens = shape.n_vocab * width
    positions = (shape.n_ctx + family.n_extra_positions) * d if family.position_embedding else 0
    projection = width * d if width != d else 0
    ends_in_norm = config.get("do_layer_norm_before") is not False or not family.norms_behind
    return Parts(
        embeddings=Part(tokens + positions + projection, projection, d if projection else 0),
        layer=Part(matrices + rest, matrices, qkv + inner + 2 * d),
        end=Part(projection + norm * ends_in_norm, projection, width if projection else 0),
        head=Part(0 if is_tied(config) else tokens),
        n_layers=shape.n_layers,
    )

"""What a config.json says of a model: its shape, its parts and how many parameters these have, known before any weight
is there; and the sizes in which OPT was published.

OPT's sizes are those of table 1 of Zhang et al. 2205.01068; what it leaves out (the vocabulary, 350m's narrow
embeddings and late norms) is from the published models themselves.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from engine.architecture.families import FAMILIES
from engine.architecture.family import family_of, is_tied, shape_of, smears_keys
from engine.shapes import ModelShape

# masks and angles that older files hold next to the weights; recomputed from the config
BUFFERS = re.compile(r"(.*\.)?((attn|attention)\.(masked_)?bias|rotary_emb\.inv_freq|position_ids|decoder\.version)")
OLD = [family.old_unembedding for family in FAMILIES.values() if family.old_unembedding]
UNEMBEDDINGS = tuple(f"{name}.weight" for name in ("lm_head", *OLD))  # the first is the name that transformers has
SCALE_BYTES = 4  # bitsandbytes keeps the largest absolute weight of each output of a matrix, in fp32
LAYERS_HEADS_WIDTH = {"125m": (12, 12, 768), "350m": (24, 16, 1024), "1.3b": (24, 32, 2048), "2.7b": (32, 32, 2560),
                      "6.7b": (32, 32, 4096), "13b": (40, 40, 5120), "30b": (48, 56, 7168),
                      "66b": (64, 72, 9216)}  # fmt: skip
OF_350M = {"word_embed_proj_dim": 512, "do_layer_norm_before": False}
REPO = "facebook/opt-"


@dataclass(frozen=True)
class PartSize:
    """A part of a model: its parameters, those of them that int8 stores in one byte, and the outputs of these matrices,
    each of which has a scale."""

    n_params: int = 0
    n_quantized: int = 0
    n_outputs: int = 0

    def n_bytes(self, precision: str) -> int:
        """What it takes in memory in that precision."""
        if precision == "int8":
            return self.n_quantized + 2 * (self.n_params - self.n_quantized) + SCALE_BYTES * self.n_outputs
        return self.n_params * (4 if precision == "fp32" else 2)


@dataclass(frozen=True)
class Parts:
    """A model in the order of its passes: `embeddings` of tokens and positions, each of `n_layers` layers alike, the
    `end` (its norm, and OPT-350m's projection) and the `head`, empty where it is the embedding of tokens."""

    embeddings: PartSize
    layer: PartSize
    end: PartSize
    head: PartSize
    n_layers: int

    @property
    def n_params(self) -> int:
        return self.n_layers * self.layer.n_params + sum(part.n_params for part in self.ends)

    def n_bytes(self, precision: str) -> int:
        """What all of it takes in memory in that precision."""
        return self.n_layers * self.layer.n_bytes(precision) + sum(part.n_bytes(precision) for part in self.ends)

    @property
    def ends(self) -> tuple[PartSize, PartSize, PartSize]:
        """All but the layers."""
        return self.embeddings, self.end, self.head


def n_parameters(shapes: Iterable[tuple[str, tuple[int, ...]]], tied: bool) -> int:
    """Parameters of a model that holds tensors of these names and shapes: an unembedding that is the embedding counts
    once, buffers do not."""
    counted = (shape for name, shape in shapes
               if not BUFFERS.fullmatch(name) and not (tied and name.endswith(UNEMBEDDINGS)))  # fmt: skip
    return sum(map(math.prod, counted))


@dataclass(frozen=True)
class ModelConfig:
    """A model's `name` and `config` (as in config.json); `source` says in words where that was found. `largest_bytes`
    are what the largest tensor takes as it is stored, in the type `stored_as`; 0 where that is not known yet."""

    name: str
    config: Mapping[str, Any]
    source: str = ""
    largest_bytes: int = 0
    stored_as: str = ""

    def loading_bytes(self, precision: str) -> int:
        """Bytes that a load in that precision holds for a moment next to the weights: a tensor as it was stored."""
        return 0 if self.stored_as == {"fp32": "float32"}.get(precision, "bfloat16") else self.largest_bytes

    @cached_property
    def shape(self) -> ModelShape:
        return shape_of(self.config)

    @cached_property
    def parts(self) -> Parts:
        config, shape, family = self.config, self.shape, family_of(self.config)
        d, d_mlp, d_kv, d_heads, width = shape.d_model, shape.d_mlp, self.d_key_values, self.d_heads, self.d_embedding
        norm = 2 * d if self._has_biases(family.norm_biases) else d
        matrices = 2 * d * (d_heads + d_kv) + (3 if family.is_gated else 2) * d * d_mlp
        qkv, inner = d_heads + 2 * d_kv, d_mlp * (2 if family.is_gated else 1)
        rest = family.n_layer_norms * norm + shape.n_key_value_heads * smears_keys(config)
        if family.qk_norms:
            rest += d_heads + d_kv if family.norms_all_heads else 2 * shape.d_head
        rest += d * self._has_biases(family.attention_biases)
        rest += qkv * self._has_biases(family.qkv_biases if family.qkv_biases != "" else family.attention_biases)
        rest += (inner + d) * self._has_biases(family.ffn_biases)
        tokens = shape.n_vocab * width
        positions = (shape.n_ctx + family.n_extra_positions) * d if family.position_embedding else 0
        projection = width * d if width != d else 0
        ends_in_norm = config.get("do_layer_norm_before") is not False or not family.can_norm_behind
        return Parts(
            embeddings=PartSize(
                tokens + positions + projection + norm * bool(family.embedding_norm), projection, d if projection else 0
            ),
            layer=PartSize(matrices + rest, matrices, qkv + inner + 2 * d),
            end=PartSize(projection + norm * ends_in_norm, projection, width if projection else 0),
            head=PartSize((0 if is_tied(config) else tokens) + shape.n_vocab * family.has_unembedding_bias),
            n_layers=shape.n_layers,
        )

    def _has_biases(self, said: str | bool) -> bool:
        """Whether there are biases, as a family says it."""
        return said if isinstance(said, bool) else bool(self.config.get(said, family_of(self.config).has_biases))

    @property
    def is_gated(self) -> bool:
        """Whether FFNs have a third matrix, a gate."""
        return family_of(self.config).is_gated

    @property
    def d_heads(self) -> int:
        """Width of all heads of a layer side by side."""
        return self.shape.n_heads * self.shape.d_head

    @property
    def d_key_values(self) -> int:
        """Width of all keys of a layer, and of all values."""
        return self.shape.n_key_value_heads * self.shape.d_head

    @property
    def d_embedding(self) -> int:
        """Width of the embeddings of tokens: d_model, but in OPT-350m, where they are projected to it and back."""
        return self.config.get("word_embed_proj_dim") or self.shape.d_model


def opt_config(size: str) -> Mapping[str, Any]:
    """What config.json says of the shape of OPT in this size, one of LAYERS_HEADS_WIDTH."""
    n_layers, n_heads, width = LAYERS_HEADS_WIDTH[size]
    config = {"model_type": "opt", "vocab_size": 50272, "max_position_embeddings": 2048, "num_hidden_layers": n_layers,
              "num_attention_heads": n_heads, "hidden_size": width, "ffn_dim": 4 * width, "word_embed_proj_dim": width,
              "do_layer_norm_before": True, "enable_bias": True, "tie_word_embeddings": True}  # fmt: skip
    return config | (OF_350M if size == "350m" else {})


def published_config(repo: str) -> Mapping[str, Any] | None:
    """The same of a model of the hub that is one of these; None where it is none."""
    size = repo.removeprefix(REPO)
    return opt_config(size) if repo.startswith(REPO) and size in LAYERS_HEADS_WIDTH else None

"""What a config.json says of a model: its shape and its parts, known before any weight is there."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from engine.architecture.family import family_of, shape_of
from engine.architecture.sizes import Parts, embedding_width, parts_of
from engine.shapes import ModelShape


@dataclass(frozen=True)
class ModelConfig:
    """A model's `name` and `config` (as in config.json); `source` says in words where that was found."""

    name: str
    config: Mapping[str, Any]
    source: str = ""

    @cached_property
    def shape(self) -> ModelShape:
        return shape_of(self.config)

    @cached_property
    def parts(self) -> Parts:
        return parts_of(self.config, self.shape)

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
        """Width of the embeddings of tokens, which may be projected to d_model and back."""
        return embedding_width(self.config, self.shape)

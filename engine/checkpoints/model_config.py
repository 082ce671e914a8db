"""A model's outline, known before any weight is there: its config.json, shape and parts. Asks no network."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from engine.architecture.family import family_of, shape_of
from engine.architecture.opt_sizes import LAYERS_HEADS_WIDTH, REPO, published_config
from engine.architecture.sizes import Parts, embedding_width, parts_of
from engine.checkpoints import hub
from engine.checkpoints.compact_checkpoint import stock_config
from engine.checkpoints.names import ModelName, model_name
from engine.checkpoints.weight_files import read_json
from engine.errors import HeadroomError
from engine.shapes import ModelShape


@dataclass(frozen=True)
class ModelConfig:
    """What a `config` (as in config.json) says of a model; `source` says in words where it was found."""

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


def read_model_config(text: str) -> ModelConfig:
    """The outline of the model that `text` names: a folder (its config.json is enough), `demo`, a run's snapshot, a
    model of the hub that is on this computer, or a published size of OPT that is not.

    HeadroomError: it is another model of the hub and not here, its config.json is damaged or missing, or its
    architecture is not supported.
    """
    name = model_name(text)
    if name.folder is not None or not name.repo:
        outline = _in_folder(name, name.folder or _demo())
    elif (folder := hub.held(name)) is not None:
        outline = _in_folder(name, folder)
    elif (config := published_config(name.repo)) is not None:
        outline = ModelConfig(str(name), config, "its published shape")
    else:
        sizes = ", ".join(LAYERS_HEADS_WIDTH)
        raise HeadroomError(f"{name} is not on this computer, and only of {REPO}{{{sizes}}} is the shape known without "
                            "it; give a folder with its config.json")  # fmt: skip
    shape_of(outline.config)  # says what is wrong with it
    return outline


def _in_folder(name: ModelName, folder: Path) -> ModelConfig:
    config = read_json(folder / "config.json", f"{name} is not a model folder")
    return ModelConfig(str(name), stock_config(config, str(folder)), "its config.json")


def _demo() -> Path:
    from engine.demo import model_folder

    return model_folder()

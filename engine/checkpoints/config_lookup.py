"""The config of a model by name, whether or not its weights are on this computer. Makes no network request."""

from pathlib import Path

from engine.architecture.family import known_fields, shape_of
from engine.architecture.model_config import LAYERS_HEADS_WIDTH, REPO, ModelConfig, published_config
from engine.architecture.transformers_internals import import_models
from engine.checkpoints import hub
from engine.checkpoints.compact_checkpoint import stock_config
from engine.checkpoints.gguf_config import read_gguf_config
from engine.checkpoints.gguf_header import read_header
from engine.checkpoints.names import ModelName, model_name
from engine.checkpoints.weight_files import read_json
from engine.errors import HeadroomError


def read_model_config(text: str) -> ModelConfig:
    """The config of the model that `text` names: a folder (its config.json is enough), a GGUF file, `demo`, a run's
    snapshot, a model of the hub that is on this computer, or a published size of OPT that is not.

    HeadroomError: it is another model of the hub and not here, its config.json is damaged or missing, or its
    architecture is not supported.
    """
    name = model_name(text)
    if name.gguf is not None:
        import_models()
        model = ModelConfig(str(name), known_fields(read_gguf_config(read_header(name.gguf))), "its GGUF file")
    elif name.folder is not None or not name.repo:
        model = _in_folder(name, name.folder or _demo())
    elif (folder := hub.held(name)) is not None:
        model = _in_folder(name, folder)
    elif (config := published_config(name.repo)) is not None:
        model = ModelConfig(str(name), config, "its published shape")
    else:
        sizes = ", ".join(LAYERS_HEADS_WIDTH)
        raise HeadroomError(f"{name} is not on this computer, and only of {REPO}{{{sizes}}} is the shape known without "
                            "it; give a folder with its config.json")  # fmt: skip
    shape_of(model.config)  # reports what is invalid
    return model


def _in_folder(name: ModelName, folder: Path) -> ModelConfig:
    config = read_json(folder / "config.json", f"{name} is not a model folder")
    return ModelConfig(str(name), stock_config(config, str(folder)), "its config.json")


def _demo() -> Path:
    from engine.demo import model_folder

    return model_folder()

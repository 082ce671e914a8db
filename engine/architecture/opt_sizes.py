"""The sizes in which OPT was published, as their config.json has them: table 1 of Zhang et al. 2205.01068, and what it
leaves out (the vocabulary, 350m's narrow embeddings and late norms) from the published models themselves.
"""

from collections.abc import Mapping
from typing import Any

from engine.architecture.family import shape_of
from engine.architecture.sizes import Parts, parts_of

LAYERS_HEADS_WIDTH = {"125m": (12, 12, 768), "350m": (24, 16, 1024), "1.3b": (24, 32, 2048), "2.7b": (32, 32, 2560),
                      "6.7b": (32, 32, 4096), "13b": (40, 40, 5120), "30b": (48, 56, 7168),
                      "66b": (64, 72, 9216)}  # fmt: skip
OF_350M = {"word_embed_proj_dim": 512, "do_layer_norm_before": False}
REPO = "facebook/opt-"


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


def opt_parts(size: str) -> Parts:
    """Its parts."""
    config = opt_config(size)
    return parts_of(config, shape_of(config))

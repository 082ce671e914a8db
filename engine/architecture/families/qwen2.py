"""Qwen2 and Qwen2.5: Llama's shape, with biases of queries, keys and values alone; small ones are tied.

Where `use_sliding_window` is on, which it seldom is, layers from `max_window_layers` on have a window, or those that
`layer_types` lists.
"""

from collections.abc import Mapping
from typing import Any

from engine.architecture.families import mistral
from engine.architecture.families.definition import FULL, SLIDING, ToTry, layer_types, windows_by_type


def _window(config: Mapping[str, Any]) -> Any:
    return config.get("sliding_window", 4096) if config.get("use_sliding_window") else None


def by_layer(config: Mapping[str, Any]) -> Mapping[str, list[Any]]:
    """The fields with an entry for each layer."""
    first = config["num_hidden_layers"] if _window(config) is None else config.get("max_window_layers", 28)
    usual = [SLIDING if layer >= first else FULL for layer in range(config["num_hidden_layers"])]
    return {"layer_types": layer_types(config, usual)}


FAMILY = mistral.FAMILY.derived(
    name="Qwen2",
    models="Qwen2 and Qwen2.5",
    to_try=ToTry("Qwen/Qwen2.5-0.5B", 1.0),
    also={"use_sliding_window", "max_window_layers", "layer_types"},
    defaults={"num_key_value_heads": 32},
    qkv_biases=True,
    by_layer=by_layer,
    windows=windows_by_type(by_layer, _window),
    tiny={"qwen2": {"num_key_value_heads": 2, "tie_word_embeddings": True}},
)

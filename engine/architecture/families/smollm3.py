"""SmolLM3: Llama's shape, with layers that do not turn queries and keys by position, one in four unless a config.json
lists others; in some models these layers have a window, or those that `layer_types` lists,
whatever `use_sliding_window` says.
"""

from collections.abc import Mapping
from typing import Any

from engine.architecture.families import llama
from engine.architecture.families.definition import FULL, SLIDING, ToTry, layer_types, windows_by_type


def by_layer(config: Mapping[str, Any]) -> Mapping[str, list[Any]]:
    """The fields with an entry for each layer: 1 where positions turn queries and keys, else 0; and its type."""
    n_layers, interval = config["num_hidden_layers"], config.get("no_rope_layer_interval", 4)
    usual = [int((layer + 1) % interval != 0) for layer in range(n_layers)]
    turned = (config.get("no_rope_layers") or usual)[:n_layers]
    has_window = config.get("use_sliding_window") and config.get("sliding_window") is not None
    types = [SLIDING if has_window and not turns else FULL for turns in turned]
    return {"no_rope_layers": turned, "layer_types": layer_types(config, types)}


FAMILY = llama.FAMILY.derived(
    name="SmolLM3",
    to_try=ToTry("HuggingFaceTB/SmolLM3-3B-Base", 6.2),
    also={"no_rope_layers", "no_rope_layer_interval", "use_sliding_window", "sliding_window", "layer_types"},
    defaults={"num_key_value_heads": 4},
    is_tied=True,
    by_layer=by_layer,
    windows=windows_by_type(by_layer, lambda config: config.get("sliding_window")),
    tiny={"smollm3": {"num_key_value_heads": 2, "no_rope_layers": [1, 0, 1], "pad_token_id": None}},
)

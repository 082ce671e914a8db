"""SmolLM3: Llama's shape, with layers that do not turn queries and keys by position, one in four unless a config.json
lists others; in some models these layers have a window, which is then the length of the context.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.architecture.families import llama


def window(config: Mapping[str, Any]) -> Any:
    """How many tokens attention reaches in some layers; None: all, in every layer."""
    return config.get("sliding_window") if config.get("use_sliding_window") else None


def by_layer(config: Mapping[str, Any]) -> Mapping[str, list[Any]]:
    """The fields with an entry for each layer: 1 where positions turn queries and keys, else 0."""
    n_layers, interval = config["num_hidden_layers"], config.get("no_rope_layer_interval", 4)
    usual = [int((layer + 1) % interval != 0) for layer in range(n_layers)]
    return {"no_rope_layers": (config.get("no_rope_layers") or usual)[:n_layers]}


FAMILY = replace(
    llama.FAMILY,
    name="SmolLM3",
    fields=llama.FAMILY.fields | {"no_rope_layers", "no_rope_layer_interval", "use_sliding_window", "sliding_window"},
    biased_type="smollm3",
    is_tied=True,
    heads_divide_width=False,
    by_layer=by_layer,
    window=window,
    tiny={"smollm3": {"num_key_value_heads": 2, "no_rope_layers": [1, 0, 1], "pad_token_id": None}},
)

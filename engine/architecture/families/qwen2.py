"""Qwen2 and Qwen2.5: Llama's shape, with biases of queries, keys and values alone; small ones are tied.

Where `use_sliding_window` is on, which it seldom is, the window is the length of the context, as in Mistral.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.architecture.families import mistral


def window(config: Mapping[str, Any]) -> Any:
    """How many tokens attention reaches in some layers; None: all, in every layer."""
    return mistral.window(config) if config.get("use_sliding_window") else None


FAMILY = replace(
    mistral.FAMILY,
    name="Qwen2",
    fields=mistral.FAMILY.fields | {"use_sliding_window", "max_window_layers"},
    qkv_biases=True,
    window=window,
    tiny={"qwen2": {"num_key_value_heads": 2, "tie_word_embeddings": True}},
)

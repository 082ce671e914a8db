"""Mistral: Llama's shape, without biases anywhere, in some versions with a window (v0.1: 4096 tokens).

Within the window attention is full, so the window is the length of the context: texts are cut to it, and the model is
built without it. Biases that hold means (`--fill mean`) turn it into a Llama, which computes the same.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.architecture.families import llama


def window(config: Mapping[str, Any]) -> Any:
    """How many tokens attention reaches; None: all. transformers takes 4096 where a config.json does not say."""
    return config.get("sliding_window", 4096)


FAMILY = replace(
    llama.FAMILY,
    name="Mistral",
    fields=llama.FAMILY.fields - {"attention_bias", "mlp_bias", "pretraining_tp"} | {"sliding_window"},
    attention_biases="",
    ffn_biases="",
    heads_divide_width=False,
    window=window,
    tiny={"mistral": {"hidden_size": 48, "head_dim": 8, "num_key_value_heads": 2, "max_position_embeddings": 512,
                      "sliding_window": 256, "initializer_range": 0.25}},
)  # fmt: skip

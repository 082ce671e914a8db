"""Mistral: Llama's shape, without biases anywhere, in some versions with a window in all layers (v0.1: 4096 tokens).

Biases that hold means (`--fill mean`) turn it into a Llama, which computes the same within the window.
"""

from engine.architecture.families import llama
from engine.architecture.families.definition import ToTry, window_everywhere

FAMILY = llama.FAMILY.derived(
    name="Mistral",
    to_try=ToTry("mistralai/Mistral-7B-v0.1", 14.5),
    without={"attention_bias", "mlp_bias", "pretraining_tp"},
    also={"sliding_window"},
    defaults={"num_key_value_heads": 8},
    windows=window_everywhere(4096),
    tiny={"mistral": {"hidden_size": 48, "head_dim": 8, "num_key_value_heads": 2, "max_position_embeddings": 512,
                      "sliding_window": 256, "initializer_range": 0.25}},
)  # fmt: skip

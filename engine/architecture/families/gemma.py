"""Gemma: Llama's shape, with norms that multiply by one more than their weights, and scaled embeddings.

Biases that hold means are those of attention alone: its FFNs cannot have any.
"""

from engine.architecture.families import llama
from engine.architecture.families.definition import ToTry

FAMILY = llama.FAMILY.derived(
    name="Gemma",
    to_try=ToTry("google/gemma-2b", 5.0),
    norm_offset=1,
    without={"mlp_bias", "pretraining_tp"},
    also={"use_bidirectional_attention"},
    defaults={"head_dim": 256, "num_key_value_heads": 16},
    refused={"use_bidirectional_attention": "so that tokens read later ones; use a model that predicts the next token"},
    is_tied=True,
    tiny={"gemma": {"num_key_value_heads": 1, "head_dim": 8}},
)

"""Gemma: Llama's shape, with norms that multiply by one more than their weights, and scaled embeddings.

Biases that hold means are those of attention alone: its FFNs cannot have any.
"""

from dataclasses import replace

from engine.architecture.families import llama

FAMILY = replace(
    llama.FAMILY,
    name="Gemma",
    models="Gemma",
    to_try="google/gemma-2b",
    gigabytes=5.0,
    norm_offset=1,
    fields=llama.FAMILY.fields - {"mlp_bias", "pretraining_tp"} | {"use_bidirectional_attention"},
    defaults={"head_dim": 256, "num_key_value_heads": 16},
    refused={"use_bidirectional_attention": "so that tokens read later ones; use a model that predicts the next token"},
    is_tied=True,
    ffn_biases="",
    heads_divide_width=False,
    tiny={"gemma": {"num_key_value_heads": 1, "head_dim": 8}},
)

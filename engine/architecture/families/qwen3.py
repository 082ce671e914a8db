"""Qwen3: Llama's shape, with a norm of the queries and of the keys of each head.

Windows are those of Qwen2. Biases that hold means are those of attention alone: its FFNs cannot have any.
"""

from dataclasses import replace

from engine.architecture.families import qwen2

FAMILY = replace(
    qwen2.FAMILY,
    name="Qwen3",
    models="Qwen3",
    to_try="Qwen/Qwen3-0.6B-Base",
    gigabytes=1.2,
    qk_norms=("q_norm", "k_norm"),
    fields=qwen2.FAMILY.fields | {"attention_bias"},
    defaults={"head_dim": 128, "num_key_value_heads": 32},
    attention_biases="attention_bias",
    qkv_biases="",
    tiny={"qwen3": {"hidden_size": 48, "head_dim": 8, "num_key_value_heads": 2, "initializer_range": 0.25}},
)

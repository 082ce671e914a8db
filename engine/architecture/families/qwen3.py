"""Qwen3: Llama's shape, with a norm of the queries and of the keys of each head.

Windows are those of Qwen2. Biases that hold means are those of attention alone: its FFNs cannot have any.
"""

from engine.architecture.families import qwen2
from engine.architecture.families.definition import ToTry

FAMILY = qwen2.FAMILY.derived(
    name="Qwen3",
    to_try=ToTry("Qwen/Qwen3-0.6B-Base", 1.2),
    qk_norms=("q_norm", "k_norm"),
    also={"attention_bias"},
    defaults={"head_dim": 128, "num_key_value_heads": 32},
    attention_biases="attention_bias",
    qkv_biases="",
    tiny={"qwen3": {"hidden_size": 48, "head_dim": 8, "num_key_value_heads": 2, "initializer_range": 0.25}},
)

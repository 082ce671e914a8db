"""StableLM: Llama's matrices, with norms that have biases and, in some models, biases of queries, keys and values;
positions turn a part of each head alone. In some models attention and FFN are parallel, behind one norm.
"""

from collections.abc import Mapping
from typing import Any

from engine.architecture.families import llama, phi
from engine.architecture.families.definition import ToTry


def variant(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What differs by config.json."""
    return {"norms": ("input_layernorm",)} if config.get("use_parallel_residual") else {}


FAMILY = llama.FAMILY.derived(
    name="StableLM",
    to_try=ToTry("stabilityai/stablelm-3b-4e1t", 5.6),
    without={"attention_bias", "mlp_bias", "pretraining_tp", "rms_norm_eps", "head_dim"},
    also={"layer_norm_eps", "hidden_dropout", "use_qkv_bias", "qk_layernorm", "use_parallel_residual"},
    attention_biases=False,
    qkv_biases="use_qkv_bias",
    ffn_biases=False,
    norm_biases=True,
    states_head_width=False,
    refused=phi.FAMILY.refused,
    variant=variant,
    heads_divide_width=True,
    tiny={"stablelm": {"num_key_value_heads": 2, "use_qkv_bias": True},
          "stablelm-parallel": {"num_key_value_heads": 2, "use_parallel_residual": True}},
)  # fmt: skip

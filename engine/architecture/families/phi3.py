"""Phi-3, Phi-3.5 and Phi-4 mini: Llama's shape, with queries, keys and values from one matrix, gate and up projection
from another, and no biases; in some models positions turn a part of each head alone.

A window is that of all layers, and the length of the context, as in Mistral.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.architecture.families import llama


def window(config: Mapping[str, Any]) -> Any:
    """How many tokens attention reaches; None: all."""
    return config.get("sliding_window")


FAMILY = replace(
    llama.FAMILY,
    name="Phi-3",
    qkv=("qkv_proj",),
    qkv_layout="stacked",
    ffn_read=("mlp.gate_up_proj",),
    has_joint_gate=True,
    fields=llama.FAMILY.fields - {"attention_bias", "mlp_bias", "pretraining_tp"}
    | {"sliding_window", "resid_pdrop", "embd_pdrop"},
    attention_biases="",
    ffn_biases="",
    biased_type="",
    heads_divide_width=False,
    window=window,
    tiny={
        "phi3": {
            "num_key_value_heads": 2,
            "pad_token_id": None,
            "partial_rotary_factor": 0.5,
            "initializer_range": 0.25,
        }
    },
)

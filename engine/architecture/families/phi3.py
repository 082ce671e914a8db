"""Phi-3, Phi-3.5 and Phi-4 mini: Llama's shape, with queries, keys and values from one matrix, gate and up projection
from another, and no biases; in some models positions turn a part of each head alone.

A window is that of all layers. What old versions call yarn is longrope, whose length before scaling is 4096 unless a
config.json says otherwise.
"""

from engine.architecture.families import llama
from engine.architecture.families.definition import AttentionLayout, ToTry, window_everywhere

FAMILY = llama.FAMILY.derived(
    name="Phi-3",
    models="Phi-3, Phi-3.5, and Phi-4 mini",
    to_try=ToTry("microsoft/Phi-3-mini-4k-instruct", 7.6),
    attention=AttentionLayout("self_attn.o_proj", qkv=("qkv_proj",), packing="stacked"),
    ffn=("mlp.gate_up_proj", "mlp.down_proj"),
    has_joint_gate=True,
    without={"attention_bias", "mlp_bias", "pretraining_tp"},
    also={"sliding_window", "resid_pdrop", "embd_pdrop"},
    windows=window_everywhere(),
    long_ropes=("longrope", "su", "yarn"),
    defaults={"original_max_position_embeddings": 4096},
    tiny={
        "phi3": {
            "num_key_value_heads": 2,
            "pad_token_id": None,
            "partial_rotary_factor": 0.5,
            "initializer_range": 0.25,
        }
    },
)

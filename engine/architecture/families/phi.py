"""Phi-1, Phi-1.5 and Phi-2: attention and an FFN of two matrices in parallel, behind one norm; biases everywhere, also
of the unembedding; positions turn a part of each head alone.
"""

from engine.architecture.families import llama
from engine.architecture.families.definition import AttentionLayout, ToTry

FAMILY = llama.FAMILY.derived(
    name="Phi",
    models="Phi-1, Phi-1.5, and Phi-2",
    to_try=ToTry("microsoft/phi-1_5", 2.8),
    attention=AttentionLayout("self_attn.dense"),
    ffn=("mlp.fc1", "mlp.fc2"),
    norms=("input_layernorm",),
    norm="model.final_layernorm",
    without={"attention_bias", "mlp_bias", "pretraining_tp", "rms_norm_eps"},
    also={"layer_norm_eps", "resid_pdrop", "embd_pdrop", "qk_layernorm"},
    has_biases=True,
    has_unembedding_bias=True,
    refused={"qk_layernorm": "and Headroom reads no norms of this type; use a model without it"},
    tiny={"phi": {"num_key_value_heads": 2}},
)

"""OLMo 2: Llama's matrices, with norms behind attention and FFN, before the residual sum, in place of those in front;
and norms of the queries, and of the keys, of all heads of a layer at once.

A masked head still has its part in these norms, so that heads cannot be cut out one by one. Biases that hold means are
those of attention alone: its FFNs cannot have any.
"""

from engine.architecture.families import llama
from engine.architecture.families.definition import ToTry

FAMILY = llama.FAMILY.derived(
    name="OLMo 2",
    to_try=ToTry("allenai/OLMo-2-0425-1B", 5.9),
    norms=("", ""),
    norms_after=("post_attention_layernorm", "post_feedforward_layernorm"),
    qk_norms=("q_norm", "k_norm"),
    norms_all_heads=True,
    without={"mlp_bias", "pretraining_tp"},
    tiny={"olmo2": {"num_key_value_heads": 2}},
)

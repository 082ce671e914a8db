"""GPT-J: attention without biases and an FFN in parallel, behind one norm; positions turn a part of each head alone,
and the unembedding has a bias.
"""

from engine.architecture.families import gpt2
from engine.architecture.families.definition import AttentionLayout, ToTry

FAMILY = gpt2.FAMILY.derived(
    name="GPT-J",
    to_try=ToTry("EleutherAI/gpt-j-6b@float16", 12.1),
    attention=AttentionLayout("attn.out_proj"),
    ffn=("mlp.fc_in", "mlp.fc_out"),
    norms=("ln_1",),
    position_embedding="",
    without={"scale_attn_weights", "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"},
    also={"rotary_dim"},
    is_tied=False,
    attention_biases=False,
    has_unembedding_bias=True,
    is_adapted=True,
    tiny={"gptj": {"n_inner": None, "rotary_dim": 4}},
)

"""Llama, from which families of its shape take what they share."""

from engine.architecture.families.definition import ROTARY, AttentionLayout, Family, ToTry

FAMILY = Family(
    name="Llama",
    models="Llama, up to 3.3, and other models of this type",
    to_try=ToTry("HuggingFaceTB/SmolLM2-135M", 0.27),
    layers="model.layers",
    attention=AttentionLayout("self_attn.o_proj"),
    ffn=("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
    norm="model.norm",
    token_embedding="embed_tokens",
    fields=ROTARY | {"num_key_value_heads", "rms_norm_eps", "attention_bias", "mlp_bias", "pretraining_tp"},
    has_biases=False,
    attention_biases="attention_bias",
    ffn_biases="mlp_bias",
    states_head_width=True,
    heads_divide_width=True,
    tiny={"llama": {"num_key_value_heads": 2}},
)

"""GPT-NeoX and Pythia: queries, keys and values from one matrix, head by head."""

from engine.architecture.families.definition import ROTARY, AttentionLayout, Family, ToTry

FAMILY = Family(
    name="GPT-NeoX",
    models="GPT-NeoX and Pythia",
    to_try=ToTry("EleutherAI/pythia-70m", 0.17),
    layers="gpt_neox.layers",
    attention=AttentionLayout("attention.dense", qkv=("query_key_value",), packing="by head"),
    ffn=("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
    norm="gpt_neox.final_layer_norm",
    token_embedding="embed_in",
    old_unembedding="embed_out",
    fields=ROTARY | {"attention_bias", "layer_norm_eps", "hidden_dropout", "use_parallel_residual", "rotary_pct",
                     "rotary_emb_base"},
    attention_biases="attention_bias",
    tiny={"gpt_neox": {}},
)  # fmt: skip

"""OPT. Its 350m has narrow embeddings that are projected, and norms behind attention and FFN."""

from engine.architecture.families.definition import AttentionLayout, Family, ToTry

FAMILY = Family(
    name="OPT",
    to_try=ToTry("facebook/opt-125m", 0.25),
    layers="model.decoder.layers",
    attention=AttentionLayout("self_attn.out_proj"),
    ffn=("fc1", "fc2"),
    norms=("self_attn_layer_norm", "final_layer_norm"),
    can_norm_behind=True,
    norm="model.decoder.final_layer_norm",
    token_embedding="embed_tokens",
    position_embedding="embed_positions",
    fields=frozenset({"word_embed_proj_dim", "do_layer_norm_before", "_remove_final_layer_norm", "dropout",
                      "activation_function", "layerdrop", "enable_bias", "layer_norm_elementwise_affine"}),
    own_names={"intermediate_size": "ffn_dim", "initializer_range": "init_std"},
    n_extra_positions=2,
    is_tied=True,
    attention_biases="enable_bias",
    ffn_biases="enable_bias",
    tiny={"opt": {"word_embed_proj_dim": 32},
          "opt-350m": {"word_embed_proj_dim": 16, "do_layer_norm_before": False},
          "opt-untied": {"word_embed_proj_dim": 32, "tie_word_embeddings": False, "vocab_size": 600}},
)  # fmt: skip

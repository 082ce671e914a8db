"""GPT-2: queries, keys and values from one matrix, and matrices that hold (inputs, outputs)."""

from engine.architecture.families.definition import AttentionLayout, Family, ToTry

FAMILY = Family(
    name="GPT-2",
    to_try=ToTry("openai-community/gpt2", 0.55),
    layers="transformer.h",
    attention=AttentionLayout("attn.c_proj", qkv=("c_attn",), packing="joined"),
    ffn=("mlp.c_fc", "mlp.c_proj"),
    norms=("ln_1", "ln_2"),
    norm="transformer.ln_f",
    token_embedding="wte",
    position_embedding="wpe",
    fields=frozenset({"activation_function", "resid_pdrop", "embd_pdrop", "attn_pdrop", "layer_norm_epsilon",
                      "scale_attn_weights", "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"}),
    own_names={"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
               "intermediate_size": "n_inner", "max_position_embeddings": "n_positions"},
    is_tied=True,
    tiny={"gpt2": {"n_inner": None}},
)  # fmt: skip

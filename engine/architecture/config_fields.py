"""The fields of a checkpoint's config.json that are used, by family. All others are ignored: among them are those that
choose an attention implementation, a kernel or code of the checkpoint, which transformers would download and import.
"""

from collections.abc import Mapping
from typing import Any

from engine.architecture.family import SMALL, family_of

ABOUT = {"model_type", "architectures", "transformers_version", "license", "_name_or_path", "headroom_alphabet"}
COMMON = ABOUT | {
    "vocab_size", "bos_token_id", "eos_token_id", "pad_token_id", "tokenizer_class", "tie_word_embeddings", "dtype",
    "torch_dtype", "use_cache", "attention_dropout", "initializer_range", "hidden_size", "num_hidden_layers",
    "num_attention_heads", "max_position_embeddings",
}  # fmt: skip
ROTARY = {"intermediate_size", "hidden_act", "head_dim", "attention_bias", "rope_parameters", "rope_scaling",
          "rope_theta", "partial_rotary_factor"}  # fmt: skip
LLAMA = COMMON | ROTARY | {"num_key_value_heads", "rms_norm_eps", "mlp_bias", "pretraining_tp"}
FIELDS = {
    "opt": COMMON | {"ffn_dim", "word_embed_proj_dim", "do_layer_norm_before", "_remove_final_layer_norm", "dropout",
                     "activation_function", "layerdrop", "init_std", "enable_bias", "layer_norm_elementwise_affine"},
    "llama": LLAMA,
    SMALL: LLAMA | {"smeared", "positions"},
    "gpt2": COMMON | {"n_embd", "n_layer", "n_head", "n_positions", "n_inner", "activation_function", "resid_pdrop",
                      "embd_pdrop", "attn_pdrop", "layer_norm_epsilon", "scale_attn_weights",
                      "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"},
    "gpt_neox": COMMON | ROTARY | {"layer_norm_eps", "hidden_dropout", "use_parallel_residual", "rotary_pct",
                                   "rotary_emb_base"},
}  # fmt: skip


def known_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are used. HeadroomError: the architecture is not supported."""
    family_of(config)
    return {name: value for name, value in config.items() if name in FIELDS[config["model_type"]]}


def model_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """Those of them that the model itself is built from, without the ones that only say where it comes from."""
    return {name: value for name, value in known_fields(config).items() if name not in ABOUT}

"""MPT: queries, keys and values from one matrix, no biases, and no positions but a number for each distance that is
added to scores of attention (ALiBi). The FFN adds to the stream itself.
"""

from collections.abc import Mapping
from typing import Any

from engine.architecture.families.definition import AttentionLayout, Family, ToTry
from engine.errors import HeadroomError

# what transformers computes, whatever a config.json says
FIXED = {"no_bias": True, "logit_scale": None}
FIXED_IN_ATTENTION = {"attn_type": "multihead_attention", "prefix_lm": False, "qk_ln": False, "alibi": True,
                      "alibi_bias_max": 8}  # fmt: skip


def variant(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Nothing; HeadroomError if transformers' model would not compute what the config.json says."""
    said = config.get("attn_config")
    for fields, fixed in ((config, FIXED), (said if isinstance(said, Mapping) else {}, FIXED_IN_ATTENTION)):
        for name, usual in fixed.items():
            if (value := fields.get(name, usual)) != usual:
                raise HeadroomError(f"config.json: {name} is {value!r}, and MPT models are read with {usual!r} only; "
                                    "use a model with that")  # fmt: skip
    return {}


FAMILY = Family(
    name="MPT",
    to_try=ToTry("mosaicml/mpt-7b", 13.3),
    layers="transformer.blocks",
    attention=AttentionLayout("attn.out_proj", qkv=("Wqkv",), packing="stacked"),
    ffn_adds_stream=True,
    ffn=("ffn.up_proj", "ffn.down_proj"),
    norms=("norm_1", "norm_2"),
    norm="transformer.norm_f",
    token_embedding="wte",
    fields=frozenset({"layer_norm_epsilon", "attn_config"}),
    own_names={"hidden_size": "d_model", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads",
               "max_position_embeddings": "max_seq_len"},
    defaults={"max_position_embeddings": 2048},
    is_tied=True,
    has_biases=False,
    attention_biases=False,
    variant=variant,
    is_adapted=True,
    tiny={"mpt": {"attn_config": {"clip_qkv": 6.0}}},
)  # fmt: skip

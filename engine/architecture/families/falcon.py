"""Falcon: BLOOM's modules with attention and FFN in parallel, and one matrix in which the queries of heads that share a
key and value head lie in front of these; in the first generation all heads share one.

The models with ALiBi, whose attention and FFN follow one another (falcon-rw), are left out: transformers adds its
biases twice where it does not attend by torch's own function.
"""

from collections.abc import Mapping
from typing import Any

from engine.architecture.families import bloom
from engine.architecture.families.definition import ROTARY, ToTry
from engine.errors import HeadroomError


def variant(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What differs by generation; HeadroomError for what Headroom does not read."""
    is_new = config.get("new_decoder_architecture")
    for name, usual in (("alibi", False), ("parallel_attn", True)):
        if bool(config.get(name, usual)) != usual:
            raise HeadroomError(f"config.json: {name} is {config[name]!r}, and Falcon models are read with {usual!r} "
                                "only, as falcon-7b, 11B, and 40b; use one of these")  # fmt: skip
    if is_new:
        return {"norms": ("ln_attn", "ln_mlp")} if config.get("num_ln_in_parallel_attn") in (None, 2) else {}
    shared = {} if config.get("multi_query") is False else {"defaults": {**FAMILY.defaults, "num_key_value_heads": 1}}
    return {"own_names": {usual: own for usual, own in FAMILY.own_names.items() if own != "num_kv_heads"}, **shared}


FAMILY = bloom.FAMILY.derived(
    name="Falcon",
    models="Falcon (7B, 11B, 40B, 180B)",
    to_try=ToTry("tiiuae/falcon-7b", 14.4),
    ffn_adds_stream=False,
    norms=("input_layernorm",),
    embedding_norm="",
    fields=ROTARY - {"intermediate_size", "hidden_act", "head_dim", "partial_rotary_factor"} | {
        "activation", "new_decoder_architecture", "multi_query", "parallel_attn", "alibi", "bias",
        "num_ln_in_parallel_attn", "layer_norm_epsilon", "hidden_dropout"},
    own_names={"hidden_size": "n_embed", "intermediate_size": "ffn_hidden_size", "num_key_value_heads": "num_kv_heads"},
    has_biases=False,
    attention_biases="bias",
    ffn_biases="bias",
    norm_biases=True,
    cuts_heads=False,
    refused={},
    variant=variant,
    tiny={"falcon": {}, "falcon-grouped": {"new_decoder_architecture": True, "num_kv_heads": 2}},
)  # fmt: skip

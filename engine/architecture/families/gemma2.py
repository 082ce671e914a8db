"""Gemma 2: Gemma's matrices, with norms in front of attention and FFN and behind them, before the residual sum, capped
scores of attention and capped logits. Every second layer has a window.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.architecture.families import gemma

SLIDING = "sliding_attention"


def window(config: Mapping[str, Any]) -> Any:
    """How many tokens attention reaches in some layers; None: all, in every layer."""
    return config.get("sliding_window", 4096) if SLIDING in (config.get("layer_types") or [SLIDING]) else None


def layer_types(config: Mapping[str, Any], period: int = 2) -> list[str]:
    """The kind of attention of each layer: as config.json lists it, or the last of each `period` without a window."""
    n_layers = config["num_hidden_layers"]
    usual = [SLIDING if (layer + 1) % period else "full_attention" for layer in range(n_layers)]
    return config.get("layer_types") or usual


def by_layer(config: Mapping[str, Any]) -> Mapping[str, list[Any]]:
    """The fields with an entry for each layer."""
    return {"layer_types": layer_types(config)}


FAMILY = replace(
    gemma.FAMILY,
    name="Gemma 2",
    ffn_in="mlp",
    ffn_out="post_feedforward_layernorm",
    ffn_norm="pre_feedforward_layernorm",
    attention_norm_after="post_attention_layernorm",
    ffn_norm_after="post_feedforward_layernorm",
    fields=gemma.FAMILY.fields
    | {"hidden_activation", "query_pre_attn_scalar", "final_logit_softcapping", "attn_logit_softcapping",
       "sliding_window", "layer_types"},
    biased_type="gemma2",
    heads_divide_width=True,
    by_layer=by_layer,
    window=window,
    builds_window=True,
    attends_by="eager",
    tiny={"gemma2": {"num_key_value_heads": 2, "head_dim": 8, "query_pre_attn_scalar": 6, "attn_logit_softcapping": 5.0,
                     "final_logit_softcapping": 20.0, "sliding_window": 24}},
)  # fmt: skip

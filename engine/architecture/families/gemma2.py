"""Gemma 2: Gemma's matrices, with norms in front of attention and FFN and behind them, before the residual sum, capped
scores of attention and capped logits. Every second layer has a window.
"""

from collections.abc import Mapping
from typing import Any

from engine.architecture.families import gemma
from engine.architecture.families.definition import FULL, SLIDING, ToTry, layer_types, windows_by_type


def in_periods(config: Mapping[str, Any], period: int) -> Mapping[str, list[Any]]:
    """The fields with an entry for each layer, whose types are those that config.json lists, or windows in all but the
    last layer of each period."""
    usual = [SLIDING if (layer + 1) % period else FULL for layer in range(config["num_hidden_layers"])]
    return {"layer_types": layer_types(config, usual)}


def by_layer(config: Mapping[str, Any]) -> Mapping[str, list[Any]]:
    """The fields with an entry for each layer."""
    return in_periods(config, 2)


def window(config: Mapping[str, Any]) -> Any:
    """How many tokens layers with a window attend to."""
    return config.get("sliding_window", 4096)


FAMILY = gemma.FAMILY.derived(
    name="Gemma 2",
    to_try=ToTry("google/gemma-2-2b-it", 5.2),
    norms=("input_layernorm", "pre_feedforward_layernorm"),
    norms_after=("post_attention_layernorm", "post_feedforward_layernorm"),
    also={"hidden_activation", "query_pre_attn_scalar", "final_logit_softcapping", "attn_logit_softcapping",
       "sliding_window", "layer_types"},
    defaults={"head_dim": 256, "num_key_value_heads": 4},
    heads_divide_width=True,
    by_layer=by_layer,
    windows=windows_by_type(by_layer, window, is_needed=True),
    caps_scores=True,
    tiny={"gemma2": {"num_key_value_heads": 2, "head_dim": 8, "query_pre_attn_scalar": 6, "attn_logit_softcapping": 5.0,
                     "final_logit_softcapping": 20.0, "sliding_window": 24}},
)  # fmt: skip

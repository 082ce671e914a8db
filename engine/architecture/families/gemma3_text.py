"""Gemma 3 without images: Gemma 2 with norms of the queries and of the keys of each head in place of caps, and other
positions in layers with a window, which are five of six unless a config.json says otherwise.
"""

from collections.abc import Mapping
from typing import Any

from engine.architecture.families import gemma2
from engine.architecture.families.definition import ToTry, windows_by_type


def by_layer(config: Mapping[str, Any]) -> Mapping[str, list[Any]]:
    """The fields with an entry for each layer."""
    return gemma2.in_periods(config, config.get("sliding_window_pattern", 6))


def variant(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What differs by config.json: torch's own attention cannot cap scores."""
    return {} if config.get("attn_logit_softcapping") is None else {"caps_scores": True}


FAMILY = gemma2.FAMILY.derived(
    name="Gemma 3",
    models="Gemma 3 without images (270M, 1B)",
    to_try=ToTry("google/gemma-3-270m", 0.54),
    qk_norms=("q_norm", "k_norm"),
    also={"sliding_window_pattern", "rope_local_base_freq"},
    by_layer=by_layer,
    windows=windows_by_type(by_layer, gemma2.window, is_needed=True),
    caps_scores=False,
    variant=variant,
    heads_divide_width=True,
    tiny={"gemma3": {"num_key_value_heads": 2, "head_dim": 8, "query_pre_attn_scalar": 6, "sliding_window_pattern": 2,
                     "sliding_window": 24}},
)  # fmt: skip

"""Gemma 3 without images: Gemma 2 with norms of the queries and of the keys of each head in place of caps, and other
positions in layers with a window, which are five of six unless a config.json says otherwise.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.architecture.families import gemma2


def by_layer(config: Mapping[str, Any]) -> Mapping[str, list[Any]]:
    """The fields with an entry for each layer."""
    return {"layer_types": gemma2.layer_types(config, config.get("sliding_window_pattern", 6))}


FAMILY = replace(
    gemma2.FAMILY,
    name="Gemma 3",
    qk_norms=("q_norm", "k_norm"),
    fields=gemma2.FAMILY.fields | {"sliding_window_pattern", "rope_local_base_freq"},
    biased_type="gemma3_text",
    by_layer=by_layer,
    attends_by="sdpa",
    tiny={"gemma3": {"num_key_value_heads": 2, "head_dim": 8, "query_pre_attn_scalar": 6, "sliding_window_pattern": 2,
                     "sliding_window": 24}},
)  # fmt: skip

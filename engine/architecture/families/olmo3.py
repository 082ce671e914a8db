"""OLMo 3: OLMo 2 with a window in three of four layers, or in those that a config.json lists; in layers without one,
positions may be scaled.
"""

from collections.abc import Mapping
from typing import Any

from engine.architecture.families import gemma2, olmo2
from engine.architecture.families.definition import ToTry, windows_by_type


def by_layer(config: Mapping[str, Any]) -> Mapping[str, list[Any]]:
    """The fields with an entry for each layer."""
    return gemma2.in_periods(config, 4)


FAMILY = olmo2.FAMILY.derived(
    name="OLMo 3",
    to_try=ToTry("allenai/Olmo-3-1025-7B", 14.6),
    also={"sliding_window", "layer_types"},
    by_layer=by_layer,
    windows=windows_by_type(by_layer, gemma2.window, is_needed=True),
    tiny={"olmo3": {"num_key_value_heads": 2, "sliding_window": 24,
                    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}},
)  # fmt: skip

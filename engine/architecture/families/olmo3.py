"""OLMo 3: OLMo 2 with a window in three of four layers, or in those that a config.json lists; in layers without one,
positions may be scaled.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.architecture.families import gemma2, olmo2
from engine.architecture.families.definition import windows_by_type


def by_layer(config: Mapping[str, Any]) -> Mapping[str, list[Any]]:
    """The fields with an entry for each layer."""
    return gemma2.in_periods(config, 4)


FAMILY = replace(
    olmo2.FAMILY,
    name="OLMo 3",
    models="OLMo 3",
    to_try="allenai/Olmo-3-1025-7B",
    gigabytes=14.6,
    fields=olmo2.FAMILY.fields | {"sliding_window", "layer_types"},
    by_layer=by_layer,
    windows=windows_by_type(by_layer, gemma2.window, is_needed=True),
    tiny={"olmo3": {"num_key_value_heads": 2, "sliding_window": 24,
                    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}},
)  # fmt: skip

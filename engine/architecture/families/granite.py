"""Granite: Llama's shape, with numbers that multiply embeddings, scores of attention, outputs of attention and of FFNs
before the residual sum, and logits.
"""

from collections.abc import Mapping
from typing import Any

from engine.architecture.families import llama
from engine.architecture.families.definition import Scales, ToTry


def scales(config: Mapping[str, Any]) -> Scales:
    """The constants that the model multiplies by."""
    names = "residual_multiplier", "embedding_multiplier", "logits_scaling"
    return Scales(*(config.get(name, 1.0) for name in names))


FAMILY = llama.FAMILY.derived(
    name="Granite",
    models="Granite 3",
    to_try=ToTry("ibm-granite/granite-3.1-2b-base", 5.1),
    without={"pretraining_tp"},
    also={"residual_multiplier", "embedding_multiplier", "logits_scaling", "attention_multiplier"},
    scales=scales,
    tiny={"granite": {"num_key_value_heads": 2, "residual_multiplier": 0.5, "embedding_multiplier": 3.0,
                      "logits_scaling": 2.5, "attention_multiplier": 0.3, "attention_bias": True, "mlp_bias": True}},
)  # fmt: skip

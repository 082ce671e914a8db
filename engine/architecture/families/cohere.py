"""Cohere's Command R and Aya: Llama's matrices, with attention and FFN in parallel behind one norm without biases,
which takes the mean away; logits are multiplied by a number.

Biases that hold means are those of attention alone: its FFNs cannot have any.
"""

from collections.abc import Mapping
from typing import Any

from engine.architecture.families import llama, phi
from engine.architecture.families.definition import Scales, ToTry
from engine.errors import HeadroomError


def scales(config: Mapping[str, Any]) -> Scales:
    """The constants that the model multiplies by."""
    scale = config.get("logit_scale", 0.0625)
    if not scale:
        raise HeadroomError(f"config.json: logit_scale is {scale!r}, must be a number other than 0; repair the folder")
    return Scales(logits_divisor=1 / scale)


FAMILY = llama.FAMILY.derived(
    name="Cohere",
    models="Cohere's Command R and Aya",
    to_try=ToTry("CohereForAI/aya-23-8B", 16.1),
    norms=("input_layernorm",),
    without={"mlp_bias", "pretraining_tp", "rms_norm_eps"},
    also={"layer_norm_eps", "logit_scale", "use_qk_norm"},
    is_tied=True,
    refused={"use_qk_norm": phi.FAMILY.refused["qk_layernorm"]},
    scales=scales,
    tiny={"cohere": {"num_key_value_heads": 2, "logit_scale": 0.25}},
)

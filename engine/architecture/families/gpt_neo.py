"""GPT-Neo: GPT-2 with three projections for queries, keys and values, which have no biases, and plain matrices. Scores
of attention are not scaled. Layers with a window alternate with layers without, unless a config.json says otherwise.
"""

from collections.abc import Mapping
from typing import Any

from engine.architecture.families import gpt2
from engine.architecture.families.definition import AttentionLayout, ToTry


def kinds(config: Mapping[str, Any]) -> list[str]:
    """The kind of attention of each layer."""
    if (layers := config.get("attention_layers")) is not None:  # transformers prefers it
        return layers
    said = config.get("attention_types") or [[["global", "local"], config.get("num_layers", 2) // 2]]
    return [kind for names, n_times in said for _ in range(n_times) for kind in names]


def by_layer(config: Mapping[str, Any]) -> Mapping[str, list[Any]]:
    """The fields with an entry for each layer."""
    types = [[[kind], 1] for kind in kinds(config)]
    return {"attention_types": types} | ({"attention_layers": kinds(config)} if "attention_layers" in config else {})


def windows(config: Mapping[str, Any]) -> list[Any]:
    """How many tokens each layer attends to; None: all."""
    return [config.get("window_size", 256) if kind == "local" else None for kind in kinds(config)]


FAMILY = gpt2.FAMILY.derived(
    name="GPT-Neo",
    to_try=ToTry("EleutherAI/gpt-neo-125m", 0.53),
    attention=AttentionLayout("attn.attention.out_proj"),
    fields=frozenset({"intermediate_size", "activation_function", "attention_types", "attention_layers", "window_size",
                      "resid_dropout", "embed_dropout", "layer_norm_epsilon"}),
    own_names={"num_hidden_layers": "num_layers", "num_attention_heads": "num_heads"},
    qkv_biases=False,
    by_layer=by_layer,
    windows=windows,
    is_adapted=True,
    tiny={"gpt_neo": {"attention_types": [[["local", "global"], 1], [["local"], 1]], "window_size": 24,
                      "initializer_range": 0.2}},
)  # fmt: skip

"""BLOOM: GPT-NeoX's matrices, a norm behind the embedding, and no positions but a number for each distance that is
added to scores of attention (ALiBi). Attention and FFN add to the stream themselves.
"""

from collections.abc import Mapping
from typing import Any

from engine.architecture.families import gpt_neox
from engine.architecture.families.definition import AttentionLayout, ToTry
from engine.errors import HeadroomError


def variant(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Nothing; HeadroomError if transformers would compute the model in slices, which leave out biases."""
    if config.get("slow_but_exact") and config.get("pretraining_tp", 1) > 1:
        raise HeadroomError("config.json: slow_but_exact is on, so that transformers leaves out biases of attention "
                            "and FFNs; turn it off, as in the published models")  # fmt: skip
    return {}


FAMILY = gpt_neox.FAMILY.derived(
    name="BLOOM",
    to_try=ToTry("bigscience/bloom-560m", 1.1),
    layers="transformer.h",
    attention=AttentionLayout("self_attention.dense", qkv=("query_key_value",), packing="by head"),
    ffn_adds_stream=True,
    norm="transformer.ln_f",
    token_embedding="word_embeddings",
    embedding_norm="word_embeddings_layernorm",
    fields=frozenset({"layer_norm_epsilon", "hidden_dropout"}),
    own_names={"hidden_size": "n_embed", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
               "max_position_embeddings": "seq_length"},
    defaults={"max_position_embeddings": 2048},
    is_tied=True,
    refused={"apply_residual_connection_post_layernorm": "and Headroom reads no stream of norms; use a model without "
                                                         "it"},
    variant=variant,
    is_adapted=True,
    tiny={"bloom": {}},
)  # fmt: skip

"""A small model of the same family as a large one: its config, and random weights.

Heads keep their width, and the layers are of both kinds where a config has two, so that it is laid out as the large
one. It takes a few MB, whatever the large one takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.architecture.families.definition import Family
from engine.shapes import ModelShape

N_LAYERS, N_KEYS, N_SHARING, D_MLP, N_VOCAB, N_CTX = 2, 2, 4, 64, 64, 128
SEED = 1


def miniature(config: Mapping[str, Any], family: Family, shape: ModelShape) -> dict[str, Any]:
    """The config.json of a small model like that of `config`, whose shape is `shape`."""
    sharing = min(shape.n_heads // shape.n_key_value_heads, N_SHARING)
    n_keys = min(shape.n_key_value_heads, N_KEYS if sharing > 1 else 2 * N_KEYS)
    n_heads, by_layer = n_keys * sharing, dict(family.by_layer(config)) if family.by_layer else {}
    width = n_heads * shape.d_head
    sizes = {"hidden_size": width, "num_hidden_layers": min(N_LAYERS, shape.n_layers), "vocab_size": N_VOCAB,
             "num_attention_heads": n_heads, "intermediate_size": D_MLP}  # fmt: skip
    if family.position_embedding:
        sizes["max_position_embeddings"] = min(N_CTX, shape.n_ctx)
    if "num_key_value_heads" in family.fields:
        sizes["num_key_value_heads"] = n_keys
    if family.states_head_width:
        sizes["head_dim"] = shape.d_head
    if (narrow := config.get("word_embed_proj_dim")) is not None:
        sizes["word_embed_proj_dim"] = width if narrow == shape.d_model else width // 2
    lists = {name: each for name, each in {**config, **by_layer}.items()
             if isinstance(each, list) and len(each) == shape.n_layers}  # fmt: skip
    kinds = [str(kind) for kind in zip(*lists.values(), strict=True)]
    other = next((layer for layer, kind in enumerate(kinds) if kind != kinds[0]), 1)
    chosen = {name: [each[layer] for layer in (0, other)[: shape.n_layers]] for name, each in lists.items()}
    tokens = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), 0)  # rows that the small embedding has
    found = {name: value for name, value in config.items() if name not in (*sizes, "dtype", "torch_dtype")}
    return found | chosen | tokens | {family.own_name(usual): size for usual, size in sizes.items()}


def random_model(config: Any, attends_by: str = "eager") -> Any:
    """A model in fp32 of this config of transformers, with random weights, biases and gains."""
    import torch
    import transformers

    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(SEED)
        model = transformers.AutoModelForCausalLM.from_config(
            config, dtype=torch.float32, attn_implementation=attends_by
        )
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=parameter.shape[-1] ** -0.5)
            else:  # gains that are ones or zeros when fresh, biases that are zeros
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model.eval().requires_grad_(False)

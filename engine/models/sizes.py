"""How many parameters a model has: counted from the tensors in its files, or from its config.json alone."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from engine.models.architectures import SMALL, is_tied, smears_keys
from engine.shapes import ModelShape

# what older files hold beside the weights: masks and angles, made anew from the config
BUFFERS = re.compile(r"(.*\.)?((attn|attention)\.(masked_)?bias|rotary_emb\.inv_freq|position_ids|decoder\.version)")
UNEMBEDDINGS = ("lm_head.weight", "embed_out.weight")  # the second in GPT-NeoX's files
EMBEDDINGS = ("embed", "wte", "wpe", "lm_head")


def n_parameters(shapes: Iterable[tuple[str, tuple[int, ...]]], tied: bool) -> tuple[int, int]:
    """(parameters, parameters that int8 stores in one byte) of a model that holds tensors of these names and shapes:
    an unembedding that is the embedding counts once, buffers do not."""
    n_params = n_quantised = 0
    for name, shape in shapes:
        if BUFFERS.fullmatch(name) or (tied and name.endswith(UNEMBEDDINGS)):
            continue
        count = 1
        for size in shape:
            count *= size
        n_params += count
        if len(shape) == 2 and not any(part in name for part in EMBEDDINGS):
            n_quantised += count
    return n_params, n_quantised


def n_parameters_of(config: Mapping[str, Any], shape: ModelShape) -> tuple[int, int]:
    """The same from a config.json, before any weights are there."""
    kind, d, d_mlp, n_layers = config["model_type"], shape.d_model, shape.d_mlp, shape.n_layers
    is_llama = kind in ("llama", SMALL)
    width = (config.get("word_embed_proj_dim") or d) if kind == "opt" else d
    d_kv, d_heads = shape.d_head * shape.n_key_value_heads, shape.d_head * shape.n_heads
    layer = 2 * d * (d_heads + d_kv) + (3 if is_llama else 2) * d * d_mlp
    projections = 2 * width * d if width != d else 0
    embeddings = (1 if is_tied(config) else 2) * shape.n_vocab * width
    positions = {"opt": shape.n_ctx + 2, "gpt2": shape.n_ctx}.get(kind, 0) * d
    norms = n_layers * 2 + (config.get("do_layer_norm_before") is not False or kind != "opt")
    norms *= d if is_llama else 2 * d
    norms += n_layers * shape.n_key_value_heads * smears_keys(config)
    by_default = not is_llama
    if config.get({"opt": "enable_bias"}.get(kind, "attention_bias"), by_default):
        norms += n_layers * (d_heads + 2 * d_kv + d)
    if config.get({"opt": "enable_bias", "llama": "mlp_bias", SMALL: "mlp_bias"}.get(kind, ""), by_default):
        norms += n_layers * (d_mlp * (2 if is_llama else 1) + d)
    n_quantised = n_layers * layer + projections
    return n_quantised + embeddings + positions + norms, n_quantised

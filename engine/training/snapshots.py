"""A model in training as a folder that every screen and transformers open: a stock Llama wherever that is the same.

Queries and keys have biases, so Llama's `attention_bias` is on and its other two are zero; without MLPs the FFN is a
narrow one of zeros. Models with smeared keys or positions outside the residual stream are not Llama models:
`engine.architecture.modeling_headroom` opens those.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cache.files import replacing
from engine.architecture.family import SMALL
from engine.training.folders import not_written
from engine.training.recipe import EPSILON, THETA, Recipe
from engine.training.text import END

NO_FFN = 16  # neurons of an FFN that is all zeros


def config_of(recipe: Recipe) -> dict[str, Any]:
    """config.json of a snapshot."""
    own = recipe.smeared or recipe.positions != "rotary"
    config = {
        "model_type": SMALL if own else "llama",
        "architectures": ["HeadroomSmallForCausalLM" if own else "LlamaForCausalLM"],
        "vocab_size": recipe.n_vocab, "hidden_size": recipe.d_model, "num_hidden_layers": recipe.n_layers,
        "num_attention_heads": recipe.n_heads, "num_key_value_heads": recipe.n_heads,
        "head_dim": recipe.d_model // recipe.n_heads, "max_position_embeddings": recipe.n_ctx,
        "intermediate_size": recipe.d_mlp or NO_FFN, "hidden_act": "silu",
        "attention_bias": True, "mlp_bias": False, "rms_norm_eps": EPSILON, "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": THETA},
        "bos_token_id": 0, "eos_token_id": 0, "torch_dtype": "float32",
    }  # fmt: skip
    if recipe.alphabet:
        config["headroom_alphabet"] = recipe.alphabet  # random tokens are drawn from these where heads are scored
    return config | ({"smeared": recipe.smeared, "positions": recipe.positions} if own else {})


def tensors_of(model: Any, recipe: Recipe) -> dict[str, Any]:
    """The weights under Llama's names, fp32."""
    import torch

    held = model.state_dict()
    width, inner = recipe.d_model, recipe.d_mlp or NO_FFN
    tensors = {"model.embed_tokens.weight": held["embed.weight"], "model.norm.weight": held["norm.weight"],
               "lm_head.weight": held["unembed.weight"]}  # fmt: skip
    for layer in range(recipe.n_layers):
        here, there = f"layers.{layer}", f"model.layers.{layer}"
        weight, bias = held[f"{here}.attention.qkv.weight"], held[f"{here}.attention.qkv.bias"]
        for name, own, added in zip("qkv", weight.split(width), bias.split(width), strict=True):
            tensors[f"{there}.self_attn.{name}_proj.weight"] = own
            tensors[f"{there}.self_attn.{name}_proj.bias"] = added
        tensors[f"{there}.self_attn.o_proj.weight"] = held[f"{here}.attention.out.weight"]
        tensors[f"{there}.self_attn.o_proj.bias"] = torch.zeros(width)
        tensors[f"{there}.input_layernorm.weight"] = held[f"{here}.attention_norm.weight"]
        if recipe.smeared:
            tensors[f"{there}.self_attn.smear"] = held[f"{here}.attention.smear"]
        if recipe.mlp:
            gate, up = held[f"{here}.gate_up.weight"].split(inner)
            down, norm = held[f"{here}.down.weight"], held[f"{here}.ffn_norm.weight"]
        else:
            gate = up = torch.zeros(inner, width)
            down, norm = torch.zeros(width, inner), torch.ones(width)
        tensors[f"{there}.mlp.gate_proj.weight"], tensors[f"{there}.mlp.up_proj.weight"] = gate, up
        tensors[f"{there}.mlp.down_proj.weight"] = down
        tensors[f"{there}.post_attention_layernorm.weight"] = norm
    return {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}


def save_snapshot(model: Any, recipe: Recipe, tokenizer_file: Path, folder: Path) -> None:
    """Writes the model folder, whole or not at all. HeadroomError: the disk does not take it."""
    from safetensors.torch import save

    with whole_folder(folder, recipe, tokenizer_file, bos_token=END, eos_token=END) as aside:
        (aside / "config.json").write_text(json.dumps(config_of(recipe), indent=1) + "\n", encoding="utf-8")
        (aside / "model.safetensors").write_bytes(save(tensors_of(model, recipe), {"format": "pt"}))


@contextmanager
def whole_folder(folder: Path, recipe: Recipe, tokenizer_file: Path, **special_tokens: str) -> Iterator[Path]:
    """Gives a folder that has the tokenizer, to write the model into; with the end of the block it becomes `folder`.
    HeadroomError: the disk does not take it."""
    aside = folder.with_name(f"{folder.name}.new")
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        with replacing(folder, aside):
            (aside / "tokenizer_config.json").write_text(json.dumps({
                "tokenizer_class": "PreTrainedTokenizerFast", **special_tokens, "model_max_length": recipe.n_ctx,
                "clean_up_tokenization_spaces": False, "add_bos_token": True,
            }, indent=1) + "\n", encoding="utf-8")  # fmt: skip
            shutil.copyfile(tokenizer_file, aside / "tokenizer.json")
            yield aside
            shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        raise not_written(folder, error) from error

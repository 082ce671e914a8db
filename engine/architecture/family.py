"""The family of a model, its shape and the fields that are used, read from its config.json."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypedDict

from cache.typed_json import InvalidFile, convert
from engine.architecture.families import FAMILIES
from engine.architecture.families.definition import ABOUT, Family
from engine.architecture.unverified import recognized
from engine.errors import HeadroomError
from engine.shapes import ModelShape

SMALL = "headroom_small"  # models trained here whose keys are smeared, or whose positions are shortformer's
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")  # fields of mixtures of experts


def family_of(config: Mapping[str, Any]) -> Family:
    """The family of a model's config.json; HeadroomError when its architecture is not in the table, and its layout is
    not that of Llama."""
    model_type = config.get("model_type")
    if isinstance(model_type, str) and model_type in FAMILIES:
        family = FAMILIES[model_type]
        return family if family.variant is None else replace(family, **family.variant(config))
    found = _why_not(config) or recognized(config)
    if isinstance(found, Family):
        return found
    known = ", ".join(sorted(FAMILIES))
    raise HeadroomError(f"model architecture {str(model_type)[:60]!r} {found}; use a model of type {known}")


def _why_not(config: Mapping[str, Any]) -> str:
    """Why an architecture that is not in the table is not supported, by its fields alone; "" if they do not tell."""
    if any(config.get(name) for name in EXPERTS):
        return "is a mixture of experts, whose FFNs Headroom cannot score or prune"
    if config.get("is_encoder_decoder"):
        return "has an encoder and a decoder, and Headroom reads decoders only"
    if isinstance(config.get("text_config"), Mapping):
        return "also reads images or sound, and Headroom reads models of text only"
    return ""


def known_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are used. All others are ignored: among them are those that choose an attention implementation, a
    kernel or code of the checkpoint, which transformers would download and import.
    HeadroomError: the architecture is not supported."""
    family = family_of(config)
    used = family.used_fields | family.refused.keys()
    return {name: value for name, value in config.items() if name in used}


def model_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """Those of them that the model itself is built from, without the ones that only say where it comes from."""
    return {name: value for name, value in known_fields(config).items() if name not in ABOUT}


def supported_families() -> str:
    """The names of the families that transformers has classes for, as in "OPT, Llama or GPT-2"."""
    *first, last = [family.name for family in FAMILIES.values() if family.is_stock]
    return f"{', '.join(first)} or {last}"


def smears_keys(config: Mapping[str, Any]) -> bool:
    """Whether a model's keys are mixed with those of the token before, so that a key in its cache is none that
    attention reads."""
    return bool(config.get("smeared"))


def is_tied(config: Mapping[str, Any]) -> bool:
    """Whether a model's unembedding is its embedding."""
    said = config.get("tie_word_embeddings")
    return family_of(config).is_tied if said is None else bool(said)


class _Fields(TypedDict, total=False):
    """The fields of a config.json that are read in addition to sizes."""

    tie_word_embeddings: bool | None
    do_layer_norm_before: bool | None
    enable_bias: bool | None
    attention_bias: bool | None
    mlp_bias: bool | None
    scale_attn_by_inverse_layer_idx: bool | None
    use_bias: bool | None
    use_qkv_bias: bool | None
    use_parallel_residual: bool | None
    smeared: bool | None
    logit_scale: float | None
    residual_multiplier: float | None
    embedding_multiplier: float | None
    logits_scaling: float | None
    dtype: str | None
    torch_dtype: str | None


def shape_of(config: Mapping[str, Any]) -> ModelShape:
    """ModelShape read from a config.json; HeadroomError names the first field that is missing or makes no sense."""
    family = family_of(config)
    try:
        convert(dict(config), _Fields, "config.json")
    except InvalidFile as error:
        raise HeadroomError(f"{error}; repair the folder") from error

    used = family.used_fields

    def first(usual: str, default: int | None = None) -> int:
        names = [name for name in dict.fromkeys((usual, family.own_name(usual))) if name in used]
        found = {name: _positive(name, config[name]) for name in names if config.get(name) is not None}
        if len({*found.values()}) > 1:
            said = " and ".join(f"{name} {value}" for name, value in found.items())
            raise HeadroomError(f"config.json says {said}, which mean the same; repair the folder")
        if found:
            return next(iter(found.values()))
        is_null = default is not None and family.is_verified and any(name in config for name in names)
        default = default if is_null else family.defaults.get(usual, default)
        if default is None:
            raise HeadroomError(f"config.json has no {' or '.join(names)}; it is not a complete model config")
        return default

    for name, why in family.refused.items():
        if config.get(name):
            raise HeadroomError(f"config.json: {name} is on, {why}")
    if config.get("is_causal") not in (None, True):
        raise HeadroomError(f"config.json: is_causal is {config['is_causal']!r}, so that tokens read later ones; use a "
                            "model that predicts the next token")  # fmt: skip
    first("word_embed_proj_dim", default=1)
    n_heads = first("num_attention_heads")
    d_model, d_head = first("hidden_size"), family.defaults.get("head_dim")
    if d_model % n_heads and config.get("head_dim") is None and d_head is None:
        raise HeadroomError(f"config.json: width {d_model} is not a multiple of {n_heads} heads; repair the folder")
    first("num_hidden_layers")
    family.scales(config)
    for window in family.windows(config):
        if window is not None:
            _positive("sliding_window", window)
    return ModelShape(
        n_layers=first("num_hidden_layers"),
        n_heads=n_heads,
        n_key_value_heads=first("num_key_value_heads", default=n_heads),
        d_model=d_model,
        d_head=first("head_dim", default=d_head or d_model // n_heads),
        d_mlp=first("intermediate_size", default=4 * d_model),
        n_vocab=first("vocab_size"),
        n_ctx=min([first("max_position_embeddings"), *_long_rope_limits(config)]),
    )


def windows_of(config: Mapping[str, Any]) -> tuple[int | None, ...]:
    """How many tokens each layer attends to; None: all. Empty: all layers to all."""
    found = tuple(family_of(config).windows(config))
    return found if any(found) else ()


def has_long_rope(config: Mapping[str, Any]) -> bool:
    """Whether positions turn queries and keys by angles that depend on the length of the input."""
    return bool(_long_ropes(config))


def _long_rope_limits(config: Mapping[str, Any]) -> list[int]:
    """Numbers of tokens from which longrope turns every token by other angles, those before it too."""
    name, found = "original_max_position_embeddings", []
    for rope in _long_ropes(config):
        said = config.get(name, family_of(config).defaults.get(name))  # transformers prefers it to the one within
        length = rope.get(name) if said is None else said
        found += [] if length is None else [_positive(name, length)]
    return found


def _long_ropes(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The longropes among the rotations that a config.json describes: one for all layers, or one for each type."""
    names = family_of(config).long_ropes
    both = [config.get(name) for name in ("rope_scaling", "rope_parameters")]  # transformers prefers the first
    ropes = [[rope, *rope.values()] for rope in both if isinstance(rope, Mapping) and rope]
    return [each for each in ropes[0] if isinstance(each, Mapping) and each.get("rope_type", each.get("type")) in names
            ] if ropes else []  # fmt: skip


def _positive(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise HeadroomError(f"config.json: {name} is {value!r}, must be a positive whole number; repair the folder")
    return value

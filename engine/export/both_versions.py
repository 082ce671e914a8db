"""config.json and tokenizer_config.json of an export in names that transformers 4 and 5 both know.

A base model that transformers 5 saved names fields and classes that version 4 does not know: it would take the default
for rotary positions without a word, and find no tokenizer class. Version 5 reads the older names as well.
"""

from collections.abc import Mapping
from typing import Any

from engine.architecture.family import family_of

# of transformers 5 alone: classes, which tokenizer.json describes whole, and what it writes about where files came from
NEW_CLASSES = ("TokenizersBackend", "PythonBackend", "SentencePieceBackend", "MistralCommonBackend")
NEW_SETTINGS = ("backend", "is_local", "local_files_only", "files_loaded", "response_template", "chat_control_tokens")
ROPE_NAMES = {"rotary_emb_base": "rope_theta", "rotary_pct": "partial_rotary_factor"}  # as GPT-NeoX's config has them


def config_of_both(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with the fields of version 4 next to those that version 5 renamed."""
    known, older = family_of(config).fields, {"torch_dtype": config.get("dtype")}
    rope = config.get("rope_parameters")
    if isinstance(rope, Mapping):
        found = _rope_fields(rope, config)
        older |= {name: found.get(ROPE_NAMES.get(name, name)) for name in (*found, *ROPE_NAMES) if name in known}
    return {**{name: value for name, value in older.items() if value is not None}, **config}


def _rope_fields(rope: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """What version 4 calls rotary positions: those of all layers, or of layers without a window and with one."""
    whole, windowed = rope.get("full_attention") or rope, rope.get("sliding_attention") or {}
    apart = ("rope_theta", "partial_rotary_factor")
    scaling = {name: value for name, value in whole.items() if name not in apart}
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "longrope" and config.get("model_type") == "phi3":  # whose class in version 4 takes these alone
        scaling = {"type": kind, **{name: scaling[name] for name in ("short_factor", "long_factor")}}
    found = {name: whole.get(name) for name in apart}
    return found | {
        "rope_scaling": None if kind in (None, "default") else scaling,
        "original_max_position_embeddings": whole.get("original_max_position_embeddings"),
        "rope_local_base_freq": windowed.get("rope_theta"),
    }


def tokenizer_settings_of_both(settings: Mapping[str, Any], is_fast: bool) -> dict[str, Any]:
    """What tokenizer_config.json says, in names of both versions. `is_fast`: there is a tokenizer.json."""
    found = {name: value for name, value in settings.items() if name not in NEW_SETTINGS}
    if found.get("tokenizer_class") in NEW_CLASSES and is_fast:
        found["tokenizer_class"] = "PreTrainedTokenizerFast"
    if isinstance(found.get("extra_special_tokens"), list):
        extra = found.pop("extra_special_tokens")
        found.setdefault("additional_special_tokens", extra)
    if isinstance(named := found.pop("model_specific_special_tokens", None), dict):
        found["extra_special_tokens"] = named | (found.get("extra_special_tokens") or {})
    return found

"""The config of a model in a GGUF file: what transformers reads of it, completed by what the file states and
transformers leaves out, which would be silently computed otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from engine.architecture.family import shape_of
from engine.checkpoints.gguf_header import ANOTHER, Header
from engine.checkpoints.gguf_internals import config_of, raw_values
from engine.errors import HeadroomError

if TYPE_CHECKING:
    import numpy as np

# fields of a file, and what a config calls them
COMPLETED = {
    "attention.key_length": "head_dim",
    "attention.sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "rope.freq_base": "rope_theta",
}
OF_27B = (("gemma2", 46), ("gemma3", 62))  # files do not state how these scale scores: llama.cpp knows them by layers
PARTIAL = ("stablelm", "phi3")  # rotate a part of a head's width
ROPE_FACTORS = "rope_freqs.weight"  # what the angles of Llama 3 are divided by


def read_gguf_config(header: Header) -> dict[str, Any]:
    """The config.json of the model, with its `model_type`. HeadroomError: what the file states cannot be said in it, or
    the model is not supported."""
    found = config_of(header)
    if header.architecture == "gpt2":  # transformers puts it where its own GPT-2 does not look
        found["n_positions"] = header.field("context_length")
    if (header.architecture, header.field("block_count")) in OF_27B:
        found["query_pre_attn_scalar"] = header.field("embedding_length") // header.field("attention.head_count")
    usual = _built(found)
    for name, field in COMPLETED.items():
        stated = header.field(name)
        if stated is not None and field not in found and _read_as(usual, field) != stated:
            if not hasattr(usual, field) and field != "rope_theta":
                raise HeadroomError(_unread(header, f"{name} {stated}"))
            found[field] = stated
    _complete_rope(header, found)
    shape_of(_built(found).to_dict())
    return found


def _complete_rope(header: Header, config: dict[str, Any]) -> None:
    """Adds how positions are scaled, and which part of a head is rotated."""
    kind, factor = header.field("rope.scaling.type"), header.field("rope.scaling.factor") or 1.0
    if kind == "linear" and factor != 1:
        config["rope_scaling"] = {"rope_type": "linear", "factor": factor}
    elif kind not in (None, "none", "linear"):
        raise HeadroomError(_unread(header, f"rope.scaling.type {kind}"))
    if unread := [tensor.name for tensor in header.tensors if tensor.name.startswith("rope_factors")]:
        raise HeadroomError(_unread(header, f"scaled positions ({unread[0]})"))
    width = header.field("rope.dimension_count")
    head = header.field("attention.key_length") or _head_width(_built(config))  # of Llama, transformers takes `width`
    if width is not None and header.architecture in PARTIAL:
        config["partial_rotary_factor"] = width / head
    elif width not in (None, head):
        raise HeadroomError(_unread(header, f"rope.dimension_count {width} in heads of {head}"))
    for tensor in header.tensors:
        if tensor.name == ROPE_FACTORS:
            config["rope_scaling"] = _llama3(header, raw_values(header.file, tensor), _built(config).rope_parameters)


def _llama3(header: Header, factors: np.ndarray, rope: Mapping[str, Any]) -> dict[str, Any]:
    """The scaling of Llama 3 by which these are the factors of the angles, as all of its models have it but for the
    `factor`. HeadroomError: it is another one."""
    import numpy as np

    factor = float(factors.max())
    found = {"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
             "original_max_position_embeddings": 8192}  # fmt: skip
    turns = found["original_max_position_embeddings"] / (2 * np.pi)  # within the original context
    turns = turns * rope["rope_theta"] ** -(np.arange(len(factors)) / len(factors))
    smooth = ((turns - 1) / 3).clip(0, 1)
    if not np.allclose(factors, 1 / ((1 - smooth) / factor + smooth), rtol=1e-3):
        raise HeadroomError(_unread(header, f"scaled positions ({ROPE_FACTORS})"))
    return found


def _built(config: dict[str, Any]) -> Any:
    """transformers' config object of these fields."""
    import transformers

    return transformers.AutoConfig.for_model(**config)


def _read_as(config: Any, field: str) -> Any:
    """What a config has as this field, as far as the model uses it."""
    if field == "rope_theta":
        return (getattr(config, "rope_parameters", None) or {}).get(field)
    return _head_width(config) if field == "head_dim" else getattr(config, field, None)


def _head_width(config: Any) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def _unread(header: Header, what: str) -> str:
    return f"{header.file} states {what}, which transformers does not read from a GGUF file; {ANOTHER}"

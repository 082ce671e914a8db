"""Where heads and FFNs live in each supported family: a table of names, no model code.

A head is reached at the *input* of the attention output projection (there the heads still lie side by side), an FFN at
the output of the last module of its branch, before the residual sum. That is all that pruning and scoring need.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal, TypedDict

from cache.typed_json import InvalidFile, convert
from engine.errors import HeadroomError
from engine.shapes import ModelShape


@dataclass(frozen=True)
class Family:
    """Attribute paths of one architecture: `layers` and the final `norm` from the model, the others from a layer.

    `qkv` are the projections inside the attention module: three of their own, or one that holds all three, either one
    behind the other (`joined`) or head by head (`by head`). `ffn_in` is where an FFN begins, when it is no module of
    its own; `ffn_read` are its matrices that read the stream (Llama: two) and `ffn_write` the one that writes into it;
    `norms_behind` are the norms that the residual stream itself goes through, behind a layer's attention and
    behind its FFN, in those models of the family that have them there. `is_tied` says whether the unembedding is the
    embedding where a config.json does not say so. `ffn_norm` is the norm in front of an FFN (there behind it).
    `has_biases` says whether norms and projections have biases unless a config.json says otherwise.
    """

    name: str
    layers: str
    attention_out: str
    ffn_out: str
    attention_norm: str
    norm: str
    qkv: tuple[str, ...]
    ffn_read: tuple[str, ...]
    ffn_write: str
    ffn_in: str = ""
    qkv_layout: Literal["apart", "joined", "by head"] = "apart"
    norms_behind: tuple[str, ...] = ()
    is_tied: bool = False
    ffn_norm: str = "final_layer_norm"
    has_biases: bool = True

    @property
    def is_gated(self) -> bool:
        """Whether FFNs have a third matrix, a gate."""
        return len(self.ffn_read) > 1

    def layer_modules(self, model: Any) -> list[tuple[Any, Any]]:
        """(attention output projection, FFN output module) of every layer, in layer order."""
        at_attention, at_ffn = attrgetter(self.attention_out), attrgetter(self.ffn_out)
        return [(at_attention(layer), at_ffn(layer)) for layer in self.layer_list(model)]

    def ffn_writers(self, model: Any) -> list[Any]:
        """The module of every layer whose matrix writes an FFN's inner activations into the residual stream."""
        at_matrix = attrgetter(self.ffn_write)
        return [at_matrix(layer) for layer in self.layer_list(model)]

    def layer_list(self, model: Any) -> list[Any]:
        """The transformer blocks, in order."""
        return list(attrgetter(self.layers)(model))

    def attention_modules(self, model: Any) -> list[Any]:
        """The attention module of every layer: what holds the output projection and returns the pattern second."""
        at_attention = attrgetter(self.attention_out.rpartition(".")[0])
        return [at_attention(layer) for layer in self.layer_list(model)]

    def final_norm(self, model: Any) -> Any:
        """The norm in front of the unembedding; None in OPT-350m, which has none."""
        return attrgetter(self.norm)(model)

    def norms_come_behind(self, model: Any) -> bool:
        """Whether the residual stream itself is normed, behind attention and FFN, as in OPT-350m."""
        return bool(self.norms_behind) and not model.config.do_layer_norm_before

    def projection(self, model: Any, name: str) -> Any:
        """`project_in` or `project_out` between d_model and the embeddings' width, in OPT-350m alone; else None."""
        return getattr(attrgetter(self.layers.rpartition(".")[0])(model), name, None)


SMALL = "headroom_small"  # models trained here whose keys are smeared, or whose positions are shortformer's
FAMILIES = {
    "opt": Family("OPT", "model.decoder.layers", "self_attn.out_proj", "fc2", "self_attn_layer_norm",
                  "model.decoder.final_layer_norm", ("q_proj", "k_proj", "v_proj"), ("fc1",), "fc2", "fc1",
                  norms_behind=("self_attn_layer_norm", "final_layer_norm"), is_tied=True),
    "llama": Family("Llama", "model.layers", "self_attn.o_proj", "mlp", "input_layernorm", "model.norm",
                    ("q_proj", "k_proj", "v_proj"), ("mlp.gate_proj", "mlp.up_proj"), "mlp.down_proj",
                    ffn_norm="post_attention_layernorm", has_biases=False),
    SMALL: Family("Headroom small", "model.layers", "self_attn.o_proj", "mlp", "input_layernorm", "model.norm",
                  ("q_proj", "k_proj", "v_proj"), ("mlp.gate_proj", "mlp.up_proj"), "mlp.down_proj",
                  ffn_norm="post_attention_layernorm", has_biases=False),
    "gpt2": Family("GPT-2", "transformer.h", "attn.c_proj", "mlp", "ln_1", "transformer.ln_f", ("c_attn",),
                   ("mlp.c_fc",), "mlp.c_proj", qkv_layout="joined", is_tied=True, ffn_norm="ln_2"),
    "gpt_neox": Family("GPT-NeoX", "gpt_neox.layers", "attention.dense", "mlp", "input_layernorm",
                       "gpt_neox.final_layer_norm", ("query_key_value",), ("mlp.dense_h_to_4h",), "mlp.dense_4h_to_h",
                       qkv_layout="by head", ffn_norm="post_attention_layernorm"),
}  # fmt: skip


def family_of(config: Mapping[str, Any]) -> Family:
    """The family of a model's config.json; HeadroomError when its architecture is not in the table."""
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise HeadroomError(
            f"model architecture {str(model_type)[:60]!r} is not supported; use a model of type {known}"
        )
    return FAMILIES[model_type]


def smears_keys(config: Mapping[str, Any]) -> bool:
    """Whether a model's keys are mixed with those of the token before, so that a key in its cache is none that
    attention reads."""
    return config.get("model_type") == SMALL and bool(config.get("smeared"))


def is_tied(config: Mapping[str, Any]) -> bool:
    """Whether a model's unembedding is its embedding."""
    said = config.get("tie_word_embeddings")
    return family_of(config).is_tied if said is None else bool(said)


class _Fields(TypedDict, total=False):
    """What is read of a config.json beside sizes."""

    tie_word_embeddings: bool | None
    do_layer_norm_before: bool | None
    enable_bias: bool | None
    attention_bias: bool | None
    mlp_bias: bool | None
    scale_attn_by_inverse_layer_idx: bool | None
    smeared: bool | None
    dtype: str | None
    torch_dtype: str | None


def shape_of(config: Mapping[str, Any]) -> ModelShape:
    """ModelShape read from a config.json; HeadroomError names the first field that is missing or makes no sense."""
    family_of(config)
    try:
        convert(dict(config), _Fields, "config.json")
    except InvalidFile as error:
        raise HeadroomError(f"{error}; repair the folder") from error

    def first(*names: str, default: int | None = None) -> int:
        for name in names:
            value = config.get(name)
            if value is not None:
                if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
                    raise HeadroomError(
                        f"config.json: {name} is {value!r}, must be a positive whole number; repair the folder"
                    )
                return value
        if default is None:
            raise HeadroomError(f"config.json has no {' or '.join(names)}; it is not a complete model config")
        return default

    first("word_embed_proj_dim", default=1)
    n_heads = first("num_attention_heads", "n_head")
    d_model = first("hidden_size", "n_embd")
    if d_model % n_heads and "head_dim" not in config:
        raise HeadroomError(f"config.json: width {d_model} is not a multiple of {n_heads} heads; repair the folder")
    return ModelShape(
        n_layers=first("num_hidden_layers", "n_layer"),
        n_heads=n_heads,
        n_key_value_heads=first("num_key_value_heads", default=n_heads),
        d_model=d_model,
        d_head=first("head_dim", default=d_model // n_heads),
        d_mlp=first("ffn_dim", "intermediate_size", "n_inner", default=4 * d_model),
        n_vocab=first("vocab_size"),
        n_ctx=first("max_position_embeddings", "n_positions"),
    )

"""What a family of models is: where its heads and FFNs live, and what its config.json says; and FAMILIES, the one list
of those that are supported. Names alone, no model code.

A head is reached at the *input* of the attention output projection (there the heads still lie side by side), an FFN at
the output of the last module of its branch, before the residual sum. That is all that pruning and scoring need.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Literal

# fields of a config.json that say where a model comes from
ABOUT = frozenset({"model_type", "architectures", "transformers_version", "license", "_name_or_path",
                   "headroom_alphabet"})  # fmt: skip
COMMON = ABOUT | {
    "vocab_size", "bos_token_id", "eos_token_id", "pad_token_id", "tokenizer_class", "tie_word_embeddings", "dtype",
    "torch_dtype", "use_cache", "attention_dropout", "initializer_range", "hidden_size", "num_hidden_layers",
    "num_attention_heads", "max_position_embeddings",
}  # fmt: skip
ROTARY = frozenset({"intermediate_size", "hidden_act", "head_dim", "rope_parameters", "rope_scaling", "rope_theta",
                    "partial_rotary_factor"})  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Family:
    """One architecture. Paths of modules go from the model (`layers`, `norm`) or else from a layer."""

    name: str  # as its authors write it

    # modules
    layers: str  # the list of layers
    attention_out: str  # the attention output projection
    qkv: tuple[str, ...]  # inside the attention module: three projections, or one that holds all three
    qkv_layout: Literal["apart", "joined", "by head"] = "apart"  # how one holds them: one after the other, or by head
    ffn_out: str  # the last module of the FFN's branch
    ffn_in: str = ""  # the first, where the FFN is not a module by itself
    ffn_read: tuple[str, ...]  # its matrices that read the residual stream; two: the first is a gate
    ffn_write: str  # its matrix that writes into the stream
    attention_norm: str
    ffn_norm: str
    norms_behind: tuple[str, ...] = ()  # of the stream itself after attention and FFN, where config says so
    norm: str  # the last norm of the model
    token_embedding: str  # the last part of its name, as of the next two
    position_embedding: str = ""  # of learned positions
    old_unembedding: str = ""  # another name than lm_head in published files

    # config.json
    fields: frozenset[str]  # the fields that are used in addition to COMMON
    own_names: Mapping[str, str] = field(default_factory=dict, hash=False)  # usual name -> its name
    n_extra_positions: int = 0  # rows of the position embedding beyond max_position_embeddings
    is_tied: bool = False  # whether the unembedding is the embedding, unless a config.json says otherwise
    has_biases: bool = True  # of norms and projections, unless these two fields say otherwise of projections
    attention_biases: str = ""
    ffn_biases: str = ""
    has_qkv_biases: bool = False  # queries, keys and values have biases where the other projections have none
    biased_type: str = ""  # the model_type that computes the same and has these two fields; "" where biases are there
    states_head_width: bool = False  # head_dim may differ from width / heads
    heads_divide_width: bool = False  # transformers refuses other numbers of heads even so
    window: Callable[[Mapping[str, Any]], Any] | None = None  # how many tokens attention reaches, by config.json
    adds_bos: bool = False  # the tokenizer puts the beginning token in front, whatever its own config says
    is_stock: bool = True  # transformers has a class for it

    tiny: Mapping[str, Mapping[str, Any]] = field(hash=False)  # for tests: name -> fields of its config.json

    @property
    def is_gated(self) -> bool:
        """Whether FFNs have a third matrix, a gate."""
        return len(self.ffn_read) > 1

    @property
    def attention(self) -> str:
        """The attention module, from a layer."""
        return self.attention_out.rpartition(".")[0]

    def own_name(self, usual: str) -> str:
        """This family's own name of a field that most call `usual`."""
        return self.own_names.get(usual, usual)

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
        at_attention = attrgetter(self.attention)
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


def _window(config: Mapping[str, Any]) -> Any:
    """How many tokens attention reaches in a Mistral; None: all. transformers takes 4096 if a config.json does not say.

    Within the window attention is full, so the window is the length of the context: texts are cut to it, and the model
    is built without it."""
    return config.get("sliding_window", 4096)


def _window_if_used(config: Mapping[str, Any]) -> Any:
    """The same of Qwen2, which seldom uses it, and then in some layers alone."""
    return _window(config) if config.get("use_sliding_window") else None


# from which families of its shape take what they share
LLAMA = Family(
    name="Llama",
    layers="model.layers",
    attention_out="self_attn.o_proj",
    qkv=("q_proj", "k_proj", "v_proj"),
    ffn_out="mlp",
    ffn_read=("mlp.gate_proj", "mlp.up_proj"),
    ffn_write="mlp.down_proj",
    attention_norm="input_layernorm",
    ffn_norm="post_attention_layernorm",
    norm="model.norm",
    token_embedding="embed_tokens",
    fields=ROTARY | {"num_key_value_heads", "rms_norm_eps", "attention_bias", "mlp_bias", "pretraining_tp"},
    has_biases=False,
    attention_biases="attention_bias",
    ffn_biases="mlp_bias",
    biased_type="llama",
    states_head_width=True,
    heads_divide_width=True,
    tiny={"llama": {"num_key_value_heads": 2}},
)
# without biases anywhere, in some versions with a window (v0.1: 4096 tokens). Biases that hold means (`--fill mean`)
# turn it into a Llama, which computes the same
MISTRAL = replace(
    LLAMA,
    name="Mistral",
    fields=LLAMA.fields - {"attention_bias", "mlp_bias", "pretraining_tp"} | {"sliding_window"},
    attention_biases="",
    ffn_biases="",
    heads_divide_width=False,
    window=_window,
    tiny={"mistral": {"hidden_size": 48, "head_dim": 8, "num_key_value_heads": 2, "max_position_embeddings": 512,
                      "sliding_window": 256, "initializer_range": 0.25}},
)  # fmt: skip
# by what a config.json says as its `model_type`
FAMILIES: dict[str, Family] = {
    # its 350m has narrow embeddings that are projected, and norms behind attention and FFN
    "opt": Family(
        name="OPT",
        layers="model.decoder.layers",
        attention_out="self_attn.out_proj",
        qkv=("q_proj", "k_proj", "v_proj"),
        ffn_in="fc1",
        ffn_out="fc2",
        ffn_read=("fc1",),
        ffn_write="fc2",
        attention_norm="self_attn_layer_norm",
        ffn_norm="final_layer_norm",
        norms_behind=("self_attn_layer_norm", "final_layer_norm"),
        norm="model.decoder.final_layer_norm",
        token_embedding="embed_tokens",
        position_embedding="embed_positions",
        fields=frozenset({"ffn_dim", "word_embed_proj_dim", "do_layer_norm_before", "_remove_final_layer_norm",
                          "dropout", "activation_function", "layerdrop", "init_std", "enable_bias",
                          "layer_norm_elementwise_affine"}),
        own_names={"intermediate_size": "ffn_dim", "initializer_range": "init_std"},
        n_extra_positions=2,
        is_tied=True,
        attention_biases="enable_bias",
        ffn_biases="enable_bias",
        adds_bos=True,
        tiny={"opt": {"word_embed_proj_dim": 32},
              "opt-350m": {"word_embed_proj_dim": 16, "do_layer_norm_before": False},
              "opt-untied": {"word_embed_proj_dim": 32, "tie_word_embeddings": False, "vocab_size": 600}},
    ),
    "llama": LLAMA,
    # trained here: Llama but for smeared keys or shortformer positions (`architecture.modeling_headroom`)
    "headroom_small": replace(
        LLAMA,
        name="Headroom small",
        fields=LLAMA.fields | {"smeared", "positions"},
        is_stock=False,
        biased_type="",
        tiny={"small": {"smeared": True, "attention_bias": True}},
    ),
    "mistral": MISTRAL,
    # and Qwen2.5: Llama's shape, with biases of queries, keys and values alone; small ones are tied
    "qwen2": replace(
        MISTRAL,
        name="Qwen2",
        fields=MISTRAL.fields | {"use_sliding_window", "max_window_layers"},
        has_qkv_biases=True,
        window=_window_if_used,
        tiny={"qwen2": {"num_key_value_heads": 2, "tie_word_embeddings": True}},
    ),
    # queries, keys and values from one matrix, and matrices that hold (inputs, outputs)
    "gpt2": Family(
        name="GPT-2",
        layers="transformer.h",
        attention_out="attn.c_proj",
        qkv=("c_attn",),
        qkv_layout="joined",
        ffn_out="mlp",
        ffn_read=("mlp.c_fc",),
        ffn_write="mlp.c_proj",
        attention_norm="ln_1",
        ffn_norm="ln_2",
        norm="transformer.ln_f",
        token_embedding="wte",
        position_embedding="wpe",
        fields=frozenset({"n_embd", "n_layer", "n_head", "n_positions", "n_inner", "activation_function", "resid_pdrop",
                          "embd_pdrop", "attn_pdrop", "layer_norm_epsilon", "scale_attn_weights",
                          "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"}),
        own_names={"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
                   "intermediate_size": "n_inner", "max_position_embeddings": "n_positions"},
        is_tied=True,
        tiny={"gpt2": {"n_inner": None}},
    ),
    # and Pythia: queries, keys and values from one matrix, head by head
    "gpt_neox": Family(
        name="GPT-NeoX",
        layers="gpt_neox.layers",
        attention_out="attention.dense",
        qkv=("query_key_value",),
        qkv_layout="by head",
        ffn_out="mlp",
        ffn_read=("mlp.dense_h_to_4h",),
        ffn_write="mlp.dense_4h_to_h",
        attention_norm="input_layernorm",
        ffn_norm="post_attention_layernorm",
        norm="gpt_neox.final_layer_norm",
        token_embedding="embed_in",
        old_unembedding="embed_out",
        fields=ROTARY | {"attention_bias", "layer_norm_eps", "hidden_dropout", "use_parallel_residual", "rotary_pct",
                         "rotary_emb_base"},
        attention_biases="attention_bias",
        tiny={"gpt_neox": {}},
    ),
}  # fmt: skip

"""What a family of models is: where its heads and FFNs live, and what its config.json says. Names alone, no model code.

A head is reached at the *input* of the attention output projection (there the heads still lie side by side), an FFN at
the output of the last module of its branch, before the residual sum. That is all that pruning and scoring need.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Literal

from engine.errors import HeadroomError

# fields of a config.json that say where a model comes from
ABOUT = frozenset({"model_type", "architectures", "transformers_version", "license", "_name_or_path",
                   "headroom_alphabet"})  # fmt: skip
COMMON = ABOUT | {
    "vocab_size", "bos_token_id", "eos_token_id", "pad_token_id", "tokenizer_class", "tie_word_embeddings", "dtype",
    "torch_dtype", "use_cache", "attention_dropout", "initializer_range", "hidden_size", "num_hidden_layers",
    "num_attention_heads", "max_position_embeddings", "is_causal",
}  # fmt: skip
ROTARY = frozenset({"intermediate_size", "hidden_act", "head_dim", "rope_parameters", "rope_scaling", "rope_theta",
                    "partial_rotary_factor", "original_max_position_embeddings"})  # fmt: skip
BIASES = "attention_biases", "qkv_biases", "ffn_biases", "norm_biases"
ByLayer = Callable[[Mapping[str, Any]], Mapping[str, list[Any]]]
Windows = Callable[[Mapping[str, Any]], Sequence[Any]]
SLIDING, FULL = "sliding_attention", "full_attention"  # a layer's type, by whether it has a window


@dataclass(frozen=True)
class Scales:
    """Numbers that a model multiplies what its modules give by, where none of its weights says so."""

    residual: float = 1.0  # what attention and FFNs give, before the residual sum
    embedding: float = 1.0  # embeddings, after the module
    logits_divisor: float = 1.0  # logits are divided by it


@dataclass(frozen=True)
class AttentionLayout:
    """Where attention has its matrices."""

    out: str  # the output projection, from a layer
    # inside the attention module: three projections, or one that holds all three
    qkv: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    # how one holds them: one after the other (joined: its matrix holds (inputs, outputs)), or by key head: the queries
    # of the heads that share it, and then its key and value
    packing: Literal["apart", "stacked", "joined", "by head"] = "apart"

    @property
    def module(self) -> str:
        """The attention module, from a layer."""
        return self.out.rpartition(".")[0]

    @property
    def is_one_matrix(self) -> bool:
        """Whether one matrix holds queries, keys and values."""
        return self.packing != "apart"


@dataclass(frozen=True)
class ToTry:
    """A small model on the Hub."""

    model: str  # its id
    gigabytes: float  # to download


@dataclass(frozen=True, kw_only=True)
class Family:
    """One architecture. Paths of modules go from the model (`layers`, `norm`) or else from a layer."""

    name: str  # as its authors write it
    models: str = ""  # which models it has, if its name does not say so
    to_try: ToTry | None = None  # None: none is on the Hub

    # modules
    layers: str  # the list of layers
    attention: AttentionLayout
    # the FFN's matrices: one that reads the residual stream, or two, first a gate; and the one that writes into it
    ffn: tuple[str, ...]
    has_joint_gate: bool = False  # one matrix holds the gate, too
    ffn_adds_stream: bool = False  # the FFN's module gives the residual sum, so that its branch is its matrices alone
    # in front of attention and of the FFN, "" for none; a single one: they are parallel, and both read what it gives
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    norms_after: tuple[str, str] = ("", "")  # of what attention and FFN give, before the residual sum
    norm_offset: int = 0  # what a norm adds to its weights before it multiplies by them
    can_norm_behind: bool = False  # config.json may say that they norm the stream itself, behind attention and FFN
    qk_norms: tuple[str, ...] = ()  # inside the attention module, of queries and of keys, before they are turned
    norms_all_heads: bool = False  # each of these is of all heads of a layer at once, so that none can be cut out
    norm: str  # the last norm of the model
    token_embedding: str  # the last part of its name, as of the next three
    embedding_norm: str = ""  # of embeddings, in front of layer 0
    position_embedding: str = ""  # of learned positions
    old_unembedding: str = ""  # another name than lm_head in published files

    # config.json
    fields: frozenset[str]  # the fields that are used in addition to COMMON and `own_names`
    own_names: Mapping[str, str] = field(default_factory=dict, hash=False)  # usual name -> its name
    defaults: Mapping[str, int] = field(default_factory=dict, hash=False)  # what transformers takes for a missing field
    n_extra_positions: int = 0  # rows of the position embedding beyond max_position_embeddings
    is_tied: bool = False  # whether the unembedding is the embedding, unless a config.json says otherwise
    has_biases: bool = True  # of norms and projections, but for those of which one of these four says otherwise
    attention_biases: str | bool = ""  # whether, or the field of config.json that says so
    qkv_biases: str | bool = ""  # of queries, keys and values, where they differ from the output projection
    ffn_biases: str | bool = ""
    norm_biases: str | bool = ""
    has_unembedding_bias: bool = False
    cuts_heads: bool = True  # whether the code of an exported `small` model knows layers with some of their heads
    states_head_width: bool = False  # head_dim may differ from width / heads
    heads_divide_width: bool = False  # transformers refuses other numbers of heads even so
    refused: Mapping[str, str] = field(default_factory=dict, hash=False)  # field that must be off -> why
    variant: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None  # what differs by config.json
    by_layer: ByLayer | None = None  # fields with an entry for each layer
    # how many tokens each layer attends to, None for all, by config.json
    windows: Windows = lambda config: ()
    long_ropes: tuple[str, ...] = ("longrope",)  # names of the rotation whose angles depend on the input's length
    # transformers' attention neither takes functions by name nor do layers give a tensor: see `adapt_attention`
    is_adapted: bool = False
    caps_scores: bool = False  # of attention
    scales: Callable[[Mapping[str, Any]], Scales] = lambda config: Scales()
    is_stock: bool = True  # transformers has a class for it
    is_verified: bool = (
        True  # the layout is stated here, and tested; else it was recognized (`engine.architecture.unverified`)
    )

    tiny: Mapping[str, Mapping[str, Any]] = field(hash=False)  # for tests: name -> fields of its config.json

    @property
    def is_gated(self) -> bool:
        """Whether FFNs have a third matrix, a gate."""
        return self.has_joint_gate or len(self.ffn_read) > 1

    @property
    def ffn_read(self) -> tuple[str, ...]:
        """The FFN's matrices that read the residual stream."""
        return self.ffn[:-1]

    @property
    def ffn_write(self) -> str:
        """The FFN's matrix that writes into the residual stream."""
        return self.ffn[-1]

    @property
    def n_layer_norms(self) -> int:
        """How many norms of the residual stream's width a layer has."""
        return sum(map(bool, (*self.norms, *self.norms_after)))

    @property
    def attends_by(self) -> Literal["sdpa", "eager"]:
        """transformers' attention function. The first cannot cap scores, and adapted modules know only the second."""
        return "eager" if self.caps_scores or self.is_adapted else "sdpa"

    @property
    def ffn_module(self) -> str:
        """The module of the FFN, from a layer; "" if its matrices are in the layer itself."""
        return self.ffn_write.rpartition(".")[0]

    @property
    def ffn_in(self) -> str:
        """The first module of the FFN's branch; "" if the last is the only one."""
        if self.ffn_adds_stream or not self.ffn_module:
            return self.ffn_read[0]
        return self.ffn_module if self.norms_after[1] else ""

    @property
    def ffn_out(self) -> str:
        """The last module of the FFN's branch."""
        module = "" if self.ffn_adds_stream else self.ffn_module
        return self.norms_after[1] or module or self.ffn_write

    @property
    def norms_before(self) -> tuple[str, ...]:
        """The norms in front of attention and of the FFN that go where these go, "" for none."""
        return self.norms if len(self.norms) > 1 else ("", "")

    @property
    def used_fields(self) -> frozenset[str]:
        """The fields of config.json that are used."""
        return COMMON | self.fields | {*self.own_names.values()}

    def derived(self, without: Iterable[str] = (), also: Iterable[str] = (), **changes: Any) -> "Family":
        """A family that is this one but for `changes`, and that uses fields of config.json `without` some and `also`
        others. What is said of models and their files is not taken over, nor a limit of transformers, nor that a field
        says whether there are biases if the family does not use it."""
        own = {"models": "", "to_try": None, "old_unembedding": "", "heads_divide_width": False}
        changes = own | {"fields": self.fields - {*without} | {*also}} | changes
        by_field = [name for name in BIASES if isinstance(getattr(self, name), str)]
        unsaid = {name: "" for name in by_field if getattr(self, name) not in changes["fields"]}
        return replace(self, **unsaid | changes)

    def own_name(self, usual: str) -> str:
        """This family's own name of a field that most call `usual`."""
        return self.own_names.get(usual, usual)

    def layer_modules(self, model: Any) -> list[tuple[Any, Any]]:
        """(attention output projection, FFN output module) of every layer, in layer order."""
        at_attention, at_ffn = attrgetter(self.attention.out), attrgetter(self.ffn_out)
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
        at_attention = attrgetter(self.attention.module)
        return [at_attention(layer) for layer in self.layer_list(model)]

    def final_norm(self, model: Any) -> Any:
        """The norm in front of the unembedding; None in OPT-350m, which has none."""
        return attrgetter(self.norm)(model)

    def norms_come_behind(self, model: Any) -> bool:
        """Whether the residual stream itself is normed, behind attention and FFN, as in OPT-350m."""
        return self.can_norm_behind and not model.config.do_layer_norm_before

    def projection(self, model: Any, name: str) -> Any:
        """`project_in` or `project_out` between d_model and the embeddings' width, in OPT-350m alone; else None."""
        return getattr(attrgetter(self.layers.rpartition(".")[0])(model), name, None)


def window_everywhere(usual: int | None = None) -> Windows:
    """`Family.windows` of a family whose layers all have the window that `sliding_window` says; `usual`: what
    transformers takes for a missing field."""
    return lambda config: [config.get("sliding_window", usual)] * config["num_hidden_layers"]


def layer_types(config: Mapping[str, Any], usual: list[str]) -> Any:
    """The type of each layer as config.json lists it, by today's names, or else the usual ones. HeadroomError: these
    are not types of attention that Headroom reads."""
    types = config.get("layer_types")
    if types is None:
        return usual
    types = [{"attention": FULL}.get(each, each) for each in types] if isinstance(types, list) else types
    if not isinstance(types, list) or len(types) != len(usual) or not {*map(str, types)} <= {SLIDING, FULL}:
        raise HeadroomError(f"config.json: layer_types is {str(config['layer_types'])[:60]}, and Headroom reads a list "
                            f"of {FULL} and {SLIDING}, one for each of {len(usual)} layers; use a model with "
                            "these")  # fmt: skip
    return types


def windows_by_type(by_layer: ByLayer, window: Callable[[Mapping[str, Any]], Any], is_needed: bool = False) -> Windows:
    """`Family.windows` of a family whose layers have types, by the window of those that have one; `is_needed`:
    transformers requires one even if no layer uses it. The result raises HeadroomError if the window is missing."""

    def windows(config: Mapping[str, Any]) -> list[Any]:
        types, reach = by_layer(config)["layer_types"], window(config)
        if reach is None and (is_needed or SLIDING in types):
            raise HeadroomError("config.json: layers have a window, and sliding_window is null or off; repair it")
        return [reach if kind == SLIDING else None for kind in types]

    return windows

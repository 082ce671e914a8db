"""Private and fragile parts of transformers. Read in version 5.23; each has a test in
tests/engine/test_library_internals.py.

The one exception is engine/export/modeling_pruned.py, which is copied next to exported weights and stands alone.
"""

from __future__ import annotations

import copy
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache as once
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.architecture.families.definition import Family
from engine.architecture.family import model_fields
from engine.architecture.torch_internals import compiler_left_out, replace_class, replaced

if TYPE_CHECKING:
    from torch import Tensor


@once
def import_models() -> None:
    """Imports what all classes of models need. They import torch's compiler, its distributed tensors and scipy with it,
    which nothing here uses: left out, as that would be two thirds of the work. The folder of models is read once, not
    twice."""
    import transformers
    from transformers.utils import import_utils

    structure = import_utils.define_import_structure

    def known(path: Any, prefix: str | None = None) -> Any:
        is_models = os.path.dirname(path) == os.path.join(transformers.__path__[0], "models")
        return modules_of_models() if is_models else structure(path, prefix)

    absent = dict.fromkeys(("is_scipy_available", "is_torch_distributed_available"), lambda: False)
    with (
        compiler_left_out(),
        replaced(import_utils.__dict__, define_import_structure=known, **absent),
        replaced(transformers.utils.__dict__, **absent),
    ):
        import transformers.generation.utils
        import transformers.modeling_layers  # noqa: F401


def modules_of_models() -> Any:
    """The modules in transformers' folder of models, each with its public names, by what they need; transformers has
    read them when it is imported, and lists them with a prefix."""
    import transformers
    from transformers.utils.import_utils import define_import_structure

    listed = define_import_structure(Path(transformers.__path__[0]) / "models", prefix="models")
    return {needs: {name[7:]: names for name, names in each.items() if name.startswith("models.")}
            for needs, each in listed.items()}  # fmt: skip


@contextmanager
def attention_named(model: Any, name: str) -> Iterator[None]:
    """Context in which a model uses the attention function that is registered under this name. The public setter has no
    getter, and looks through all modules, too slow for once a forward pass."""
    before = model.config._attn_implementation
    try:
        model.config._attn_implementation = name
        yield
    finally:
        model.config._attn_implementation = before


@once
def _attention_functions() -> Any:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    return ALL_ATTENTION_FUNCTIONS


def sdpa_attention() -> Callable[..., Any]:
    """The attention function around torch's scaled_dot_product_attention."""
    return _attention_functions()["sdpa"]


def capped_attention() -> Callable[..., Any]:
    """The attention function of models that cap scores (`softcap`); it needs a mask, which is added to them."""
    from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward

    return eager_attention_forward


def attention_chooser() -> Callable[[Any], Callable[..., Any]]:
    """A function from a config to the attention function that a model of it uses, as transformers' own layers find
    it."""
    from transformers.models.llama.modeling_llama import eager_attention_forward

    functions = _attention_functions()

    def choose(config: Any) -> Callable[..., Any]:
        return functions.get_interface(str(config._attn_implementation), eager_attention_forward)

    return choose


def takes_mean(norm: Any) -> bool:
    """Whether a norm takes the mean away before it divides: torch's LayerNorm, and that of Cohere models."""
    import torch

    return isinstance(norm, torch.nn.LayerNorm) or type(norm).__name__ == "CohereLayerNorm"


def adapt_attention(family: Family, model: Any) -> None:
    """Has the attention modules of a model, which compute by themselves (`Family.is_adapted`), look up by name what
    they attend by, as in all other models; under the name `eager` they compute what they always have."""
    adapted = {"_attn": _adapted, "_reshape": _adapted_bloom, "Wqkv": _adapted_mpt, "_split_heads": _adapted_falcon}
    layers = family.layer_list(model)
    for number, module in enumerate(family.attention_modules(model)):
        module.layer_idx, module.config = number, model.config  # GPT-Neo calls one otherwise, BLOOM has not the other
        mark = next(name for name in adapted if hasattr(module, name))
        replace_class(module, adapted[mark](type(module)))
        if mark == "_split_heads":
            _adapt_falcon_layer(layers[number])


@once
def _adapted(attention: Any) -> Any:
    """A class that is `attention` but for `_attn`, which gives (z (B, H, T, d_head), pattern)."""
    choose = attention_chooser()

    class Adapted(attention):
        def _attn(self, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any = None) -> tuple[Tensor, Any]:
            if self.config._attn_implementation == "eager":
                return super()._attn(query, key, value, attention_mask)
            window = self.config.window_size if getattr(self, "attention_type", "") == "local" else None
            if window is not None and attention_mask is not None:
                n, n_keys = query.shape[2], key.shape[2]
                hidden = ~self.bias[..., n_keys - n : n_keys, :n_keys]
                attention_mask = attention_mask.masked_fill(hidden, -3e38)
            scaling = 1 / getattr(self, "scale_attn", 1.0)  # GPT-Neo does not scale
            given = self, query, key, value, attention_mask
            z, pattern = choose(self.config)(*given, scaling=scaling, sliding_window=window)
            return z.transpose(1, 2), pattern

    return Adapted


@once
def _adapted_bloom(attention: Any) -> Any:
    """The same of BLOOM's, which adds the stream to what it gives. An attention function gets its mask with the biases
    by distance in it; without a mask it adds them itself, `slopes` (H,) times the position of a key."""
    from transformers.models.bloom.modeling_bloom import _get_alibi_slopes

    choose = attention_chooser()

    class Adapted(attention):
        def forward(self, hidden_states: Tensor, residual: Tensor, alibi: Tensor, attention_mask: Any,
                    layer_past: Any = None, **options: Any) -> tuple[Tensor, Any]:  # fmt: skip
            if self.config._attn_implementation == "eager":
                return super().forward(hidden_states, residual, alibi, attention_mask, layer_past, **options)
            query, key, value = self._reshape(self.query_key_value(hidden_states))
            if layer_past is not None:
                key, value = layer_past.update(key, value, self.layer_idx)
            if attention_mask is not None:
                attention_mask = attention_mask + alibi.unflatten(0, (-1, self.num_heads))
            slopes = _get_alibi_slopes(self.num_heads, query.device)
            given = self, query, key, value, attention_mask
            z, pattern = choose(self.config)(*given, scaling=self.inv_norm_factor, slopes=slopes)
            return self.dense(z.flatten(2)) + residual, pattern

    return Adapted


@once
def _adapted_mpt(attention: Any) -> Any:
    """The same of MPT's, which adds its biases in fp32."""
    import torch
    from transformers.models.mpt import modeling_mpt

    choose, names = attention_chooser(), modeling_mpt.__dict__
    make_mask = names["create_causal_mask"]

    def a_mask(**options: Any) -> Tensor:  # the model takes one for granted
        found = make_mask(**options)
        return torch.zeros(1, dtype=torch.bool) if found is None else found

    names["create_causal_mask"] = a_mask

    class Adapted(attention):
        def forward(self, hidden_states: Tensor, position_bias: Tensor, past_key_values: Any = None,
                    attention_mask: Any = None, **options: Any) -> tuple[Tensor, Any]:  # fmt: skip
            if self.config._attn_implementation == "eager":
                return super().forward(hidden_states, position_bias, past_key_values, attention_mask, **options)
            qkv = self.Wqkv(hidden_states)
            if self.clip_qkv:
                qkv = qkv.clamp(min=-self.clip_qkv, max=self.clip_qkv)
            query, *rest = (each.unflatten(2, (self.n_heads, -1)).transpose(1, 2) for each in qkv.chunk(3, dim=2))
            key, value = rest if past_key_values is None else past_key_values.update(*rest, self.layer_idx)
            hidden = attention_mask.to(query.device)
            biases = position_bias[..., -key.shape[2] :].masked_fill(hidden, torch.finfo(torch.float32).min)
            given = self, query.float(), key.float(), value.float(), biases
            slopes = -position_bias[:, 0, -2]
            z, pattern = choose(self.config)(*given, scaling=self.softmax_scale, slopes=slopes)
            return self.out_proj(z.flatten(2).to(hidden_states.dtype)), pattern

    return Adapted


@once
def _adapted_falcon(attention: Any) -> Any:
    """The same of Falcon's without ALiBi."""
    from transformers.models.falcon.modeling_falcon import apply_rotary_pos_emb

    choose = attention_chooser()

    class Adapted(attention):
        def forward(self, hidden_states: Tensor, alibi: None, attention_mask: Any, position_ids: Any = None,
                    layer_past: Any = None, **options: Any) -> tuple[Tensor, Any]:  # fmt: skip
            if self.config._attn_implementation == "eager":
                return super().forward(hidden_states, alibi, attention_mask, position_ids, layer_past, **options)
            split = self._split_heads(self.query_key_value(hidden_states))
            query, key, value = (each.transpose(1, 2) for each in split)
            query, key = apply_rotary_pos_emb(query, key, *options["position_embeddings"])
            if layer_past is not None:
                key, value = layer_past.update(key, value, self.layer_idx)
            self.num_key_value_groups = query.shape[1] // key.shape[1]
            given = self, query, key, value, attention_mask
            z, pattern = choose(self.config)(*given, scaling=self.inv_norm_factor)
            return self.dense(z.flatten(2)), pattern

    return Adapted


def _adapt_falcon_layer(layer: Any) -> None:
    """Has a layer of Falcon leave what its FFN gave as it is, and its matrices be ones that bitsandbytes quantizes."""
    import torch

    replace_class(layer, _parallel(type(layer)))
    for each in layer.modules():
        if isinstance(each, torch.nn.Linear):
            replace_class(each, torch.nn.Linear)


@once
def _parallel(layer: Any) -> Any:
    """A class that is Falcon's `layer` with parallel parts but for its sum, which that adds to the FFN's output in
    place, though others may hold it."""

    class Parallel(layer):
        def forward(self, hidden_states: Tensor, *args: Any, **options: Any) -> tuple[Tensor, Any]:
            norms = [getattr(self, name) for name in ("ln_attn", "ln_mlp", "input_layernorm") if hasattr(self, name)]
            read = [norm(hidden_states) for norm in norms]
            found, pattern = self.self_attention(read[0], *args, **options)
            return hidden_states + (self.mlp(read[-1]) + found), pattern

    return Parallel


def additive_mask() -> Callable[..., Any]:
    """The function that makes the mask of eager attention, which is added to scores."""
    from transformers.masking_utils import eager_mask

    return eager_mask


def llama_attention() -> Any:
    """The class of Llama's attention, to derive from: `q_proj`, `k_proj`, `v_proj`, `o_proj`, `head_dim`, `scaling` and
    `layer_idx` are its attributes, and a layer calls it with `position_embeddings` and `past_key_values`."""
    from transformers.models.llama.modeling_llama import LlamaAttention

    return LlamaAttention


def replace_positions(model: Any, positions: Any) -> None:
    """Has all layers of a Llama model get what this module makes of position ids, in place of rotary cosines and
    sines."""
    model.model.rotary_emb = positions


def model_config(config: Mapping[str, Any]) -> Any:
    """transformers' config object of a config.json, from its known fields alone: it would keep all others, and a model
    of it would download and import the attention kernel that they name."""
    import transformers

    return transformers.AutoConfig.for_model(config["model_type"], **copy.deepcopy(model_fields(config)))


def causal_lm_class(config: Any) -> Any:
    """The class of language models with this config, without making one."""
    import transformers

    return transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]


def empty_model(model_class: Any, config: Any) -> Any:
    """A model of this class on torch's meta device, whose weights have shapes only: none is initialized."""
    import torch
    from transformers.initialization import no_init_weights

    with torch.device("meta"), no_init_weights():
        return model_class(copy.deepcopy(config))


def tied_weights(model: Any) -> Mapping[str, str]:
    """Names of parameters that are one and the same, either of which a checkpoint may hold."""
    return model.all_tied_weights_keys


def load_tensors(
    model_class: Any, tensors: Mapping[str, Any], begin: Callable[[Any], None] | None = None, **options: Any
) -> tuple[Any, Mapping[str, Any]]:
    """(a model of this class with these tensors, what transformers reports of its keys). from_pretrained without a name
    takes them from `state_dict`, and reads each by `tensors[name][...]` when its turn comes, layer by layer.

    `begin` gets the model before the first tensor is read; nothing public gives a model while it is being loaded.
    """
    import torch

    built = model_class if begin is None else _beginning(model_class, begin)
    # torch would import sympy to initialize an embedding that has no memory yet
    with replaced(torch.nn.init.__dict__, normal_=lambda weight, **options: weight):
        model, report = built.from_pretrained(
            None, state_dict=tensors, output_loading_info=True, ignore_mismatched_sizes=True, **options
        )
    if begin is not None:
        replace_class(model, model_class)
    return model, report


def _beginning(model_class: Any, begin: Callable[[Any], None]) -> Any:
    def init(model: Any, *args: Any, **options: Any) -> None:
        model_class.__init__(model, *args, **options)
        begin(model)

    return type(model_class.__name__, (model_class,), {"__init__": init, "__module__": model_class.__module__})


def mark_loaded(parameter: Any) -> None:
    """Marks a parameter that was replaced during a load as loaded: at the end transformers fills all others with random
    numbers."""
    parameter._is_hf_initialized = True


def keys_and_values(cache: Any) -> dict[int, tuple[Tensor, Tensor]]:
    """Keys and values (B, H, T, d_head) in a DynamicCache by layer; a layer without heads has none."""
    return {at: (layer.keys, layer.values) for at, layer in enumerate(cache.layers) if layer.is_initialized}


def count_tokens(hidden_states: Tensor, given: Sequence[Any]) -> None:
    """Notes in a cache, if one is among what a layer was `given`, that layer 0 has read these positions: transformers
    counts the tokens of a cache there."""
    for cache in given:
        if hasattr(cache, "get_seq_length"):
            zeros = hidden_states.new_zeros(len(hidden_states), 1, hidden_states.shape[1], 1)
            cache.update(zeros, zeros, 0)


def read_by_head(attention: Any, reads: Sequence[int]) -> Any:
    """Has the heads of a Llama attention read these key and value heads, each of which the cache holds once; gives the
    hook, to be removed. The attention itself repeats all key heads alike (`num_key_value_groups`, here 1)."""

    def wrap(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return args, kwargs | {"past_key_values": _ReadByHead(kwargs.get("past_key_values"), list(reads))}

    return attention.register_forward_pre_hook(wrap, with_kwargs=True)


class _ReadByHead:
    """What the attention takes for its cache: `update` gives keys and values by head."""

    def __init__(self, cache: Any, reads: list[int]) -> None:
        self.cache, self.reads = cache, reads

    def update(self, keys: Tensor, values: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if self.cache is not None:
            keys, values = self.cache.update(keys, values, *args, **kwargs)
        return keys[:, self.reads], values[:, self.reads]


def supply_squad_metrics(compute_exact: Callable[..., Any], compute_f1: Callable[..., Any]) -> None:
    """Puts these two functions into a module of transformers that version 5 has dropped, and from which
    lm-evaluation-harness 0.4.13 still imports them: its ReCoRD task cannot be loaded without."""
    parent, name = "transformers.data.metrics", "transformers.data.metrics.squad_metrics"
    if name in sys.modules:
        return
    package, module = types.ModuleType(parent), types.ModuleType(name)
    package.__path__ = []  # makes it a package to the import system
    module.__dict__.update(compute_exact=compute_exact, compute_f1=compute_f1)
    package.__dict__["squad_metrics"] = module
    sys.modules.setdefault(parent, package)
    sys.modules[name] = module

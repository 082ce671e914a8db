"""A language model with attention heads and feed-forward networks (FFNs) pruned, differently in each layer.

Written by Headroom next to the weights that need it. Builds the stock model of transformers, then replaces modules of
each layer by smaller ones: projections for the remaining heads, and for a pruned FFN or attention the constant (its
output bias) that it still adds. `per_layer_config` describes each layer; `kept_heads` lists its heads by their number
in the full model.
"""
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

from copy import copy
from functools import partial
from typing import Any

import torch
import transformers
from torch import nn
from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.pytorch_utils import Conv1D

if int(transformers.__version__.partition(".")[0]) < 5:  # it knows no `per_layer_config`
    raise ImportError(f"this model needs transformers 5 or newer, and this is {transformers.__version__}; update it")

BLOOM = "pruned_bloom"  # whose attention adds the residual stream
ALIBI = {BLOOM: "alibi", "pruned_mpt": "position_bias"}  # biases by distance: (rows * heads, 1, keys), or without rows


class NoFFN(nn.Module):
    """A pruned FFN."""

    def __init__(self, width, has_bias):
        super().__init__()
        self.constant = nn.Parameter(torch.zeros(width)) if has_bias else None

    def forward(self, hidden_states):
        nothing = torch.zeros_like(hidden_states)
        return nothing if self.constant is None else nothing + self.constant


class NoAttention(NoFFN):
    """An attention without heads. In the first layer of each type it caches one zero per token, because transformers
    counts tokens there; `counts_in` is the number of such a layer, else None. BLOOM's attention `adds_residual`."""

    def __init__(self, width, has_bias, counts_in=None, adds_residual=False):
        super().__init__(width, has_bias)
        self.counts_in, self.adds_residual = counts_in, adds_residual

    def forward(self, hidden_states, *args, past_key_values=None, layer_past=None, **kwargs):
        cache = past_key_values if past_key_values is not None else layer_past
        if self.counts_in is not None and cache is not None:
            zeros = hidden_states.new_zeros(len(hidden_states), 1, hidden_states.shape[1], 1)
            cache.update(zeros, zeros, self.counts_in)
        added = super().forward(hidden_states)
        return (added + args[0] if self.adds_residual else added), None


def _alibi_of(kept, n_heads, attention, args, kwargs):
    """Makes the remaining heads read their own biases by distance, of those of all heads."""
    name = next(name for name in ALIBI.values() if name in kwargs)
    return args, {**kwargs, name: kwargs[name].unflatten(0, (-1, n_heads))[:, kept].flatten(0, 1)}


def _read_by_head(reads, attention, args, kwargs):
    """Makes heads in groups of different sizes read their shared keys and values, each cached once."""
    return args, {**kwargs, "past_key_values": _ReadByHead(kwargs.get("past_key_values"), reads)}


class _ReadByHead:
    def __init__(self, cache, reads):
        self.cache, self.reads = cache, reads

    def update(self, keys, values, *args, **kwargs):
        if self.cache is not None:
            keys, values = self.cache.update(keys, values, *args, **kwargs)
        return keys[:, self.reads], values[:, self.reads]


class Pruned:
    """A stock model with smaller layers; a subclass names its modules, as given to `pruned_classes`."""

    LAYERS = ATTENTION = OUT = FFN = FFN_BEGINS = ""
    PROJECTIONS: tuple = ()
    NORMS: tuple = ()

    def __init__(self, config):
        layers, stated = list(config.per_layer_config), config.to_dict().get("per_layer_config")
        config.per_layer_config = None  # the stock model supports only equal layers
        super().__init__(config)
        for number, layer in enumerate(self.get_submodule(self.LAYERS)):
            self._shrink(number, layer, layers[number])
        config.per_layer_config = stated
        config.allow_global_per_layer_attribute_access = True  # angles of positions are the same in all layers

    def _shrink(self, number, layer, own):
        config, gone = self.config, getattr(own, "skip", None) or []
        attention, kept = layer.get_submodule(self.ATTENTION), config.kept_heads[number]
        width, d_head = config.hidden_size, config.head_dim
        norms_before = getattr(config, "do_layer_norm_before", True)
        if "attention" in gone:
            has_bias = getattr(attention, self.OUT).bias is not None
            types = getattr(config, "layer_types", None) or [""] * config.num_hidden_layers
            counts_in = number if number in (0, types.index(types[number])) else None
            layer.set_submodule(self.ATTENTION, NoAttention(width, has_bias, counts_in, config.model_type == BLOOM))
            if norms_before and self.NORMS[0]:
                setattr(layer, self.NORMS[0], nn.Identity())
        elif len(kept) < config.num_attention_heads:
            shared = config.num_attention_heads // (getattr(config, "num_key_value_heads", None) or
                                                    config.num_attention_heads)  # fmt: skip
            keys = sorted({head // shared for head in kept})
            reads = [keys.index(head // shared) for head in kept]
            groups = len(kept) // len(keys)
            if shared > 1 and reads != [n // groups for n in range(len(kept))]:
                attention.register_forward_pre_hook(partial(_read_by_head, reads), with_kwargs=True)
                groups = 1
            if config.model_type in ALIBI:
                attention.register_forward_pre_hook(
                    partial(_alibi_of, kept, config.num_attention_heads), with_kwargs=True
                )
            sizes = [len(kept), len(keys), len(keys)]
            sizes = sizes if len(self.PROJECTIONS) == 3 else [sum(sizes)]
            for name, size in zip(self.PROJECTIONS, sizes, strict=True):
                setattr(attention, name, _sized(getattr(attention, name), width, size * d_head))
            setattr(attention, self.OUT, _sized(getattr(attention, self.OUT), len(kept) * d_head, width))
            counts = {
                "num_heads": len(kept),
                "num_attention_heads": len(kept),
                "n_heads": len(kept),
                "split_size": len(kept) * d_head,
                "num_key_value_groups": groups,
            }
            if hasattr(attention, "num_key_value_heads"):  # Phi-3 counts queries and keys by these two
                attention.config = copy(config)
                attention.config.num_attention_heads = len(kept)
                counts["num_key_value_heads"] = len(keys)
            for name, count in counts.items():
                if hasattr(attention, name):
                    setattr(attention, name, count)
        if "mlp" in gone:
            has_bias = any(name.endswith("bias") for name, _ in layer.get_submodule(self.FFN).named_parameters())
            layer.set_submodule(self.FFN, NoFFN(width, has_bias))
            if self.FFN_BEGINS:
                layer.set_submodule(self.FFN_BEGINS, nn.Identity())
            if norms_before and self.NORMS[1]:
                setattr(layer, self.NORMS[1], nn.Identity())


def _sized(linear, n_inputs, n_outputs):
    if isinstance(linear, Conv1D):
        return Conv1D(n_outputs, n_inputs)
    return nn.Linear(n_inputs, n_outputs, bias=linear.bias is not None)


def pruned_classes(kind, layers, attention, out, projections, ffn, ffn_begins, norms):
    """Returns the classes of the config and of the model, made from transformers' model type `kind`.

    `layers` is the list of layers in the model, `attention` a layer's attention module, `projections` its queries, keys
    and values (three, or one for all), `out` its output projection. `ffn` is the last module of the FFN, and
    `ffn_begins` the first if it has several. `norms` precede attention and FFN, "" for none."""
    stock: Any = CONFIG_MAPPING[kind]
    model: Any = MODEL_FOR_CAUSAL_LM_MAPPING[stock]
    names = {"LAYERS": layers, "ATTENTION": attention, "PROJECTIONS": projections, "OUT": out, "FFN": ffn,
             "FFN_BEGINS": ffn_begins, "NORMS": norms}  # fmt: skip
    own = {"model_type": f"pruned_{kind}", "validate_architecture": _takes_any_heads}
    if isinstance(getattr(stock, "head_dim", None), property):  # a number in these files
        own["head_dim"] = None
    config = type("PrunedConfig", (stock,), own)
    return config, type("PrunedForCausalLM", (Pruned, model), {"config_class": config, **names})


def _takes_any_heads(config):
    """A layer's heads need not divide the width."""

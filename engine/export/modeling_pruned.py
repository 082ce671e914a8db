"""A language model from which attention heads and feed-forward networks (FFNs) were pruned, each layer by itself.

Written by Headroom beside the weights that need it. The stock model of transformers is built, then each layer gets
smaller modules: projections for the heads that it keeps, and for a part that is gone the constant (its output bias)
that it still adds. `per_layer_config` says what a layer keeps; `kept_heads` which of the full model's heads those are.
"""
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

from typing import Any

import torch
from torch import nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    OPTConfig,
    OPTForCausalLM,
)
from transformers.models.llama.modeling_llama import LlamaAttention
from transformers.pytorch_utils import Conv1D


class NoFFN(nn.Module):
    """An FFN that is gone."""

    def __init__(self, width, has_bias):
        super().__init__()
        self.constant = nn.Parameter(torch.zeros(width)) if has_bias else None

    def forward(self, hidden_states):
        nothing = torch.zeros_like(hidden_states)
        return nothing if self.constant is None else nothing + self.constant


class NoAttention(NoFFN):
    """An attention without heads. In layer 0 it caches one zero a token: there transformers counts the tokens."""

    def __init__(self, width, has_bias, is_first=False):
        super().__init__(width, has_bias)
        self.is_first = is_first

    def forward(self, hidden_states, *args, past_key_values=None, layer_past=None, **kwargs):
        cache = past_key_values if past_key_values is not None else layer_past
        if self.is_first and cache is not None:
            zeros = hidden_states.new_zeros(len(hidden_states), 1, hidden_states.shape[1], 1)
            cache.update(zeros, zeros, 0)
        return super().forward(hidden_states), None


class UnevenLlamaAttention(LlamaAttention):
    """Heads that share keys and values in groups of different sizes; the cache holds each key and value head once."""

    reads: tuple = ()  # which key and value head each head reads

    def forward(self, hidden_states, position_embeddings=None, attention_mask=None, past_key_values=None, **kwargs):
        cache: Any = _ReadByHead(past_key_values, self.reads)
        return super().forward(hidden_states, position_embeddings, attention_mask, cache, **kwargs)


class _ReadByHead:
    def __init__(self, cache, reads):
        self.cache, self.reads = cache, list(reads)

    def update(self, keys, values, *args, **kwargs):
        if self.cache is not None:
            keys, values = self.cache.update(keys, values, *args, **kwargs)
        return keys[:, self.reads], values[:, self.reads]


class Pruned:
    """What the four families have in common; each says where its modules are."""

    LAYERS = ATTENTION = OUT = FFN = ""
    PROJECTIONS: tuple = ()  # of queries, keys and values: three, or one that holds all
    FFN_BEGINS = None  # where the FFN is no module of its own
    NORMS: tuple = ()  # in front of attention and FFN

    def __init__(self, config):
        layers, said = list(config.per_layer_config), config.to_dict().get("per_layer_config")
        config.per_layer_config = None  # the stock model knows only layers that are alike
        super().__init__(config)
        for number, layer in enumerate(self.get_submodule(self.LAYERS)):
            self._shrink(number, layer, layers[number])
        config.per_layer_config = said

    def _shrink(self, number, layer, own):
        config, gone = self.config, getattr(own, "skip", None) or []
        attention, kept = getattr(layer, self.ATTENTION), config.kept_heads[number]
        width, d_head = config.hidden_size, config.head_dim
        norms_in_front = getattr(config, "do_layer_norm_before", True)
        if "attention" in gone:
            has_bias = getattr(attention, self.OUT).bias is not None
            setattr(layer, self.ATTENTION, NoAttention(width, has_bias, number == 0))
            if norms_in_front:
                setattr(layer, self.NORMS[0], nn.Identity())
        elif len(kept) < config.num_attention_heads:
            shared = config.num_attention_heads // (getattr(config, "num_key_value_heads", None) or
                                                    config.num_attention_heads)  # fmt: skip
            keys = sorted({head // shared for head in kept})
            reads = [keys.index(head // shared) for head in kept]
            if shared > 1 and reads != [n // (len(kept) // len(keys)) for n in range(len(kept))]:
                attention = UnevenLlamaAttention(config, number)
                attention.reads = tuple(reads)
                setattr(layer, self.ATTENTION, attention)
            sizes = [len(kept), len(keys), len(keys)] if len(self.PROJECTIONS) == 3 else [3 * len(kept)]
            for name, size in zip(self.PROJECTIONS, sizes, strict=True):
                setattr(attention, name, _sized(getattr(attention, name), width, size * d_head))
            setattr(attention, self.OUT, _sized(getattr(attention, self.OUT), len(kept) * d_head, width))
            groups = 1 if isinstance(attention, UnevenLlamaAttention) else len(kept) // len(keys)
            counts = {"num_heads": len(kept), "split_size": len(kept) * d_head, "num_key_value_groups": groups}
            for name, count in counts.items():
                if hasattr(attention, name):
                    setattr(attention, name, count)
        if "mlp" in gone:
            has_bias = any(name.endswith("bias") for name, _ in getattr(layer, self.FFN).named_parameters())
            setattr(layer, self.FFN, NoFFN(width, has_bias))
            if self.FFN_BEGINS:
                setattr(layer, self.FFN_BEGINS, nn.Identity())
            if norms_in_front:
                setattr(layer, self.NORMS[1], nn.Identity())


def _sized(linear, n_inputs, n_outputs):
    if isinstance(linear, Conv1D):
        return Conv1D(n_outputs, n_inputs)
    return nn.Linear(n_inputs, n_outputs, bias=linear.bias is not None)


class PrunedOPTConfig(OPTConfig):
    model_type = "pruned_opt"


class PrunedLlamaConfig(LlamaConfig):
    model_type = "pruned_llama"

    def validate_architecture(self):
        """A layer's heads need not divide the width."""


class PrunedGPT2Config(GPT2Config):
    model_type = "pruned_gpt2"


class PrunedGPTNeoXConfig(GPTNeoXConfig):
    model_type = "pruned_gpt_neox"

    def validate_architecture(self):
        """A layer's heads need not divide the width."""


class PrunedOPTForCausalLM(Pruned, OPTForCausalLM):
    config_class = PrunedOPTConfig
    LAYERS, ATTENTION, OUT, FFN = "model.decoder.layers", "self_attn", "out_proj", "fc2"
    PROJECTIONS, FFN_BEGINS = ("q_proj", "k_proj", "v_proj"), "fc1"
    NORMS = ("self_attn_layer_norm", "final_layer_norm")


class PrunedLlamaForCausalLM(Pruned, LlamaForCausalLM):
    config_class = PrunedLlamaConfig
    LAYERS, ATTENTION, OUT, FFN = "model.layers", "self_attn", "o_proj", "mlp"
    PROJECTIONS = ("q_proj", "k_proj", "v_proj")
    NORMS = ("input_layernorm", "post_attention_layernorm")


class PrunedGPT2LMHeadModel(Pruned, GPT2LMHeadModel):
    config_class = PrunedGPT2Config
    LAYERS, ATTENTION, OUT, FFN = "transformer.h", "attn", "c_proj", "mlp"
    PROJECTIONS, NORMS = ("c_attn",), ("ln_1", "ln_2")


class PrunedGPTNeoXForCausalLM(Pruned, GPTNeoXForCausalLM):
    config_class = PrunedGPTNeoXConfig
    LAYERS, ATTENTION, OUT, FFN = "gpt_neox.layers", "attention", "dense", "mlp"
    PROJECTIONS, NORMS = ("query_key_value",), ("input_layernorm", "post_attention_layernorm")

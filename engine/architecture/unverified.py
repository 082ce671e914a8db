"""Models of a type that no module of `families` is about, but whose layers are laid out as Llama's: recognized, not
stated.

A small random model of the same config, built by the class that transformers has for the type, is run once. Its modules
are told apart by the names that transformers gives matrices, and by what each one reads and gives. The residual stream
has to be the sum that Headroom takes it for, else the type is not supported. What was recognized is checked again
before a model is used (`engine.models.self_check`). Code from a checkpoint is never run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from engine.architecture.families import FAMILIES
from engine.architecture.families.definition import COMMON, FULL, ROTARY, SLIDING, AttentionLayout, Family
from engine.architecture.families.llama import FAMILY as LLAMA
from engine.architecture.miniature import miniature, random_model
from engine.shapes import ModelShape

if TYPE_CHECKING:
    from torch import Tensor

UNSAFE = re.compile(r"_.*|.*(implementation|kernel|auto_map|remote_code).*")  # fields that choose code
SIZES = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size", "head_dim",
         "intermediate_size", "vocab_size", "max_position_embeddings")  # fmt: skip
LISTS = {family.layers.rpartition(".")[2] for family in FAMILIES.values()}
QKV, OUT, QK_NORMS = ("q_proj", "k_proj", "v_proj"), ("o_proj", "out_proj", "dense"), ("q_norm", "k_norm")
FFNS = (("gate_proj", "up_proj", "down_proj"), ("up_proj", "down_proj"), ("fc1", "fc2"))
N_TOKENS, CLOSE = 9, 1e-3


class _Unlike(Exception):
    """In which respect a model is not laid out as Llama."""


def recognized(config: Mapping[str, Any]) -> Family | str:
    """The family of a config.json whose type is in no table; else why it is not supported."""
    kind = config.get("model_type")
    declared = declared_fields(kind) if isinstance(kind, str) else None
    if declared is None:
        return "is not supported"
    used = {name: value for name, value in config.items() if name in COMMON | ROTARY | declared}
    return _recognized(json.dumps(used, sort_keys=True, default=str))


def declared_fields(kind: str) -> frozenset[str] | None:
    """The fields of config.json that transformers knows for this type alone; None if it does not know the type."""
    import transformers

    if kind not in transformers.CONFIG_MAPPING:
        return None
    usual = {each.name for each in fields(transformers.PreTrainedConfig)}
    names = {each.name for each in fields(transformers.CONFIG_MAPPING[kind])} - usual
    return frozenset(name for name in names if not UNSAFE.fullmatch(name))


@lru_cache(maxsize=64)
def _recognized(text: str) -> Family | str:
    config = json.loads(text)
    try:
        return _family(config)
    except _Unlike as error:
        return f"is not supported: {error}"
    except Exception as error:  # whatever transformers thinks of a config
        what = " ".join(str(error).split())[:120] or type(error).__name__
        return f"is not supported: a small model of it cannot be built ({what})"


def _family(config: Mapping[str, Any]) -> Family:
    import transformers

    transformers.utils.logging.set_verbosity_error()  # else it comments on what the config says of tokens
    kind = config["model_type"]
    said = {name: value for name, value in config.items() if name != "model_type"}
    full = transformers.AutoConfig.for_model(kind, **said)
    sizes = _sizes(full)
    declared = declared_fields(kind) or frozenset()
    lists = {name: each for name in declared if isinstance(each := getattr(full, name, None), list)
             and len(each) == sizes["num_hidden_layers"]}  # fmt: skip
    family = replace(
        LLAMA,
        name=f"{kind} (unverified layout)",
        fields=ROTARY | declared,
        own_names={usual: own for usual, own in type(full).attribute_map.items() if usual in SIZES},
        defaults=sizes,
        is_tied=bool(full.tie_word_embeddings),
        attention_biases="",
        ffn_biases="",
        states_head_width="head_dim" in declared,
        heads_divide_width=False,
        by_layer=lambda config: lists,
        caps_scores=bool(getattr(full, "attn_logit_softcapping", None)),
        is_verified=False,
        tiny={},
    )
    small = transformers.AutoConfig.for_model(kind, **miniature(said, family, ModelShape(*sizes.values())))
    found = _Recognition(random_model(small), family, ModelShape(*_sizes(small).values())).family()
    windows = _windows(full)
    return replace(found, windows=lambda config: windows)


def _windows(config: Any) -> list[int | None]:
    """How many tokens each layer attends to by a config of transformers; None: all."""
    window, usual = getattr(config, "sliding_window", None), [SLIDING] * config.num_hidden_layers
    types = getattr(config, "layer_types", None) or usual
    if others := {*types} - {SLIDING, FULL}:
        raise _Unlike(f"its layers are of type {sorted(others)[0]}")
    return [window if kind == SLIDING else None for kind in types]


def _sizes(config: Any) -> dict[str, int]:
    """SIZES of a config of transformers."""
    found: dict[str, Any] = {name: getattr(config, name, None) for name in SIZES}
    if found["num_attention_heads"] and found["hidden_size"]:
        found["num_key_value_heads"] = found["num_key_value_heads"] or found["num_attention_heads"]
        found["head_dim"] = found["head_dim"] or found["hidden_size"] // found["num_attention_heads"]
    for name, value in found.items():
        if not isinstance(value, int) or value < 1:
            raise _Unlike(f"its config has no {name}")
    return found


class _Recognition:
    """One pass of a small model: what each of its modules read and gave."""

    def __init__(self, model: Any, family: Family, shape: ModelShape) -> None:
        self.model, self.known, self.shape = model, family, shape
        self.path, self.layers = self._layers()
        self.read: dict[Any, Tensor] = {}
        self.gave: dict[Any, Tensor] = {}
        self._run()

    def family(self) -> Family:
        """The family. _Unlike: the model is not laid out as Llama."""
        found = [self._layer(layer) for layer in self.layers]
        if any(each != found[0] for each in found):
            raise _Unlike("its layers differ")
        layer, holder = self.layers[0], self.path.rpartition(".")[0]
        embed = self.model.get_input_embeddings()
        name = next(name for name, module in self.model.named_modules() if module is embed)
        self._same(self.gave[embed], self.read[layer], "its layers do not read the embedding as it is")
        last = self.gave[self.layers[-1]]
        norm, behind = self._norm(self.model.get_submodule(holder), last, "final")
        head = self.model.get_output_embeddings()
        if head is not getattr(self.model, "lm_head", None) or not norm:
            raise _Unlike("its unembedding does not read a norm")
        self._same(behind, self.read[head], "its unembedding does not read the last norm")
        self._same(self.gave[head], self.gave[self.model], "its logits are not what the unembedding gives")
        of = {**found[0], "norm": f"{holder}.{norm}", "token_embedding": name.rpartition(".")[2]}
        return replace(self.known, layers=self.path, **of)

    def _layers(self) -> tuple[str, list[Any]]:
        import torch

        for name, module in self.model.named_modules():
            if isinstance(module, torch.nn.ModuleList) and len(module) == self.shape.n_layers:
                if name.rpartition(".")[2] in LISTS and "." in name:
                    return name, list(module)
        raise _Unlike("it has no list of layers")

    def _run(self) -> None:
        import torch

        def note(module: Any, args: Any, kwargs: Any, output: Any) -> None:
            given = args[0] if args else kwargs.get("hidden_states", kwargs.get("input_ids"))
            gave = output[0] if isinstance(output, tuple) else getattr(output, "logits", output)
            if isinstance(given, torch.Tensor) and isinstance(gave, torch.Tensor):
                self.read[module], self.gave[module] = given.clone(), gave.clone()

        ids = torch.arange(N_TOKENS)[None] + 1
        with ExitStack() as hooks, torch.inference_mode():
            for module in self.model.modules():
                hooks.enter_context(module.register_forward_hook(note, with_kwargs=True))
            self.model(input_ids=ids, use_cache=False)

    def _layer(self, layer: Any) -> dict[str, Any]:
        """What a Family says of a layer."""
        attention, out = self._attention(layer)
        ffn, names = self._ffn(layer)
        stream = self.read[layer]
        before, normed = self._norm(layer, stream, "attention")
        self._same(normed, self.read[layer.get_submodule(attention)], "its attention reads something else")
        after, added = self._norm(layer, self.gave[layer.get_submodule(attention)], "attention")
        stream = stream + added
        ffn_before, normed = self._norm(layer, stream, "FFN")
        self._same(normed, self.read[layer.get_submodule(ffn)], "its FFN reads something else")
        ffn_after, added = self._norm(layer, self.gave[layer.get_submodule(ffn)], "FFN")
        self._same(stream + added, self.gave[layer], "a layer is not the sum of the stream, attention and FFN")
        norms = [name for name in (before, after, ffn_before, ffn_after) if name]
        self._refuse_others(layer, {attention, ffn, *norms}, "a layer")
        qk = tuple(name for name in QK_NORMS if hasattr(layer.get_submodule(attention), name))
        inside = [layer.get_submodule(f"{attention}.{name}") for name in qk]
        offsets = {_offset(each) for each in [*map(layer.get_submodule, norms), *inside]}
        if len(offsets) != 1 or len(qk) == 1:
            raise _Unlike("its norms differ")
        widths = [each.weight.numel() for each in inside]
        d_head, counts = self.shape.d_head, (self.shape.n_heads, self.shape.n_key_value_heads)
        if widths and widths != [d_head, d_head] and widths != [count * d_head for count in counts]:
            raise _Unlike("its norms of queries and keys are neither of a head nor of all heads")
        biased = [getattr(layer.get_submodule(f"{attention}.{name}"), "bias", None) is not None
                  for name in (QKV[0], out)]  # fmt: skip
        return {
            "attention": AttentionLayout(f"{attention}.{out}", QKV), "ffn": tuple(f"{ffn}.{name}" for name in names),
            "norms": (before, ffn_before), "norms_after": (after, ffn_after), "qk_norms": qk,
            "norms_all_heads": bool(widths) and widths[0] != d_head, "norm_offset": offsets.pop(),
            "has_biases": all(biased), "qkv_biases": True if biased == [True, False] else "",
        }  # fmt: skip

    def _attention(self, layer: Any) -> tuple[str, str]:
        """(the attention module, its output projection) by name."""
        for name, module in layer.named_children():
            held = dict(module.named_children())
            outs = [out for out in OUT if out in held]
            if held.keys() >= {*QKV} and len(outs) == 1:
                self._refuse_others(module, {*QKV, *outs, *QK_NORMS}, "attention")
                heads, keys = (n * self.shape.d_head for n in (self.shape.n_heads, self.shape.n_key_value_heads))
                sizes = [*(held[each].weight.shape[0] for each in QKV), held[outs[0]].weight.shape[1]]
                if sizes != [heads, keys, keys, heads]:
                    raise _Unlike(
                        f"its attention has matrices of {sizes}, and should have {[heads, keys, keys, heads]}"
                    )
                return name, outs[0]
        raise _Unlike("its layers have no attention with projections of queries, keys, values and the output")

    def _ffn(self, layer: Any) -> tuple[str, tuple[str, ...]]:
        """(the FFN, its matrices) by name."""
        for name, module in layer.named_children():
            held = dict(module.named_children())
            for names in FFNS:
                if held.keys() >= {*names} and not held.keys() & {*QKV}:
                    self._refuse_others(module, {*names}, "the FFN")
                    return name, names
        raise _Unlike("its layers have no FFN with matrices up and down")

    def _norm(self, parent: Any, read: Tensor, what: str) -> tuple[str, Tensor]:
        """(the norm in `parent` that read this, by name, and what it gave); ("", what it would have read) for none."""
        found = [name for name, module in parent.named_children()
                 if getattr(getattr(module, "weight", None), "dim", int)() == 1 and self._is(module, read)]  # fmt: skip
        if len(found) > 1:
            raise _Unlike(f"{' and '.join(found)} read the same at the {what}")
        return (found[0], self.gave[parent.get_submodule(found[0])]) if found else ("", read)

    def _is(self, module: Any, read: Tensor) -> bool:
        return module in self.read and _are_close(self.read[module], read)

    def _same(self, one: Tensor, other: Tensor, otherwise: str) -> None:
        if not _are_close(one, other):
            raise _Unlike(otherwise)

    def _refuse_others(self, module: Any, names: set[str], what: str) -> None:
        for name, child in module.named_children():
            if name not in names and any(True for _ in child.parameters()):
                raise _Unlike(f"{what} also has {name}")
        for name, _ in module.named_parameters(recurse=False):
            raise _Unlike(f"{what} also has {name}")


def _offset(norm: Any) -> int:
    """What a norm adds to its gains. _Unlike: it is neither RMSNorm nor torch's LayerNorm."""
    import torch

    with torch.inference_mode():
        rows = torch.randn(3, norm.weight.numel(), generator=torch.Generator().manual_seed(0)) + 0.5
        gave, bias = norm(rows), getattr(norm, "bias", None)
        if isinstance(norm, torch.nn.LayerNorm):
            rows = rows - rows.mean(-1, keepdim=True)
        units = rows / rows.square().mean(-1, keepdim=True).sqrt()
        for offset in (0, 1):
            if _are_close(gave, units * (norm.weight + offset) + (0 if bias is None else bias)):
                return offset
    raise _Unlike("its norms are neither RMSNorm nor LayerNorm")


def _are_close(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool((one - other).abs().max() <= CLOSE * other.abs().max())

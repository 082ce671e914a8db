"""Whether what Headroom takes a model for is so: checks on a small random model of the same config, and on the weights.

A family says where heads and FFNs lie. Were that wrong for a model, every number about pruning would be, without an
error. So each model is checked when it is first loaded: a few tokens tell. The results are stored under a key with the
digest of the model, its layout and the versions of libraries. A second large model is never in memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache, partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cache import Store
from engine.architecture.families.definition import ABOUT, AttentionLayout, Family
from engine.architecture.family import family_of, shape_of
from engine.architecture.layer_tensors import head_numbers
from engine.architecture.miniature import miniature, random_model
from engine.architecture.transformers_internals import adapt_attention, model_config
from engine.architecture.unverified import declared_fields
from engine.checkpoints.compact_checkpoint import is_small
from engine.checkpoints.identity import Identity
from engine.checkpoints.tokenizer import TokenizerReading
from engine.checkpoints.weight_files import read_json
from engine.models.loading import Loaded, LoadSpec
from engine.models.masks import Mask, pruned, without_layers
from engine.models.patterns import visited
from engine.models.slicing import applied, sliced
from engine.placement.devices import CPU, device_class
from engine.placement.placement import Placement
from engine.records import Record, canonical_key, decode, encode, made_of, public, version

if TYPE_CHECKING:
    from torch import Tensor

REVISION = 1  # of the checks: raise it when one is added or changed
N_TOKENS = 12
CLOSE = {"fp32": 1e-3, "bf16": 0.1, "int8": 0.3}  # of the largest value; with another layout all of it differs
PLAIN = "full model equals transformers' model"
SEEN = "attention of every layer is seen"
COLUMNS = "pruned head equals zeroed output weights"
VALUES = "pruned heads equal zeroed value weights"
IDENTITY = "dropped layer leaves the residual stream unchanged"
SLICED = "sliced model equals the masked model"
LOADED_HEAD = "pruned head takes its part of the attention output away"
LOADED_LAYER = "dropped layer leaves the residual stream unchanged, in the loaded weights"


@dataclass(frozen=True)
class LayoutCheck:
    """One check: what must be so, and what is so instead ("" if it passed)."""

    name: str
    error: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.error or 'passed'}"


class _Enough(Exception):
    """The first layer has run."""


def check_model(loaded: Loaded, store: Store | None = None, again: bool = False) -> tuple[LayoutCheck, ...]:
    """The checks of a loaded model: the stored ones unless `again`, else made now and stored."""
    key, loaded = _key(loaded.spec, loaded.identity), replace(loaded, fault="")
    found = None if again else _stored(store, key)
    if found is None:
        found = (*check_copy(loaded.identity), *check_weights(loaded))
        if store is not None:
            store.put(key, encode(Record({}, {"kind": "self-check", "checks": [asdict(each) for each in found]})))
    return found


def fault_of(checks: Sequence[LayoutCheck]) -> str:
    """The first check that failed, in words; "" if all passed."""
    return next((str(check) for check in checks if check.error), "")


def known_fault(spec: LoadSpec, identity: Identity, store: Store) -> str:
    """The same of stored checks; "" where there are none."""
    return fault_of(_stored(store, _key(spec, identity)) or ())


def check_copy(identity: Identity) -> tuple[LayoutCheck, ...]:
    """The checks of a small random model of this config."""
    family, used = family_of(identity.config), identity.config
    declared = used
    if family.is_stock and not is_small(whole := read_json(identity.folder / "config.json", "the folder is damaged")):
        names = family.used_fields | (declared_fields(str(used["model_type"])) or frozenset())
        declared = {name: value for name, value in whole.items() if name in names}
    texts = (json.dumps(dict(each), sort_keys=True, default=str) for each in (used, declared))
    return _checked_copy(*texts, _layout(family))


def check_weights(loaded: Loaded) -> tuple[LayoutCheck, ...]:
    """The checks of the first layer of a loaded model that lies on one device."""
    if not loaded.placing.is_whole:  # a pass that stops early would leave a moved layer where it is
        return ()
    limit = CLOSE[loaded.spec.precision]
    return (_check(LOADED_HEAD, partial(_head_taken_away, loaded), limit),
            _check(LOADED_LAYER, partial(_layer_dropped, loaded, 0), limit))  # fmt: skip


def _key(spec: LoadSpec, identity: Identity) -> str:
    libraries = ["torch", "transformers"] + ["bitsandbytes"] * (spec.precision == "int8")
    return canonical_key("self-check", {
        "model": identity.digest, "precision": spec.precision, "revision": REVISION, "device": device_class(),
        "layout": _layout(family_of(identity.config)), "versions": {each: public(version(each)) for each in libraries},
    })  # fmt: skip


def _layout(family: Family) -> str:
    """What a family says, as text: with another layout it is checked again."""
    values = {each.name: getattr(family, each.name) for each in fields(family)}
    layout = str | int | tuple | AttentionLayout
    return str({name: value for name, value in values.items() if isinstance(value, layout)})


def _stored(store: Store | None, key: str) -> tuple[LayoutCheck, ...] | None:
    record = None if store is None else decode(store.get(key))
    return made_of(record, lambda record: tuple(LayoutCheck(**each) for each in record.receipt["checks"]))


@lru_cache(maxsize=64)
def _checked_copy(used: str, declared: str, layout: str) -> tuple[LayoutCheck, ...]:
    """The checks of a small model: ours by the `used` fields of a config.json, theirs by all `declared` ones."""
    try:
        copy = _small_model(json.loads(used))
        plain = _small_transformers_model(json.loads(declared))
    except Exception as error:  # whatever transformers thinks of such small sizes
        what = " ".join(str(error).split())[:120] or type(error).__name__
        return () if family_of(json.loads(used)).is_verified else (LayoutCheck(PLAIN, f"cannot be built ({what})"),)
    n_heads, last = copy.identity.shape.n_heads, copy.identity.shape.n_layers - 1
    sharing = n_heads // copy.identity.shape.n_key_value_heads
    checks: dict[str, Callable[[], float]] = {
        PLAIN: lambda: _differs_from(copy, plain),
        SEEN: lambda: _unseen(copy),
        COLUMNS: lambda: max(_zeroed(copy, 0, [0], "out"), _zeroed(copy, last, [n_heads - 1], "out")),
        VALUES: lambda: max(_zeroed(copy, 0, range(sharing), "value"),
                            _zeroed(copy, last, range(n_heads - sharing, n_heads), "value")),
        IDENTITY: lambda: max(_layer_dropped(copy, layer) for layer in range(last + 1)),
        SLICED: lambda: _sliced_differs(copy),
    }  # fmt: skip
    return tuple(_check(name, differs, CLOSE["fp32"]) for name, differs in checks.items())


def _check(name: str, differs: Callable[[], float], limit: float) -> LayoutCheck:
    """The check of something that differs by a share of what it is compared with, and may by `limit`."""
    import torch

    try:
        with torch.inference_mode():
            found = differs()
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # of a module that is not what it is taken for
        return LayoutCheck(name, " ".join(f"{type(error).__name__} {error}".split())[:160])
    return LayoutCheck(name, "" if found <= limit else f"differs by {found:.0%}")


def _small_model(config: Mapping[str, Any]) -> Loaded:
    """The small model of a config.json."""
    small = miniature(config, family_of(config), shape_of(config))
    family, shape = family_of(small), shape_of(small)
    model = random_model(model_config(small), family.attends_by)
    if family.is_adapted:
        adapt_attention(family, model)
    identity = Identity("", Path(), small, family.name, shape, "", "", 0, 0, "float32", TokenizerReading(()))
    placing = Placement((CPU,) * shape.n_layers, CPU, 0)
    return Loaded(LoadSpec("demo", "fp32"), identity, model, None, family, CPU, placing)


def _small_transformers_model(config: Mapping[str, Any]) -> Any:
    """transformers' own model by all fields of a config.json, as small."""
    import transformers

    small = miniature(config, family_of(config), shape_of(config))
    settings = {name: value for name, value in small.items() if name not in ABOUT}
    return random_model(transformers.AutoConfig.for_model(small["model_type"], **settings))


def _differs_from(copy: Loaded, plain: Any) -> float:
    """How the logits of the small model differ from those of transformers' own with its weights."""
    plain.load_state_dict(copy.model.state_dict())
    return _difference(_logits(copy.model), _logits(plain))


def _tokens(model: Any) -> Tensor:
    import torch

    table = model.get_input_embeddings().weight
    return (torch.arange(0, 7 * N_TOKENS, 7, device=table.device).remainder(len(table) - 1) + 1)[None]


def _logits(model: Any) -> Tensor:
    return model(input_ids=_tokens(model), use_cache=False).logits


def _difference(one: Tensor, other: Tensor, scale: float = 0.0) -> float:
    """The largest difference, as a share of the largest value."""
    scale = max(scale, float(other.float().abs().max()), 1e-12)
    return float((one.float() - other.float()).abs().max()) / scale


def _unseen(copy: Loaded) -> float:
    """How the logits differ where Headroom's function computes attention; 1 if a layer does not call it."""
    found: list[int] = []
    with visited(copy, lambda layer, pattern, z, values: found.append(layer)):
        seen = _logits(copy.model)
    return _difference(seen, _logits(copy.model)) if found == [*range(copy.identity.shape.n_layers)] else 1.0


def _zeroed(copy: Loaded, layer: int, heads: Sequence[int], where: str) -> float:
    """How the logits without these heads differ by mask, and by zeros in the matrix where the heads write (`out`), or
    where their values come from (`value`)."""
    family, shape = copy.family, copy.identity.shape
    module = family.attention.out if where == "out" else f"{family.attention.module}.{family.attention.qkv[-1]}"
    part = family.layer_list(copy.model)[layer].get_submodule(module)
    with ExitStack() as restored:
        for kind in ("weight", "bias"):
            tensor = getattr(part, kind, None)
            at = None if tensor is None else head_numbers(family, shape, f"{module}.{kind}", heads)
            if tensor is not None and at is not None:
                restored.callback(tensor.copy_, tensor.clone())
                tensor.index_fill_(at[0], tensor.new_tensor(at[1]).long(), 0)
        expected = _logits(copy.model)
    with pruned(copy, _without(copy, layer, heads)):
        return _difference(_logits(copy.model), expected)


def _without(loaded: Loaded, layer: int, heads: Sequence[int]) -> Mask:
    """The mask that prunes these heads of a layer."""
    full = Mask.full(loaded.identity.shape)
    row = tuple(head not in heads for head in range(loaded.identity.shape.n_heads))
    return replace(full, heads=(*full.heads[:layer], row, *full.heads[layer + 1 :]))


def _sliced_differs(copy: Loaded) -> float:
    """How the logits differ between masks and slices: without a layer, and with fewer heads and no FFN in the last."""
    shape, full = copy.identity.shape, Mask.full(copy.identity.shape)
    some = _without(copy, shape.n_layers - 1, range(0, shape.n_heads, 3))
    found = []
    for mask in (without_layers(full, [0]), replace(some, ffns=(*full.ffns[:-1], False))):
        with pruned(copy, mask):
            expected = _logits(copy.model)
        with applied(copy, sliced(copy, mask)):
            found.append(_difference(_logits(copy.model), expected))
    return max(found)


def _layer_dropped(loaded: Loaded, layer: int) -> float:
    """How what a dropped layer gives differs from what it reads; norms behind it stay, and biases are left out here."""
    family, module = loaded.family, loaded.family.layer_list(loaded.model)[layer]
    mask, out = without_layers(Mask.full(loaded.identity.shape), [layer]), attrgetter(family.attention.out)(module)
    with pruned(loaded, mask), out.register_forward_hook(lambda module, args, output: output.new_zeros(output.shape)):
        read, gave = _noted(loaded, module)
    expected = read
    if family.norms_after[0]:
        expected = read + getattr(module, family.norms_after[0])(read.new_zeros(read.shape))
    for name in family.norms if family.norms_come_behind(loaded.model) else ():
        expected = getattr(module, name)(expected)
    return _difference(gave, expected)


def _head_taken_away(loaded: Loaded) -> float:
    """How what the first attention gives without one head differs from what it gives less what that head writes."""
    shape, out = loaded.identity.shape, loaded.family.layer_modules(loaded.model)[0][0]
    z, gave = _noted(loaded, out)
    by_head = z.new_zeros(shape.n_heads, *z.shape[-2:])
    for head in range(shape.n_heads):
        at = slice(head * shape.d_head, (head + 1) * shape.d_head)
        by_head[head, ..., at] = z[0, ..., at]
    written = out(by_head).float() - out(z.new_zeros(1, *z.shape[-2:])).float()
    head = int(written.flatten(1).norm(dim=1).argmax())
    with pruned(loaded, _without(loaded, 0, [head])):
        taken = gave.float() - _noted(loaded, out)[1].float()
    return _difference(taken, written[head], 1e-2 * float(gave.float().abs().max()))


def _noted(loaded: Loaded, module: Any) -> tuple[Tensor, Tensor]:
    """What this module reads and gives; the model runs until then."""
    found: list[Tensor] = []

    def note(module: Any, args: Any, kwargs: Any, output: Any) -> None:
        read = args[0] if args else kwargs["hidden_states"]
        found[:] = read, output[0] if isinstance(output, tuple) else output
        raise _Enough

    with ExitStack() as hooks, suppress(_Enough):
        hooks.enter_context(module.register_forward_hook(note, with_kwargs=True))
        loaded.model(input_ids=_tokens(loaded.model), use_cache=False)
    return found[0], found[1]

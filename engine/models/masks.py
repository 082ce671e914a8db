"""Which heads and FFNs are kept: the frozen `Mask`, its text form, and `pruned`, which applies one to a model.

Text form: `L3H5` one head, `L4H*` all heads of layer 4, `L*H0` head 0 of every layer, `L2-4H1` a range, `F7` one FFN,
`F2-5` FFNs 2 to 5, `F*` all FFNs, `B5` a whole layer (block 5: its heads and its FFN; what stays of it are biases),
`B2-4` three; joined by spaces or commas. Named components are pruned, and components named after the word `keep` stay,
whatever else prunes it: `L1H* keep L1H0`. The empty text prunes nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.errors import HeadroomError, UsageError
from engine.shapes import ModelShape

if TYPE_CHECKING:
    from torch import Tensor

    from engine.models.loading import Loaded

SPAN = r"(\*|\d{1,9}(?:-\d{1,9})?)"
HEAD_TERM = re.compile(rf"L{SPAN}H{SPAN}", re.IGNORECASE)
FFN_TERM = re.compile(rf"F{SPAN}", re.IGNORECASE)
LAYER_TERM = re.compile(rf"B{SPAN}", re.IGNORECASE)
KEEP = "keep"  # components named after it stay


@dataclass(frozen=True)
class Mask:
    """What stays: `heads[layer][head]` and `ffns[layer]`, True = kept. Equal masks are equal and hash alike."""

    heads: tuple[tuple[bool, ...], ...]
    ffns: tuple[bool, ...]

    @classmethod
    def full(cls, shape: ModelShape) -> Mask:
        """The mask that keeps everything."""
        return cls(((True,) * shape.n_heads,) * shape.n_layers, (True,) * shape.n_layers)

    @classmethod
    def from_arrays(cls, heads: np.ndarray, ffns: np.ndarray) -> Mask:
        """Mask of boolean keep arrays, `heads` (L, H) and `ffns` (L,)."""
        return cls(tuple(tuple(bool(kept) for kept in row) for row in heads), tuple(bool(kept) for kept in ffns))

    @property
    def n_heads_pruned(self) -> int:
        return sum(not kept for row in self.heads for kept in row)

    @property
    def n_ffns_pruned(self) -> int:
        return sum(not kept for kept in self.ffns)

    @property
    def layers_dropped(self) -> tuple[int, ...]:
        """The layers of which nothing is kept, neither a head nor the FFN."""
        pairs = zip(self.heads, self.ffns, strict=True)
        return tuple(layer for layer, (row, ffn) in enumerate(pairs) if not (any(row) or ffn))

    @property
    def is_full(self) -> bool:
        return self.n_heads_pruned == 0 and self.n_ffns_pruned == 0

    def key(self) -> str:
        """Bits as hexadecimal text, heads then FFNs: the same mask typed differently has the same key."""
        return f"{_hex([kept for row in self.heads for kept in row])}/{_hex(self.ffns)}"

    def text(self) -> str:
        """Shortest usual text form; `parse_mask` of it gives this mask back."""
        terms, whole = [], self.layers_dropped
        for layer, row in enumerate(self.heads):
            if layer in whole:
                continue
            if not any(row):
                terms.append(f"L{layer}H*")
            else:
                terms += [f"L{layer}H{span}" for span in _spans([h for h, kept in enumerate(row) if not kept])]
        ffns = [layer for layer, kept in enumerate(self.ffns) if not kept and layer not in whole]
        return " ".join([*terms, *(f"F{span}" for span in _spans(ffns)), *(f"B{span}" for span in _spans([*whole]))])


@dataclass(frozen=True)
class Edits:
    """What the text of a mask does to any other mask: `prune` prunes besides, `keep` names (as False) what stays,
    whatever prunes it."""

    prune: Mask
    keep: Mask

    def on(self, mask: Mask) -> Mask:
        """That mask with these edits."""
        return _each(lambda of, prune, keep: (of & prune) | ~keep, mask, self.prune, self.keep)

    @property
    def alone(self) -> Mask:
        """The mask of the typed components alone."""
        return _each(lambda prune, keep: prune | ~keep, self.prune, self.keep)

    def with_named(self, named: Mask, pruned: bool, below: Mask) -> Edits:
        """The edits after which what `named` names (as False) is pruned, or stays, on top of the mask `below`. A part
        that `below` prunes or keeps as is wanted needs no edit."""
        if pruned:
            prune = _each(lambda prune, named, below: prune & (named | ~below), self.prune, named, below)
            return Edits(prune, _each(lambda keep, named: keep | ~named, self.keep, named))
        keep = _each(lambda keep, named, below: keep & (named | below), self.keep, named, below)
        return Edits(_each(lambda prune, named: prune | ~named, self.prune, named), keep)

    def key(self) -> str:
        """The key of the mask, and behind it what stays, if anything."""
        return self.prune.key() + ("" if self.keep.is_full else f" {KEEP} {self.keep.key()}")

    def text(self) -> str:
        """Shortest usual text form; `parse_edits` of it gives these edits back."""
        return " ".join([*self.prune.text().split(), *([] if self.keep.is_full else [KEEP, self.keep.text()])])


def single_ablations(shape: ModelShape, what: str = "heads") -> list[Mask]:
    """One mask for each head (row by row) or, where `what` is ffns or layers, for each FFN or layer, pruning just that
    one."""
    full = Mask.full(shape)
    layers = range(shape.n_layers)
    if what == "layers":
        return [without_layers(full, [layer]) for layer in layers]
    if what == "ffns":
        return [replace(full, ffns=tuple(at != layer for at in layers)) for layer in layers]
    masks = []
    for layer in layers:
        for head in range(shape.n_heads):
            row = tuple(at != head for at in range(shape.n_heads))
            masks.append(replace(full, heads=(*full.heads[:layer], row, *full.heads[layer + 1 :])))
    return masks


def without_layers(mask: Mask, layers: Collection[int]) -> Mask:
    """The mask with these layers pruned whole besides: their heads and their FFN."""
    heads = tuple(tuple(kept and layer not in layers for kept in row) for layer, row in enumerate(mask.heads))
    return Mask(heads, tuple(kept and layer not in layers for layer, kept in enumerate(mask.ffns)))


def parse_mask(text: str, shape: ModelShape) -> Mask:
    """Mask named by `text` for a model of `shape`; UsageError says which term is wrong and what would be right."""
    return parse_edits(text, shape).alone


def parse_edits(text: str, shape: ModelShape) -> Edits:
    """What `text` does to a mask of levels; UsageError as of `parse_mask`."""
    prune, keep = (_named(terms, shape) for terms in _split(text))
    return Edits(prune, keep)


def parse_heads(text: str, shape: ModelShape) -> list[tuple[int, int]]:
    """(layer, head) of each head that `text` names, such as "L1H0,L1H3" or "L1H*"; UsageError names what is not a
    head."""
    found: list[tuple[int, int]] = []
    for term in text.replace(",", " ").split():
        match = HEAD_TERM.fullmatch(term)
        if match is None:
            raise UsageError(f"head {term[:40]!r} cannot be read; write heads like L1H0,L1H3 or L1H*")
        found += _heads(match, shape, f"head {term!r}")
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class Means:
    """What components give on average, to stand in for them: heads' z (L, H, d_head) and FFNs' outputs (L, d_model)."""

    heads: np.ndarray
    ffns: np.ndarray

    @property
    def digest(self) -> str:
        return hashlib.blake2b(self.heads.tobytes() + self.ffns.tobytes(), digest_size=16).hexdigest()


@contextmanager
def pruned(loaded: Loaded, mask: Mask, means: Means | None = None) -> Iterator[None]:
    """Context in which `loaded.model` runs pruned by `mask`; the hooks are gone afterwards, also after an exception.

    A pruned head's z is set to 0 at the input of the attention output projection (its bias stays); a pruned FFN adds
    exactly 0 to the residual stream. A layer that keeps everything gets no hook, so the full mask is the plain model
    bit for bit. With `means` (mean ablation) a pruned component gives its mean in place of 0. Departs from
    llm-interpret, whose FFN mask is a truth test that skips layer 0.
    """
    shape = loaded.identity.shape
    if (len(mask.heads), len(mask.ffns)) != (shape.n_layers, shape.n_layers) or len(mask.heads[0]) != shape.n_heads:
        raise UsageError(f"mask is for {len(mask.heads)} x {len(mask.heads[0])} heads, the model has "
                         f"{shape.n_layers} x {shape.n_heads}; make the mask for this model")  # fmt: skip
    if not mask.is_full:
        refuse_faulty(loaded)
    with ExitStack() as hooks:
        for layer, (attention_out, ffn_out) in enumerate(loaded.family.layer_modules(loaded.model)):
            if not all(mask.heads[layer]):
                hook = _instead_of_heads(mask.heads[layer], shape.d_head, None if means is None else means.heads[layer])
                hooks.enter_context(attention_out.register_forward_pre_hook(hook))
            if not mask.ffns[layer]:
                instead = _instead_of_output(None if means is None else means.ffns[layer])
                hooks.enter_context(ffn_out.register_forward_hook(instead))
        yield


def refuse_faulty(loaded: Loaded) -> None:
    """HeadroomError if a model has failed its self-check: where its heads lie is not known, so that it is only read."""
    if loaded.fault:
        raise HeadroomError(describe_fault(loaded.spec.model, loaded.fault))


def describe_fault(model: str, fault: str) -> str:
    """What a model that failed a self-check can be used for, in one line."""
    return (f"{model} can be read but not pruned or scored, as it failed a self-check ({fault}); please report it, or "
            "use another model")  # fmt: skip


def _instead_of_heads(kept: tuple[bool, ...], d_head: int, means: np.ndarray | None) -> Any:
    """The hook that puts these means (H, d_head), or 0, in place of the z of the heads that are not kept."""
    import torch

    dropped = torch.tensor([not keep for keep in kept]).repeat_interleave(d_head)  # (n_heads * d_head,)
    instead = None if means is None else torch.from_numpy(means.astype(np.float32)).flatten()
    on_device: dict[Any, Any] = {}  # an offloaded layer may run on another device than it was hooked on

    def hook(module: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        z = args[0]  # (..., n_heads * d_head)
        where = on_device.setdefault(z.device, dropped.to(z.device))
        z = z.masked_fill(where, 0.0) if instead is None else torch.where(where, instead.to(z), z)
        return (z, *args[1:])

    return hook


def _instead_of_output(mean: np.ndarray | None) -> Any:
    """The hook that gives this mean (d_model,), or 0, in place of an FFN's output."""
    import torch

    instead = None if mean is None else torch.from_numpy(mean.astype(np.float32))

    def hook(module: Any, args: tuple[Any, ...], output: Tensor) -> Tensor:
        return output.new_zeros(output.shape) if instead is None else instead.to(output).expand_as(output)

    return hook


def _split(text: str) -> tuple[list[str], list[str]]:
    """The terms in front of `keep` and those behind it."""
    terms = text.replace(",", " ").split()
    at = next((place for place, term in enumerate(terms) if term.lower() == KEEP), len(terms))
    return terms[:at], [term for term in terms[at:] if term.lower() != KEEP]


def _named(terms: list[str], shape: ModelShape) -> Mask:
    heads, ffns = np.ones((shape.n_layers, shape.n_heads), bool), np.ones(shape.n_layers, bool)
    for term in terms:
        if match := HEAD_TERM.fullmatch(term):
            for layer, head in _heads(match, shape, f"mask term {term!r}"):
                heads[layer, head] = False
        elif match := FFN_TERM.fullmatch(term):
            ffns[_indices(match[1], shape.n_layers, f"mask term {term!r}", "FFNs")] = False
        elif match := LAYER_TERM.fullmatch(term):
            layers = _indices(match[1], shape.n_layers, f"mask term {term!r}", "layers")
            heads[layers], ffns[layers] = False, False
        else:
            raise UsageError(
                f"mask term {term!r} cannot be read; write heads like L3H5 or L4H*, FFNs like F7 or F2-5, a layer B5"
            )
    return Mask.from_arrays(heads, ffns)


def _each(how: Callable[..., np.ndarray], *masks: Mask) -> Mask:
    """The mask of what `how` makes of these masks' arrays, heads and FFNs."""
    heads, ffns = ([np.array(getattr(mask, part)) for mask in masks] for part in ("heads", "ffns"))
    return Mask.from_arrays(how(*heads), how(*ffns))


def _hex(bits: Any) -> str:
    return np.packbits(np.array(bits, bool)).tobytes().hex()


def _spans(indices: list[int]) -> list[str]:
    """`[2, 3, 5]` as `["2-3", "5"]`."""
    spans: list[list[int]] = []
    for index in indices:
        if spans and spans[-1][1] == index - 1:
            spans[-1][1] = index
        else:
            spans.append([index, index])
    return [str(first) if first == last else f"{first}-{last}" for first, last in spans]


def _heads(match: re.Match[str], shape: ModelShape, named: str) -> list[tuple[int, int]]:
    layers = _indices(match[1], shape.n_layers, named, "layers")
    heads = _indices(match[2], shape.n_heads, named, "heads")
    return [(layer, head) for layer in layers for head in heads]


def _indices(span: str, count: int, named: str, what: str) -> list[int]:
    if span == "*":
        return list(range(count))
    first, _, last = span.partition("-")
    low, high = int(first), int(last or first)
    if low > high or high >= count:
        raise UsageError(f"{named}: this model has {what} 0 to {count - 1}; choose within that")
    return list(range(low, high + 1))

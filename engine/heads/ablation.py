"""Per-token losses with each head ablated in turn, and the change of the in-context score.

Two kinds (Olsson et al. 2022). *Full*: the head outputs 0 and everything after it is recomputed, as under a mask.
*Pattern-preserving*: the same, but every attention pattern is fixed to that of the unablated model, so that later heads
attend to the same positions and only the values there change. In both, the head may output its mean over the measured
texts instead of 0 (*mean* ablation): later layers never saw a zero output in training.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.accuracy.scoring import hidden_of, nats_of
from engine.errors import refuse_unknown
from engine.measurement import Measurement, Workload, of_records
from engine.models.loading import Loaded
from engine.models.masks import Mask, Means, pruned, single_ablations
from engine.models.patterns import Patterns, visited
from engine.models.session import Target
from engine.pieces import Measuring, Piece
from engine.progress import Progress
from engine.questions.encoding import TokenizedText, read
from engine.records import Record, canonical_key
from engine.statistics import over_texts
from engine.texts.incontext import MIN_TOKENS, scores, too_short
from engine.texts.passages import checked, text_digest

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("full", "pattern-preserving")
FILLS = ("zero", "mean")


@dataclass(frozen=True)
class Ablating:
    """How heads are ablated: one of KINDS and one of FILLS, in a model already pruned by `mask` (ablating a pruned head
    changes nothing). UsageError: unknown kind or fill."""

    mask: Mask
    kind: str = "full"
    fill: str = "zero"

    def __post_init__(self) -> None:
        refuse_unknown("ablation", self.kind, KINDS)
        refuse_unknown("fill", self.fill, FILLS)


@dataclass(frozen=True)
class HeadAblations:
    """Per-token losses of some texts with each head ablated in turn, in nats.

    One array per text: `base` (n,) with nothing ablated, `ablated` (layer, head, n). Each text is cut to its first 512
    tokens (or the model's window, if shorter). The first loss is nan without BOS.
    """

    base: tuple[np.ndarray, ...]
    ablated: tuple[np.ndarray, ...]

    def __add__(self, other: HeadAblations) -> HeadAblations:
        """Concatenates the texts of both, in order."""
        return HeadAblations((*self.base, *other.base), (*self.ablated, *other.ablated))

    def icl(self, around: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(mean, low, high), each (layer, head): in-context score without the head minus the score with it.

        Positive: the model learns less in context without the head. The interval is over texts, 95%; `around` as in
        `engine.texts.incontext.scores`. HeadroomError: no text has the 512 tokens that a score needs.
        """
        texts = [pair for pair in zip(self.base, self.ablated, strict=True) if len(pair[0]) >= MIN_TOKENS]
        if not texts:
            raise too_short(max(map(len, self.base), default=0))
        plain, without = (scores(side, around) for side in zip(*texts, strict=True))
        return over_texts(without - plain[:, None, None])

    def before_and_after(self, difference: Sequence[np.ndarray], seed: int = 0) -> np.ndarray:
        """(layer, head): how much of a change in losses each head accounts for, in nats (Olsson et al.,
        before-and-after vector).

        `difference` holds one array per text: per-token losses of model B minus those of model A. One random token per
        text gives a vector, scaled to length 1; a head's attribution is the dot product of this vector with the loss
        that ablating the head adds to the same tokens.
        """
        generator, before, moved = np.random.default_rng(seed), [], []
        for base, ablated, change in zip(self.base, self.ablated, difference, strict=True):
            known = np.flatnonzero(np.isfinite(base) & np.isfinite(change[: len(base)]))
            if len(known):
                token = generator.choice(known)
                before.append(change[token])
                moved.append(ablated[..., token] - base[token])
        vector = np.array(before)
        return np.tensordot(vector / max(float(np.linalg.norm(vector)), 1e-30), np.stack(moved), 1)


def head_ablations(
    target: Target, texts: Sequence[str], how: Ablating, measured: Sequence[str] = ()
) -> Measurement[HeadAblations]:
    """Returns the HeadAblations of the texts finished so far; progress counts forward passes. `measured`: all texts
    over which means are taken, if `texts` is only a part of them."""
    pieces = partial(_pieces, target, texts, how, measured or texts)
    n_passes = target.shape.n_heads_total + 1
    expected = partial(Workload, {"forward": float(n_passes * sum(map(len, texts)))})
    about = ("head ablations", *(piece.key for piece in pieces([])))
    return of_records(target, about, lambda session, records: pieces(records), _joined, expected)


def patterns_of(loaded: Loaded, inputs: Any, mask: Mask) -> Patterns:
    """Returns the attention pattern (row, H, T, T) of every layer under `mask`; `inputs` (row, T) token ids."""
    import torch

    found = {}
    with torch.inference_mode(), pruned(loaded, mask), visited(loaded, lambda layer, pattern, z, values:
                                                                found.update({layer: pattern})):  # fmt: skip
        hidden_of(loaded, inputs)
    return found


def mean_outputs(loaded: Loaded, inputs: Any, mask: Mask) -> Means:
    """Returns the mean output of each head and FFN over the positions of `inputs` (1, T), under `mask`."""
    import torch

    shape = loaded.identity.shape
    heads = np.zeros((shape.n_layers, shape.n_heads, shape.d_head), np.float32)
    ffns = np.zeros((shape.n_layers, shape.d_model), np.float32)

    def note(layer: int, attention_out: Any, ffn_out: Any) -> None:
        def z(module: Any, args: tuple[Any, ...]) -> None:
            heads[layer] = args[0].float().flatten(0, -2).mean(0).view(shape.n_heads, -1).cpu().numpy()

        def output(module: Any, args: Any, given: Tensor) -> None:
            ffns[layer] = given.float().flatten(0, -2).mean(0).cpu().numpy()

        hooks.enter_context(attention_out.register_forward_pre_hook(z))
        hooks.enter_context(ffn_out.register_forward_hook(output))

    # the mask's hooks first, so that ours see the pruned outputs
    with torch.inference_mode(), pruned(loaded, mask), ExitStack() as hooks:
        for layer, modules in enumerate(loaded.family.layer_modules(loaded.model)):
            note(layer, *modules)
        hidden_of(loaded, inputs)
    return Means(heads, ffns)


def _pieces(
    target: Target, texts: Sequence[str], how: Ablating, mean_texts: Sequence[str], records: Sequence[Record]
) -> list[Piece]:
    """Returns one piece per text. Mean ablation has one more, first: the means over all `mean_texts`, shared by
    both kinds, which the others read from the first of the `records` so far."""
    pieces, shape, reference = [], target.shape, None
    if how.fill == "mean":
        mean_texts = [checked(text) for text in mean_texts]
        reference = sorted(map(text_digest, mean_texts))
        about = {"mask": how.mask.key(), "tokens": MIN_TOKENS, "means": reference}
        outputs = {"heads": (shape.n_layers, shape.n_heads, shape.d_head), "ffns": (shape.n_layers, shape.d_model)}
        measure = partial(_means, bos=target.bos, mask=how.mask, texts=mean_texts)
        pieces.append(Piece(canonical_key("attribution", target.key() | about), 0, outputs, measure))
    fields = {"mask": how.mask.key(), "ablation": how.kind, "fill": how.fill, "tokens": MIN_TOKENS}
    fields |= {"reference": reference}
    shapes = {"base": ("n",), "ablated": (target.shape.n_layers, target.shape.n_heads, "n")}
    of_target = target.key_of_patterns() if how.kind == "pattern-preserving" else target.key()
    for text in map(checked, texts):
        key = canonical_key("attribution", of_target | fields | {"text": text_digest(text)})
        measure = partial(_measured, bos=target.bos, text=text, how=how, records=records)
        pieces.append(Piece(key, target.shape.n_heads_total + 1, shapes, measure))
    return pieces


def _means(loaded: Loaded, bos: bool, mask: Mask, texts: Sequence[str]) -> Measuring:
    """Measures mean outputs over all positions of the texts, each with equal weight."""
    found, n = [], []
    for number, text in enumerate(texts):
        yield Progress(0, 0, message=f"means of text {number + 1} of {len(texts)}")
        inputs = _inputs(read_512(loaded, text, bos))
        found.append(mean_outputs(loaded, inputs, mask))
        n.append(inputs.shape[1])
    arrays = {name: np.average([getattr(each, name) for each in found], 0, n).astype(np.float32)
              for name in ("heads", "ffns")}  # fmt: skip
    return arrays, {"kind": "attribution", "mask": mask.text(), "n_positions": sum(n)}


def _measured(loaded: Loaded, bos: bool, text: str, how: Ablating, records: Sequence[Record]) -> Measuring:
    shape, mask, reading = loaded.identity.shape, how.mask, read_512(loaded, text, bos)
    instead = Means(records[0].arrays["heads"], records[0].arrays["ffns"]) if how.fill == "mean" else None
    forced = patterns_of(loaded, _inputs(reading), mask) if how.kind == "pattern-preserving" else None
    attend = nullcontext if forced is None else partial(visited, loaded, forced=forced)
    base = losses_of(loaded, reading, pruned(loaded, mask), attend())
    ablated = np.zeros((shape.n_layers, shape.n_heads, len(base)), np.float32)
    for number, without in enumerate(single_ablations(shape)):
        layer, head = divmod(number, shape.n_heads)
        kept = mask.heads[layer][head]
        how_far = pruned(loaded, mask), pruned(loaded, without, instead), attend()
        ablated[layer, head] = losses_of(loaded, reading, *how_far) if kept else base
        yield Progress(number + 1, shape.n_heads_total + 1, message=f"without L{layer}H{head}")
    about = {"kind": "attribution", "mask": mask.text(), "ablation": how.kind, "fill": how.fill}
    return {"base": base, "ablated": ablated}, about


def read_512(loaded: Loaded, text: str, bos: bool) -> TokenizedText:
    """Returns the text's first 512 tokens (or the model's window, if shorter), with BOS first if it is on."""
    return read(text, loaded.tokenizer, bos, min(MIN_TOKENS, loaded.identity.shape.n_ctx))


def _inputs(reading: TokenizedText) -> np.ndarray:
    """Returns the (1, T) input ids, without the last token, which predicts nothing."""
    return (reading.inputs[:-1] if len(reading.inputs) > 1 else reading.inputs)[None]


def losses_of(loaded: Loaded, reading: TokenizedText, *changed: AbstractContextManager[None]) -> np.ndarray:
    """Returns (n,) losses of the text's tokens in nats, computed inside the contexts `changed`, which are entered in
    order. The first is nan if no token precedes it."""
    import torch

    with ExitStack() as open_ones:
        open_ones.enter_context(torch.inference_mode())
        for each in changed:
            open_ones.enter_context(each)
        first = max(1, reading.n_front)  # of the tokens with a loss
        targets = reading.inputs[first:]
        hidden = hidden_of(loaded, _inputs(reading))[0, first - 1 :][: len(targets)]
        losses = nats_of(loaded, hidden, targets)
    return np.concatenate([np.full(first - reading.n_front, np.nan, np.float32), losses])


def _joined(records: Sequence[Record]) -> HeadAblations:
    of_texts = [record.arrays for record in records if "base" in record.arrays]
    return HeadAblations(tuple(each["base"] for each in of_texts), tuple(each["ablated"] for each in of_texts))

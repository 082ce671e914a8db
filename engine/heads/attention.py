"""Attention patterns of heads on a text, and their effect on the next token, through the store.

A head's pattern is where it attends. Its logit attribution is what attending there adds to the logit of the actual next
token, by the direct path (engine.heads.direct_paths).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.errors import HeadroomError, UsageError
from engine.heads.direct_paths import decomposed, run
from engine.measurement import Measurement, Steps, Workload, single
from engine.models.loading import Loaded
from engine.models.masks import Mask
from engine.models.session import Session, Target
from engine.models.weights import output_weights
from engine.pieces import Measuring, Piece
from engine.progress import Progress
from engine.questions.encoding import TokenizedText, pieces_at, read_within
from engine.records import Key, Record, canonical_key, encode, made_of
from engine.texts.passages import checked, text_digest

if TYPE_CHECKING:
    from torch import Tensor

MAX_TOKENS = 1024  # with BOS; a longer text is cut after this many
THUMBNAIL = 32  # cells along a side
WHOLE_ROWS, N_LARGEST = 256, 64  # of a longer text only the largest sources of each destination are kept
BEGINNING = "⟨bos⟩"
Head = tuple[int, int]  # layer, head


@dataclass(frozen=True)
class AttendedText:
    """A `text` of T tokens as the model reads it: `token_ids` (T,), BOS included, and `ends` (n,), the character
    offsets at which the text's tokens end."""

    text: str
    token_ids: np.ndarray
    ends: np.ndarray

    @property
    def first_text(self) -> int:
        """The index of the text's first token: 1 with BOS."""
        return len(self.token_ids) - len(self.ends)

    @property
    def pieces(self) -> list[str]:
        """The text of each of the T tokens."""
        return [BEGINNING] * self.first_text + pieces_at(self.text, self.ends)


@dataclass(frozen=True)
class Overview(AttendedText):
    """What each component adds to the zero-meaned logit of each token of a text, in nats, 0 for the first token.
    `raised_nats`, `ffns`, `direct` and `rest` add up to `logit`.

    n_left_out: tokens at the end that did not fit
    thumbnails: (L, H, S, S) each head's pattern, the largest weight of each square, scaled to 255
    raised_nats: (L, H, T) added by each head
    ffns: (L, T) added by each FFN
    direct: (T,) added by the embeddings
    rest: (T,) added by biases
    logit: (T,) the zero-meaned logit
    """

    n_left_out: int
    thumbnails: np.ndarray
    raised_nats: np.ndarray
    ffns: np.ndarray
    direct: np.ndarray
    rest: np.ndarray
    logit: np.ndarray


@dataclass(frozen=True)
class HeadView:
    """One head on a text: `pattern` (T, T), row = destination, and `raised_nats` (T, T): what attending from position t
    to a source added to the zero-meaned logit of the token at t + 1 (the last row is 0).

    For a text of more than 256 tokens, only the 64 largest entries of each row; the others are 0.
    """

    pattern: np.ndarray
    raised_nats: np.ndarray


def overview(target: Target, text: str, mask: Mask) -> Measurement[Overview]:
    """Returns the Overview of a text under a mask. HeadroomError: the text is empty, or a single token."""
    text, heads = checked(text), (target.shape.n_layers, target.shape.n_heads)
    shapes: dict[str, tuple[int | str, ...]] = {name: ("T",) for name in ("token_ids", "direct", "rest", "logit")}
    shapes |= {"ends": ("n",), "n_left_out": (), "thumbnails": (*heads, "S", "S")}
    shapes |= {"raised_nats": (*heads, "T"), "ffns": (target.shape.n_layers, "T")}
    measure, value = partial(_overview, text=text, mask=mask, bos=target.bos), partial(_as_overview, text)
    key = _key(target, text, mask, "overview")
    return single(target, Piece(key, 1, shapes, measure, lambda: len(text), "patterns", value), value)


def head_views(target: Target, text: str, mask: Mask, heads: Sequence[Head]) -> Measurement[dict[Head, HeadView]]:
    """Returns a HeadView of each of `heads`. A forward pass stores all heads of each layer it is needed for, because
    the next head requested is often in the same layer. UsageError: the model has no such head. HeadroomError: as for
    `overview`."""
    text, shape = checked(text), target.shape
    for layer, head in heads:
        if not (0 <= layer < shape.n_layers and 0 <= head < shape.n_heads):
            raise UsageError(f"head L{layer}H{head}: this model has layers 0 to {shape.n_layers - 1} and heads 0 to "
                             f"{shape.n_heads - 1}; choose within that")  # fmt: skip
    keys = {head: _key(target, text, mask, head) for head in heads}
    expected = partial(Workload, {"patterns": float(len(text))})

    def steps(session: Session, measures: bool) -> Steps[dict[Head, HeadView]]:
        read = {head: made_of(session.record(key), _as_view) for head, key in keys.items()}
        known = {head: view for head, view in read.items() if view is not None}
        missing = [head for head in keys if head not in known]
        if missing and measures:
            loaded = yield from session.loaded(target)
            started = time.perf_counter()
            for head, arrays in _head_views(loaded, text, mask, target.bos, sorted({layer for layer, _ in missing})):
                receipt = target.receipt(time.perf_counter() - started, kind="attention", mask=mask.text())
                record = Record(arrays, receipt)
                session.store.put(_key(target, text, mask, head), encode(record))
                known |= {head: _as_view(record)} if head in keys else {}
        yield Progress(1, 1, known, cached=not missing)
        return {} if measures else {keys[head]: expected for head in missing[:1]}

    return Measurement(target, ("head views", *keys.values()), steps)


def _overview(loaded: Loaded, text: str, mask: Mask, bos: bool) -> Measuring:
    import torch

    yield Progress(0, 1)

    reading = _reading(loaded, text, bos)
    thumbnails = {}

    def visit(layer: int, pattern: Tensor, z: Tensor, values: Tensor) -> None:
        small = torch.nn.functional.adaptive_max_pool2d(pattern[0], min(THUMBNAIL, pattern.shape[-1]))
        largest = small.amax((-1, -2), keepdim=True).clamp_min(1e-12)
        thumbnails[layer] = (255 * small / largest).round().byte().cpu().numpy()

    with torch.inference_mode():
        parts = decomposed(loaded, run(loaded, reading.inputs, mask, visit))
    # values at a position belong to the next token; no position precedes the first token
    shifted = {name: np.concatenate([np.zeros((*array.shape[:-1], 1)), array], -1) for name, array in parts.items()}
    arrays = {"token_ids": reading.inputs, "ends": reading.ends, "n_left_out": np.array(reading.n_left_out)}
    arrays["thumbnails"] = np.stack([thumbnails[layer] for layer in sorted(thumbnails)])
    arrays["raised_nats"] = shifted["heads"].astype(np.float16)
    arrays |= {name: shifted[name].astype(np.float32) for name in ("ffns", "direct", "rest", "logit")}
    return arrays, {"kind": "attention overview", "mask": mask.text()}


def _head_views(
    loaded: Loaded, text: str, mask: Mask, bos: bool, layers: Sequence[int]
) -> Iterator[tuple[Head, dict[str, np.ndarray]]]:
    import torch

    reading, seen = _reading(loaded, text, bos), {}

    def visit(layer: int, pattern: Tensor, z: Tensor, values: Tensor) -> None:
        if layer in layers:
            seen[layer] = (pattern[0], values[0].float())

    with torch.inference_mode():
        ran = run(loaded, reading.inputs, mask, visit)
        for layer in layers:
            pattern, values = seen.pop(layer)
            weights, kept = output_weights(loaded, layer), mask.heads[layer]
            for head in range(len(pattern)):
                raised = torch.zeros_like(pattern[head])
                if kept[head]:
                    read = ran.for_attention[layer].to(pattern.device)
                    raised[:-1] = read @ (values[head] @ weights[head]).T * pattern[head, :-1]
                count = len(raised) if len(raised) <= WHOLE_ROWS else N_LARGEST
                yield (layer, head), largest("pattern", pattern[head], count) | largest("raised_nats", raised, count)


def largest(name: str, rows: Tensor, count: int) -> dict[str, np.ndarray]:
    """Returns the `count` largest values of each row, in half precision, and their columns, as arrays of a record."""
    sources = rows.abs().topk(count, dim=-1).indices
    return {name: rows.gather(1, sources).half().cpu().numpy(), f"{name}_at": sources.short().cpu().numpy()}


def _reading(loaded: Loaded, text: str, bos: bool) -> TokenizedText:
    reading = read_within(text, loaded.tokenizer, bos, min(MAX_TOKENS, loaded.identity.shape.n_ctx))
    if len(reading.inputs) < 2:
        raise HeadroomError(f"the text {text[:40]!r} is a single token, and attention needs two; take a longer text")
    return reading


def whole_rows(record: Record, name: str) -> np.ndarray:
    """Returns (T, T): the rows of which `largest` kept these values, 0 elsewhere."""
    rows = record.arrays[name]
    whole = np.zeros((len(rows), len(rows)), np.float32)
    np.put_along_axis(whole, record.arrays[f"{name}_at"].astype(np.int64), rows.astype(np.float32), 1)
    return whole


def _as_overview(text: str, record: Record) -> Overview:
    arrays: dict[str, Any] = {**record.arrays, "n_left_out": int(record.arrays["n_left_out"])}
    return Overview(text, **arrays)


def _as_view(record: Record) -> HeadView:
    return HeadView(whole_rows(record, "pattern"), whole_rows(record, "raised_nats"))


def _key(target: Target, text: str, mask: Mask, what: str | Head) -> Key:
    fields = {"attention": "own", "mask": mask.key(), "text": text_digest(text)}
    return canonical_key(
        "attention", target.key_of_patterns() | fields | {"what": what if isinstance(what, str) else list(what)}
    )

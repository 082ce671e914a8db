"""What heads look at in a text, and what that does to the token that comes next, through the store.

A head's pattern is where it attends. Its logit attribution is what attending there adds to the logit of the token that
actually came next, by the direct path (engine.heads.direct_paths).
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.accuracy.evaluation import loaded_model, numbers_key, with_bos
from engine.errors import HeadroomError, UsageError
from engine.heads.direct_paths import decomposed, run
from engine.jobs import Progress
from engine.models.checkpoints import Identity
from engine.models.loading import Loaded, LoadSpec, Models, identify
from engine.models.masks import Mask
from engine.models.weights import output_weights
from engine.records import Record, canonical_key, decode, encode
from engine.texts.passages import checked, text_digest
from engine.texts.tokenloss import beginning_id, pieces_at, tokenized

MAX_TOKENS = 1024  # with BOS; a longer text is cut behind
THUMBNAIL = 32  # cells along a side
WHOLE_ROWS, N_LARGEST = 256, 64  # of a longer text only the largest sources of each destination are kept
BEGINNING = "⟨bos⟩"
Head = tuple[int, int]  # layer, head


@dataclass(frozen=True)
class Overview:
    """A text of T tokens as the model reads it, BOS included (`first_text` is then 1), and what each part of the model
    adds to the zero-meaned logit of each token, in logits (nats), 0 for the first token.

    `raised_nats` (L, H, T), `ffns` (L, T), `direct` (T,) and `rest` (T,) add up to `logit` (T,). `thumbnails` (L, H, S,
    S): each head's pattern, the largest of each square, scaled to 255. `n_left_out` tokens behind did not fit.
    """

    text: str
    token_ids: np.ndarray
    ends: np.ndarray
    first_text: int
    n_left_out: int
    thumbnails: np.ndarray
    raised_nats: np.ndarray
    ffns: np.ndarray
    direct: np.ndarray
    rest: np.ndarray
    logit: np.ndarray

    @property
    def pieces(self) -> list[str]:
        """The text of each of the T tokens."""
        return [BEGINNING] * self.first_text + pieces_at(self.text, self.ends)


@dataclass(frozen=True)
class HeadView:
    """One head on a text: `pattern` (T, T), row = destination, and `raised_nats` (T, T): what attending from position t
    to a source added to the zero-meaned logit of the token at t + 1 (the last row is 0).

    Of a text of more than 256 tokens the 64 largest of each row; what was smaller is 0.
    """

    pattern: np.ndarray
    raised_nats: np.ndarray


def overview(models: Models, spec: LoadSpec, text: str, mask: Mask, bos: bool | None, store: Any) -> Iterator[Progress]:
    """Yields Progress, the last one's value the Overview; what is stored is not computed again."""
    text = checked(text)
    identity = identify(spec, store)
    key = _key(identity, spec, text, mask, bos, "overview")
    record = decode(store.get(key))
    cached = record is not None
    if record is None:
        loaded = yield from loaded_model(models, spec, 0, 1)
        started = time.perf_counter()
        record = Record(_overview(loaded, text, mask, with_bos(identity, bos)),
                        _receipt(identity, spec, mask, bos, "attention overview", started))  # fmt: skip
        store.put(key, encode(record))
    yield Progress(1, 1, _as_overview(text, record), cached=cached)


def recall_overview(
    identity: Identity, spec: LoadSpec, text: str, mask: Mask, bos: bool | None, store: Any
) -> Overview | None:
    """The overview where it is stored, else None; loads and computes nothing."""
    record = decode(store.get(_key(identity, spec, text, mask, bos, "overview")))
    return None if record is None else _as_overview(text, record)


def head_views(
    models: Models, spec: LoadSpec, text: str, mask: Mask, heads: Sequence[Head], bos: bool | None, store: Any
) -> Iterator[Progress]:
    """Yields Progress, the last one's value a HeadView for each of `heads`. A forward pass gives all heads of the
    layers that it is needed for: the next head is often a neighbour. UsageError: the model has no such head.
    """
    text = checked(text)
    identity = identify(spec, store)
    shape = identity.shape
    for layer, head in heads:
        if not (0 <= layer < shape.n_layers and 0 <= head < shape.n_heads):
            raise UsageError(f"head L{layer}H{head}: this model has layers 0 to {shape.n_layers - 1} and heads 0 to "
                             f"{shape.n_heads - 1}; choose within that")  # fmt: skip
    found = {head: decode(store.get(_key(identity, spec, text, mask, bos, head))) for head in heads}
    missing = sorted({layer for (layer, _), record in found.items() if record is None})
    if missing:
        loaded = yield from loaded_model(models, spec, 0, 1)
        started = time.perf_counter()
        for head, arrays in _head_views(loaded, text, mask, with_bos(identity, bos), missing):
            record = Record(arrays, _receipt(identity, spec, mask, bos, "attention", started))
            store.put(_key(identity, spec, text, mask, bos, head), encode(record))
            found |= {head: record} if head in found else {}
    yield Progress(1, 1, {head: _as_view(record) for head, record in found.items() if record}, cached=not missing)


def recall_head_views(
    identity: Identity, spec: LoadSpec, text: str, mask: Mask, heads: Sequence[Head], bos: bool | None, store: Any
) -> dict[Head, HeadView] | None:
    """The views where all are stored, else None; loads and computes nothing."""
    found = {}
    for head in heads:
        record = decode(store.get(_key(identity, spec, text, mask, bos, head)))
        if record is None:
            return None
        found[head] = _as_view(record)
    return found


def _overview(loaded: Loaded, text: str, mask: Mask, bos: bool) -> dict[str, np.ndarray]:
    import torch

    read = _reading(loaded, text, bos)
    thumbnails = {}

    def visit(layer: int, pattern: Any, z: Any, values: Any) -> None:
        small = torch.nn.functional.adaptive_max_pool2d(pattern[0], min(THUMBNAIL, pattern.shape[-1]))
        largest = small.amax((-1, -2), keepdim=True).clamp_min(1e-12)
        thumbnails[layer] = (255 * small / largest).round().byte().cpu().numpy()

    with torch.inference_mode():
        found = decomposed(loaded, run(loaded, read.inputs, mask, visit))
    # what is added at a position belongs to the token that comes next; the first one has nothing in front
    shifted = {name: np.concatenate([np.zeros((*array.shape[:-1], 1)), array], -1) for name, array in found.items()}
    return {
        "token_ids": read.inputs, "ends": read.ends, "n_left_out": np.array(read.n_left_out),
        "thumbnails": np.stack([thumbnails[layer] for layer in sorted(thumbnails)]),
        "raised_nats": shifted["heads"].astype(np.float16),
        **{name: shifted[name].astype(np.float32) for name in ("ffns", "direct", "rest", "logit")},
    }  # fmt: skip


def _head_views(
    loaded: Loaded, text: str, mask: Mask, bos: bool, layers: Sequence[int]
) -> Iterator[tuple[Head, dict[str, np.ndarray]]]:
    import torch

    read, seen = _reading(loaded, text, bos), {}

    def visit(layer: int, pattern: Any, z: Any, values: Any) -> None:
        if layer in layers:
            seen[layer] = (pattern[0], values[0].float())

    with torch.inference_mode():
        ran = run(loaded, read.inputs, mask, visit)
        for layer in layers:
            pattern, values = seen.pop(layer)
            weights, kept = output_weights(loaded, layer), mask.heads[layer]
            for head in range(len(pattern)):
                raised = torch.zeros_like(pattern[head])
                if kept[head]:
                    raised[:-1] = ran.for_attention[layer] @ (values[head] @ weights[head]).T * pattern[head, :-1]
                yield (layer, head), _largest("pattern", pattern[head]) | _largest("raised_nats", raised)


def _largest(name: str, rows: Any) -> dict[str, np.ndarray]:
    """The largest of each row, in half precision, with where they are."""
    count = len(rows) if len(rows) <= WHOLE_ROWS else N_LARGEST
    sources = rows.abs().topk(count, dim=-1).indices
    return {name: rows.gather(1, sources).half().cpu().numpy(), f"{name}_at": sources.short().cpu().numpy()}


@dataclass(frozen=True)
class _Reading:
    """`inputs` (T,) with BOS in front where it is on; `ends` of the text's tokens among them."""

    inputs: np.ndarray
    ends: np.ndarray
    n_left_out: int


def _reading(loaded: Loaded, text: str, bos: bool) -> _Reading:
    ids, ends = tokenized(text, loaded.tokenizer)
    begin = beginning_id(loaded.tokenizer, bos)
    front = np.array([] if begin is None else [begin], np.int32)
    fits = min(MAX_TOKENS, loaded.identity.shape.n_ctx) - len(front)
    inputs = np.concatenate([front, ids[:fits]])
    if len(inputs) < 2:
        raise HeadroomError(f"the text {text[:40]!r} is a single token, and attention needs two; take a longer text")
    return _Reading(inputs, ends[:fits], max(0, len(ids) - fits))


def _as_overview(text: str, record: Record) -> Overview:
    arrays = dict(record.arrays)
    n_left_out = int(arrays.pop("n_left_out"))
    return Overview(text, first_text=len(arrays["token_ids"]) - len(arrays["ends"]), n_left_out=n_left_out, **arrays)


def _as_view(record: Record) -> HeadView:
    whole = {}
    for name in ("pattern", "raised_nats"):
        rows = record.arrays[name]
        whole[name] = np.zeros((len(rows), len(rows)), np.float32)
        np.put_along_axis(whole[name], record.arrays[f"{name}_at"].astype(np.int64), rows.astype(np.float32), 1)
    return HeadView(**whole)


def _receipt(
    identity: Identity, spec: LoadSpec, mask: Mask, bos: bool | None, kind: str, started_s: float
) -> dict[str, Any]:
    return numbers_key(identity, spec, bos) | {
        "kind": kind, "name": identity.name, "mask": mask.text(), "seconds": round(time.perf_counter() - started_s, 4),
    }  # fmt: skip


def _key(identity: Identity, spec: LoadSpec, text: str, mask: Mask, bos: bool | None, what: str | Head) -> str:
    fields = numbers_key(identity, spec, bos) | {
        "attention": "own", "mask": mask.key(), "what": what if isinstance(what, str) else list(what),
        "text": text_digest(text),
    }  # fmt: skip
    return canonical_key("attention", fields)

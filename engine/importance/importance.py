"""How much each head and FFN matters for a task: gradient scores in one backward pass, and the ablation oracle.

The choices of a question share one packed forward pass where that is cheaper, and have a backward pass each.
"""

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engine.accuracy.evaluation import (
    Answers,
    encoded_chunk,
    loaded_model,
    make_receipt,
    numbers_key,
    texts_digest,
)
from engine.errors import UsageError
from engine.importance.gradients import gate_gradients
from engine.importance.oracle import oracle, recall_oracle
from engine.jobs import Progress
from engine.models.checkpoints import Identity
from engine.models.loading import Loaded, LoadSpec, Models, identify
from engine.models.masks import Mask, pruned
from engine.questions.encoding import Encoded, Row, pack
from engine.questions.requests import Requests, Selection
from engine.records import Record, canonical_key, decode, encode
from engine.shapes import ModelShape

GRADIENT_TOKENS = 256  # padded tokens a backward pass, which keeps every layer's activations; more is no faster ...
GRADIENT_TOKENS_SMALL = 512  # ... except where n_layers * d_model is at most SMALL_WIDTH, and little is kept
SMALL_WIDTH = 4096
WHAT = ("heads", "gate", "heads-oracle", "ffns")


@dataclass(frozen=True)
class Scores:
    """Importance scores over n questions: (layer, head) for heads, (layer,) for FFNs; larger = more important.

    `tie_break` orders equal scores (oracles: mean gold log-likelihood lost, nats). `gate_heads` (n, choice, L, H) and
    `gate_ffns` (n, choice, L) are the signed gate gradients dLoss/dgate of each choice's mean loss over its `n_targets`
    (n, choice) continuation tokens, fp16, nan where a question has no such choice; `n_zero` counts those that are
    exactly 0. Of `heads` they are the gold choice's alone.
    """

    what: str
    n: int
    scores: np.ndarray
    tie_break: np.ndarray | None = None
    gate_heads: np.ndarray | None = None
    gate_ffns: np.ndarray | None = None
    n_targets: np.ndarray | None = None
    n_zero: int = 0
    cached: bool = False


def importance(
    models: Models, spec: LoadSpec, requests: Requests, selection: Selection, what: str, bos: bool | None, store: Any,
    mask: Mask | None = None,
) -> Iterator[Progress]:  # fmt: skip
    """Yields Progress, its value the Scores so far (oracles: only when finished).

    `heads`: Bansal et al.'s I_h from the gold choice. `gate`: mean |dLoss/dgate| of the gold choice (Michel et al.
    2019), with every choice's signed gradients kept. `heads-oracle`, `ffns`: accuracy lost when that one is pruned.
    Under a `mask`, of the model that it leaves (gradient scores only): what is pruned scores 0.
    """
    _check_mask(what, mask)
    if what == "ffns" or what == "heads-oracle":
        shape = identify(spec, store).shape
        for step in oracle(models, spec, requests, selection, what, bos, store):
            scores = None if step.value is None else replace(_drops(what, shape, step.value), cached=step.cached)
            yield replace(step, value=scores)
    elif what in WHAT:
        yield from _by_gradient(models, spec, requests, selection, what, bos, store, mask)
    else:
        raise UsageError(f"importance {what!r} is unknown; choose one of {', '.join(WHAT)}")


def recall_scores(
    identity: Identity, spec: LoadSpec, requests: Requests, selection: Selection, what: str, bos: bool | None,
    store: Any, mask: Mask | None = None,
) -> Scores | None:  # fmt: skip
    """The finished Scores if all of it is stored, else None; loads and computes nothing."""
    _check_mask(what, mask)
    if what in ("ffns", "heads-oracle"):
        answers = recall_oracle(identity, spec, requests, selection, what, bos, store)
        return None if answers is None else _drops(what, identity.shape, answers)
    parts = []
    for chunk in selection.chunks():
        record = _stored(_key(identity, spec, requests, chunk, what, bos, mask or Mask.full(identity.shape)), store)
        if record is None:
            return None
        parts.append(record)
    return replace(_scores(what, parts, selection.n), cached=True)


def _check_mask(what: str, mask: Mask | None) -> None:
    if mask is not None and not mask.is_full and what in ("ffns", "heads-oracle"):
        raise UsageError(f"importance {what!r} cannot be measured anew under a mask; choose heads or gate")


def _by_gradient(
    models: Models, spec: LoadSpec, requests: Requests, selection: Selection, what: str, bos: bool | None, store: Any,
    mask: Mask | None,
) -> Iterator[Progress]:  # fmt: skip
    identity, parts, all_cached = identify(spec, store), [], True
    mask = mask or Mask.full(identity.shape)
    for chunk in selection.chunks():
        key = _key(identity, spec, requests, chunk, what, bos, mask)
        record = _stored(key, store)
        if record is None:
            all_cached = False
            done = min(selection.n, len(parts) * len(chunk))
            loaded = yield from loaded_model(models, spec, done, selection.n)
            record = yield from _measured(loaded, spec, requests, chunk, what, bos, mask, (done, selection.n))
            store.put(key, encode(record))
        parts.append(record)
        scores = replace(_scores(what, parts, selection.n), cached=all_cached)
        yield Progress(scores.n, selection.n, scores, cached=all_cached)


def _measured(
    loaded: Loaded, spec: LoadSpec, requests: Requests, chunk: Sequence[int], what: str, bos: bool | None,
    mask: Mask, so_far: tuple[int, int],
) -> Generator[Progress, None, Record]:  # fmt: skip
    started, identity, shape = time.perf_counter(), loaded.identity, loaded.identity.shape
    encoded = encoded_chunk(loaded, requests, chunk, bos)
    golds = [requests.questions[index].golds[0] for index in chunk]
    n_choices = max(map(len, encoded)) if what == "gate" else 1
    absolute = np.zeros((len(chunk), shape.n_layers, shape.n_heads), np.float32)
    heads = np.full((len(chunk), n_choices, shape.n_layers, shape.n_heads), np.nan, np.float16)
    ffns = np.full((len(chunk), n_choices, shape.n_layers), np.nan, np.float16)
    n_targets = np.zeros((len(chunk), n_choices), np.int32)
    lengths = np.zeros((len(chunk), 2), np.int64)  # positions that carry gradient; continuation tokens
    rows = [row for choices, gold in zip(encoded, golds, strict=True)
            for row in (_rows(choices) if what == "gate" else pack([choices[gold]]))]  # fmt: skip
    small = shape.n_layers * shape.d_model <= SMALL_WIDTH
    for group in _groups(rows, GRADIENT_TOKENS_SMALL if small else GRADIENT_TOKENS):
        with pruned(loaded, mask):
            by_position, by_head, by_ffn = gate_gradients(loaded, group)
        places = [((index, number), choice) for index, row in enumerate(group)
                  for number, choice in enumerate(row.choices)]  # fmt: skip
        for at, choice in places:
            where = choice.question, choice.choice if what == "gate" else 0
            heads[where], ffns[where], n_targets[where] = by_head[at], by_ffn[at], len(choice.targets)
            if choice.choice == golds[choice.question]:
                absolute[choice.question] = by_position[at]
                lengths[choice.question] = len(choice.inputs), len(choice.targets)
        yield Progress(*so_far)
    receipt = make_receipt(identity, spec, requests, bos, time.perf_counter() - started) | {
        "kind": what,
        "mask": mask.text(),
    }
    arrays = {"absolute": absolute, "heads": heads, "ffns": ffns, "lengths": lengths,
              "gold": np.array(golds if what == "gate" else [0] * len(chunk), np.int64)}  # fmt: skip
    if what == "gate":
        arrays["n_targets"] = n_targets
    return Record(arrays, receipt)


def _rows(choices: Sequence[Encoded]) -> list[Row]:
    """Rows for one question's choices, packed where that is cheaper: one forward pass of the packed row and a backward
    pass for each choice, against both for each choice alone."""
    packed = pack(choices)
    together = sum(len(row.tokens) * (1 + len(row.choices)) for row in packed)
    alone = sum(2 * len(choice.inputs) for choice in choices)
    return packed if together < alone else [pack([choice])[0] for choice in choices]


def _groups(rows: Sequence[Row], n_tokens: int) -> list[list[Row]]:
    """Rows with the same number of choices, longest first, at most so many padded tokens a group."""
    groups: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: (-len(row.choices), -len(row.tokens))):
        first = groups[-1][0] if groups else row
        if (groups and len(first.choices) == len(row.choices)
                and (len(groups[-1]) + 1) * len(first.tokens) <= n_tokens):  # fmt: skip
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _stored(key: str, store: Any) -> Record | None:
    """The chunk under `key`; None where it is missing, or is of a time when choices' lengths were not kept."""
    record = decode(store.get(key))
    if record is not None and record.receipt.get("kind") == "gate" and "n_targets" not in record.arrays:
        return None
    return record


def _scores(what: str, parts: Sequence[Record], limit: int) -> Scores:
    """Scores of the first `limit` questions of the stored chunks.

    I_h: sum over positions and examples, divided by the positions that carry gradient (sequence length - 1), the last
    layer by the number of continuation tokens, as llm-interpret at batch size 1.
    """
    n_choices = max(part.arrays["heads"].shape[1] for part in parts)

    def joined(name: str) -> np.ndarray:
        arrays = [part.arrays[name] for part in parts]
        if name in ("heads", "ffns", "n_targets"):
            none = 0 if name == "n_targets" else np.nan
            widths = [[(0, 0), (0, n_choices - array.shape[1]), *[(0, 0)] * (array.ndim - 2)] for array in arrays]
            arrays = [np.pad(array, width, constant_values=none) for array, width in zip(arrays, widths, strict=True)]
        return np.concatenate(arrays)[:limit]

    heads, ffns, lengths, gold = joined("heads"), joined("ffns"), joined("lengths"), joined("gold")
    n_targets = joined("n_targets") if what == "gate" else lengths[:, 1:]
    if what == "gate":
        scores = np.abs(heads[np.arange(len(gold)), gold].astype(np.float64)).mean(0)
    else:
        scores = joined("absolute").astype(np.float64).sum(0)
        scores[:-1] /= lengths[:, 0].sum()
        scores[-1] /= lengths[:, 1].sum()
    return Scores(what, len(gold), scores, None, heads, ffns, n_targets, int((heads == 0).sum()))


def _drops(what: str, shape: ModelShape, answers: Sequence[Answers]) -> Scores:
    """What each ablation costs; `answers` are the full model's, then one for each head or FFN."""
    full, ablated = answers[0], answers[1:]
    size = (shape.n_layers,) if what == "ffns" else (shape.n_layers, shape.n_heads)
    accuracy_drop = np.array([full.correct.mean() - each.correct.mean() for each in ablated]).reshape(size)
    gold = full.gold_log_likelihood_nats.mean()
    nats_drop = np.array([gold - each.gold_log_likelihood_nats.mean() for each in ablated]).reshape(size)
    return Scores(what, len(full), accuracy_drop, nats_drop, cached=True)


def _key(
    identity: Identity, spec: LoadSpec, requests: Requests, chunk: Sequence[int], what: str, bos: bool | None,
    mask: Mask,
) -> str:  # fmt: skip
    fields = numbers_key(identity, spec, bos) | {"questions": texts_digest(requests, chunk), "what": what,
                                                 "golds": [requests.questions[i].golds[0] for i in chunk]}  # fmt: skip
    return canonical_key("importance", fields if mask.is_full else fields | {"mask": mask.key()})

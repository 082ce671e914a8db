"""The ablation oracle: the same questions without each head, or without each FFN, as `engine.accuracy.evaluation` would
answer them, in about half its forward passes (engine.accuracy.restarts).
"""

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from typing import Any

from engine.accuracy.evaluation import (
    Answers,
    answers_record,
    chunk_key,
    encoded_chunk,
    evaluate,
    loaded_model,
    recall,
    stored_answers,
)
from engine.accuracy.restarts import score_each
from engine.jobs import Progress
from engine.models.checkpoints import Identity
from engine.models.loading import LoadSpec, Models, identify
from engine.models.masks import Mask
from engine.questions.requests import Requests, Selection
from engine.records import encode
from engine.shapes import ModelShape


def single_ablations(shape: ModelShape, what: str) -> list[Mask]:
    """One mask for each head (row by row) or, where `what` is ffns, for each FFN, pruning just that one."""
    masks, full = [], Mask.full(shape)
    if what == "ffns":
        for layer in range(shape.n_layers):
            masks.append(replace(full, ffns=tuple(at != layer for at in range(shape.n_layers))))
        return masks
    for layer in range(shape.n_layers):
        for head in range(shape.n_heads):
            row = tuple(at != head for at in range(shape.n_heads))
            masks.append(replace(full, heads=(*full.heads[:layer], row, *full.heads[layer + 1 :])))
    return masks


def oracle(
    models: Models, spec: LoadSpec, requests: Requests, selection: Selection, what: str, bos: bool | None, store: Any
) -> Iterator[Progress]:
    """Yields Progress, the last one's value the list of Answers of the full model and under each single ablation.

    Each chunk under each mask is stored as `evaluate` stores it, so either finds what the other measured.
    """
    identity = identify(spec, store)
    masks = [Mask.full(identity.shape), *single_ablations(identity.shape, what)]
    total, done, all_cached = len(masks) * selection.n, 0, True
    for chunk in selection.chunks():
        keys = {mask: chunk_key(identity, spec, requests, chunk, mask, bos) for mask in masks}
        missing = [mask for mask in masks if stored_answers(keys[mask], store, len(chunk)) is None]
        if missing:
            all_cached = False
            yield from _measured(models, spec, requests, chunk, missing, keys, bos, store, (done, total))
        done = min(total, done + len(masks) * len(chunk))
        yield Progress(done, total, message=f"without one of {len(masks) - 1}", cached=all_cached)
    answers = []
    for mask in masks:  # from the store; what the disk refused is in its memory
        final = None
        for step in evaluate(models, spec, requests, selection, mask, bos, store):
            final = step.value if step.value is not None else final
        answers.append(final)
    yield Progress(total, total, answers, cached=all_cached)


def recall_oracle(
    identity: Identity, spec: LoadSpec, requests: Requests, selection: Selection, what: str, bos: bool | None,
    store: Any,
) -> list[Answers] | None:  # fmt: skip
    """What `oracle` ends with where all of it is stored, else None; loads and computes nothing."""
    answers = []
    for mask in [Mask.full(identity.shape), *single_ablations(identity.shape, what)]:
        answers.append(recall(identity, spec, requests, selection, mask, bos, store))
        if len(answers[-1]) < selection.n:
            return None
    return answers


def _measured(
    models: Models, spec: LoadSpec, requests: Requests, chunk: tuple[int, ...], missing: Sequence[Mask],
    keys: dict[Mask, str], bos: bool | None, store: Any, so_far: tuple[int, int],
) -> Generator[Progress, None, None]:  # fmt: skip
    done, total = so_far
    loaded = yield from loaded_model(models, spec, done, total)
    started, n_done = time.perf_counter(), 0
    encoded = encoded_chunk(loaded, requests, chunk, bos)
    steps = score_each(loaded, encoded, missing)
    while True:
        try:
            n_done += next(steps)
        except StopIteration as finished:
            found = finished.value
            break
        yield Progress(min(total, done + n_done), total, message="without one at a time")
    seconds = (time.perf_counter() - started) / len(missing)
    for mask, scored in zip(missing, found, strict=True):
        record = answers_record(loaded, spec, requests, mask, bos, encoded, scored, seconds)
        store.put(keys[mask], encode(record))

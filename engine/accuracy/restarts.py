"""Forward passes that start in the middle: the layers before the first one that a mask changes are computed once.

One pass under the mask common to all (for single ablations, the full model) gives every layer's input; each mask then
starts from the input of the first layer that it changes in addition. With one mask per layer, this halves the work.

Also the ablation oracle, which is made of such passes: the same questions without each head, each FFN or each layer, as
`engine.accuracy.evaluation` would answer them.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache as once
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.accuracy.evaluation import Answers, answers_measured, chunk_pieces, encoded_chunk, evaluation
from engine.accuracy.passes import hidden_states, passes
from engine.accuracy.scoring import Scored, gathered, read_rows, score_under, shared_prefix
from engine.measurement import Call, Measurement, Steps, Workload, note_incomplete
from engine.models.loading import Loaded
from engine.models.masks import Mask, single_ablations
from engine.models.session import Session, Target
from engine.models.slicing import Sliced, applied, sliced
from engine.pieces import found
from engine.progress import Progress, driven
from engine.questions.encoding import Encoded, pack
from engine.questions.rendering import Questions
from engine.records import Record, encode
from engine.timing.workload import all_characters

if TYPE_CHECKING:
    from torch import Tensor

APART = 16  # masks that another process measures together


def first_changed(mask: Mask, base: Mask) -> int:
    """Returns the first layer in which the two masks differ, or the number of layers if they are equal."""
    for layer, row in enumerate(mask.heads):
        if (row, mask.ffns[layer]) != (base.heads[layer], base.ffns[layer]):
            return layer
    return len(mask.ffns)


def common(masks: Sequence[Mask]) -> Mask:
    """Returns the mask that prunes the components pruned by all of these masks."""
    heads, ffns = (np.any([getattr(mask, part) for mask in masks], axis=0) for part in ("heads", "ffns"))
    return Mask.from_arrays(heads, ffns)


def score_each(
    loaded: Loaded, questions: Sequence[Sequence[Encoded]], masks: Sequence[Mask]
) -> Generator[int, None, list[Scored]]:
    """Yields the number of masks done after each forward pass; returns what `engine.accuracy.scoring.score` would
    return under each of the masks, bit for bit."""
    rows = [row for choices in questions for row in pack(choices)]
    if shared_prefix(rows):  # its keys and values would have to be kept for every mask and layer
        return (yield from _one_by_one(loaded, questions, masks))
    base = common(masks)
    starts = [first_changed(mask, base) for mask in masks]
    parts: list[Sliced | None] = [None] * len(masks)
    found: list[list[Scored]] = [[] for _ in masks]
    scored = []
    n_layers, of_all = loaded.identity.shape.n_layers, sliced(loaded, base)
    for groups in passes(loaded, rows):
        scored += (together := [row for group in groups for row in group])
        with applied(loaded, of_all), kept(loaded, {start for start in starts if start < n_layers}) as inputs:
            before = hidden_states(loaded, groups)
        plain = read_rows(loaded, together, before) if n_layers in starts else None
        yield starts.count(n_layers)
        for number, (mask, start) in enumerate(zip(masks, starts, strict=True)):
            if plain is not None and start == n_layers:
                found[number] += plain
                continue
            smaller = parts[number] = parts[number] or sliced(loaded, mask)
            with applied(loaded, smaller), starting_at(loaded, start, inputs[start]):
                found[number] += read_rows(loaded, together, hidden_states(loaded, groups))
            yield 1
    return [gathered(questions, scored, results) for results in found]


def _one_by_one(
    loaded: Loaded, questions: Sequence[Sequence[Encoded]], masks: Sequence[Mask]
) -> Generator[int, None, list[Scored]]:
    found = []
    for mask in masks:
        change = partial(applied, loaded, sliced(loaded, mask))
        found.append((yield from driven(score_under(loaded, questions, change), lambda _: 0)))
        yield 1
    return found


@contextmanager
def kept(loaded: Loaded, layers: set[int]) -> Iterator[dict[int, Tensor]]:
    """While open, a forward pass stores the inputs of these layers in the mapping that is yielded."""
    inputs: dict[int, Tensor] = {}

    def keep(layer: int) -> Any:
        return lambda module, args, kwargs: inputs.update({layer: args[0] if args else kwargs["hidden_states"]})

    modules = loaded.family.layer_list(loaded.model)
    with ExitStack() as hooks:
        for layer in layers:
            hooks.enter_context(modules[layer].register_forward_pre_hook(keep(layer), with_kwargs=True))
        yield inputs


@contextmanager
def starting_at(loaded: Loaded, layer: int, given: Tensor) -> Iterator[None]:
    """While open, the model runs only the layers from this one on, with `given` as the input of the first. Others stand
    in for those before it, because transformers counts layers to know what each is given."""
    import torch

    def feed(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return ((given, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": given})

    holder, _, name = loaded.family.layers.rpartition(".")
    parent = attrgetter(holder)(loaded.model)
    every = getattr(parent, name)
    with every[layer].register_forward_pre_hook(feed, with_kwargs=True):
        try:
            before = [_skipped(loaded.family.is_adapted)() for _ in range(layer)]
            setattr(parent, name, torch.nn.ModuleList([*before, *list(every)[layer:]]))
            yield
        finally:
            setattr(parent, name, every)


@once
def _skipped(gives_tuple: bool) -> Any:
    import torch

    class Skipped(torch.nn.Module):
        def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor | tuple[Tensor, None]:
            return (hidden_states, None) if gives_tuple else hidden_states

    return Skipped


def oracle(target: Target, questions: Questions, what: str) -> Measurement[list[Answers]]:
    """Returns the Answers of the full model, then under each single ablation of `what` (heads-oracle, ffns or
    layers)."""
    return under_each(target, questions, [Mask.full(target.shape), *single_ablations(target.shape, what)])


def under_each(target: Target, questions: Questions, masks: Sequence[Mask]) -> Measurement[list[Answers]]:
    """Returns the Answers under each of the masks, the first of which prunes least.

    Each chunk under each mask is stored as by `evaluation`, so each finds the records of the other.
    """

    total = len(masks) * questions.n

    def measure_chunk(session: Session, chunk: Sequence[int], keys: Mapping[Mask, str], done: int) -> Steps[Any]:
        """Measures and stores one chunk under each mask whose record is missing."""
        loaded = yield from session.loaded(target, done, total)
        started, n_done = time.perf_counter(), 0
        encoded = encoded_chunk(loaded, target, questions, chunk)

        def progress(n_more: int) -> Progress[Any]:
            nonlocal n_done
            n_done += n_more
            return Progress(min(total, done + n_done), total, message="without one at a time")

        all_scored = yield from driven(score_each(loaded, encoded, list(keys)), progress)
        seconds = (time.perf_counter() - started) / len(keys)
        for (mask, key), scored in zip(keys.items(), all_scored, strict=True):
            arrays, about = answers_measured(questions, mask, encoded, scored)
            session.store.put(key, encode(Record(arrays, target.receipt(seconds, **about))))
        return {}

    def steps(session: Session, measures: bool) -> Steps[list[Answers]]:
        pieces, done, cached = {mask: chunk_pieces(target, questions, mask) for mask in masks}, 0, True
        for number, chunk in enumerate(questions.chunks() if measures else ()):
            wanted = {mask: each[number] for mask, each in pieces.items()}
            missing = {mask: piece.key for mask, piece in wanted.items() if found(session, piece) is None}
            if missing:
                cached = False
                yield from measure_chunk(session, chunk, missing, done)
            done = min(total, done + len(masks) * len(chunk))
            yield Progress(done, total, message=f"without one of {len(masks) - 1}", cached=cached)
        answers: list[Answers] = []
        for mask in masks:
            answers_under_mask = evaluation(target, questions, mask, by_pace=False).stored(session)
            if answers_under_mask is None:
                for at in range(0, len(masks), APART):
                    some = masks[at : at + APART]
                    share = partial(expected().times, len(some) / len(masks))
                    note_incomplete.get()(Call(under_each, (target, questions, some)), {pieces[some[0]][0].key: share})
                return {pieces[mask][0].key: expected}
            answers.append(answers_under_mask)
        yield Progress(total, total, answers, cached=cached)
        return {}

    def expected() -> Workload:
        # a pass without a component starts in its layer
        return Workload({"forward": all_characters(questions) * (1 + len(masks)) / 2})

    return Measurement(target, ("under each", questions, *(mask.key() for mask in masks)), steps)


def lost(full: Answers, ablated: Sequence[Answers]) -> tuple[np.ndarray, np.ndarray]:
    """Returns (accuracy lost, mean gold log-likelihood lost in nats) by each of the ablated models."""
    accuracy = np.array([full.correct.mean() - each.correct.mean() for each in ablated])
    gold = full.gold_log_likelihood_nats.mean()
    return accuracy, np.array([gold - each.gold_log_likelihood_nats.mean() for each in ablated])

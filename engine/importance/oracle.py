"""The ablation oracle: the same questions without each head, each FFN or each layer, as `engine.accuracy.evaluation`
would answer them, in about half its forward passes (engine.accuracy.restarts).
"""

import time
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import numpy as np

from engine.accuracy.evaluation import Answers, answers_measured, chunk_pieces, encoded_chunk, evaluation
from engine.accuracy.restarts import score_each
from engine.measurement import Measurement, Steps, Workload
from engine.models.masks import Mask, single_ablations
from engine.models.session import Session, Target
from engine.pieces import found
from engine.progress import Progress, driven
from engine.questions.requests import Questions
from engine.records import Record, encode
from engine.timing.workload import all_characters


def oracle(target: Target, questions: Questions, what: str) -> Measurement[list[Answers]]:
    """Returns the Answers of the full model, then under each single ablation of `what` (heads-oracle, ffns or
    layers)."""
    return under_each(target, questions, [Mask.full(target.shape), *single_ablations(target.shape, what)])


def under_each(target: Target, questions: Questions, masks: Sequence[Mask]) -> Measurement[list[Answers]]:
    """Returns the Answers under each of the masks, the first of which prunes least.

    Each chunk under each mask is stored as by `evaluation`, so each finds the records of the other.
    """

    def steps(session: Session, measures: bool) -> Steps[list[Answers]]:
        pieces = {mask: chunk_pieces(target, questions, mask) for mask in masks}
        total, done, cached = len(masks) * questions.n, 0, True
        for number, chunk in enumerate(questions.chunks() if measures else ()):
            missing = {mask: each[number].key for mask, each in pieces.items() if found(session, each[number]) is None}
            if missing:
                cached = False
                yield from _measured(session, target, questions, chunk, missing, (done, total))
            done = min(total, done + len(masks) * len(chunk))
            yield Progress(done, total, message=f"without one of {len(masks) - 1}", cached=cached)
        answers: list[Answers] = []
        for mask in masks:
            known = evaluation(target, questions, mask, by_pace=False).stored(session)
            if known is None:
                return {pieces[mask][0].key: expected}
            answers.append(known)
        yield Progress(total, total, answers, cached=cached)
        return {}

    def expected() -> Workload:
        # a pass without a component starts in its layer
        return Workload({"forward": all_characters(questions) * (1 + len(masks)) / 2})

    return Measurement(target, ("under each", questions, *(mask.key() for mask in masks)), steps)


def _measured(
    session: Session,
    target: Target,
    questions: Questions,
    chunk: Sequence[int],
    keys: Mapping[Mask, str],
    so_far: tuple[int, int],
) -> Generator[Progress[Any], None, None]:
    """Measures and stores one chunk under each mask whose record is missing."""
    done, total = so_far
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


def lost(full: Answers, ablated: Sequence[Answers]) -> tuple[np.ndarray, np.ndarray]:
    """Returns (accuracy lost, mean gold log-likelihood lost in nats) by each of the ablated models."""
    accuracy = np.array([full.correct.mean() - each.correct.mean() for each in ablated])
    gold = full.gold_log_likelihood_nats.mean()
    return accuracy, np.array([gold - each.gold_log_likelihood_nats.mean() for each in ablated])

"""The ablation oracle: the same questions without each head, each FFN or each layer, as `engine.accuracy.evaluation`
would answer them, in about half its forward passes (engine.accuracy.restarts).
"""

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from engine.accuracy.evaluation import Answers, answers_measured, chunk_pieces, encoded_chunk, evaluation
from engine.accuracy.restarts import score_each
from engine.models.masks import Mask, single_ablations
from engine.models.subject import Lab, Subject
from engine.pieces import found
from engine.progress import Progress, driven, final
from engine.questions.requests import Questions
from engine.records import Record, encode


def oracle(lab: Lab, subject: Subject, questions: Questions, what: str) -> Iterator[Progress[list[Answers]]]:
    """Yields Progress, the last one's value the list of Answers of the full model and under each single ablation.

    Each chunk under each mask is stored as `evaluate` stores it, so either finds what the other measured.
    """
    masks = [Mask.full(subject.shape), *single_ablations(subject.shape, what)]
    yield from under_each(lab, subject, questions, masks)


def under_each(
    lab: Lab, subject: Subject, questions: Questions, masks: Sequence[Mask]
) -> Iterator[Progress[list[Answers]]]:
    """Yields Progress, the last one's value the list of Answers under each of the masks, which may prune much in
    common; stored as `oracle` says."""
    wanted = {mask: chunk_pieces(subject, questions, mask) for mask in masks}
    total, done, all_cached = len(masks) * questions.n, 0, True
    for number, chunk in enumerate(questions.chunks()):
        keys = {mask: wanted[mask][number].key for mask in masks if found(lab.store, wanted[mask][number]) is None}
        if keys:
            all_cached = False
            yield from _measured(lab, subject, questions, chunk, keys, (done, total))
        done = min(total, done + len(masks) * len(chunk))
        yield Progress(done, total, message=f"without one of {len(masks) - 1}", cached=all_cached)
    # from the store; what the disk refused is in its memory
    answers = [final(evaluation(subject, questions, mask, by_pace=False).run(lab)) for mask in masks]
    yield Progress(total, total, answers, cached=all_cached)


def recall_oracle(lab: Lab, subject: Subject, questions: Questions, what: str) -> list[Answers] | None:
    """What `oracle` ends with where all of it is stored, else None; loads and computes nothing."""
    answers = []
    for mask in [Mask.full(subject.shape), *single_ablations(subject.shape, what)]:
        answers.append(evaluation(subject, questions, mask, by_pace=False).so_far(lab))
        if len(answers[-1]) < questions.n:
            return None
    return answers


def _measured(
    lab: Lab,
    subject: Subject,
    questions: Questions,
    chunk: Sequence[int],
    keys: Mapping[Mask, str],
    so_far: tuple[int, int],
) -> Generator[Progress[Any], None, None]:
    """Measures and stores one chunk under each mask that it has no record of."""
    done, total = so_far
    loaded = yield from lab.loaded(subject, done, total)
    started, n_done = time.perf_counter(), 0
    encoded = encoded_chunk(loaded, subject, questions, chunk)

    def progress(n_more: int) -> Progress[Any]:
        nonlocal n_done
        n_done += n_more
        return Progress(min(total, done + n_done), total, message="without one at a time")

    all_scored = yield from driven(score_each(loaded, encoded, list(keys)), progress)
    seconds = (time.perf_counter() - started) / len(keys)
    for (mask, key), scored in zip(keys.items(), all_scored, strict=True):
        arrays, about = answers_measured(questions, mask, encoded, scored)
        lab.store.put(key, encode(Record(arrays, subject.receipt(seconds, **about))))


def lost(full: Answers, ablated: Sequence[Answers]) -> tuple[np.ndarray, np.ndarray]:
    """(accuracy lost, mean gold log-likelihood lost in nats) in each of the ablated models."""
    accuracy = np.array([full.correct.mean() - each.correct.mean() for each in ablated])
    gold = full.gold_log_likelihood_nats.mean()
    return accuracy, np.array([gold - each.gold_log_likelihood_nats.mean() for each in ablated])

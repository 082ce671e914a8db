"""Accuracy of a model under a mask: questions -> store or forward passes -> `Answers` -> accuracy, intervals, flips.

What is stored is the log-likelihood of every choice, chunk by chunk, so every figure here follows without a rerun and a
cancelled or killed run resumes at the chunk it had in hand.
"""

import hashlib
import math
import platform
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import numpy as np

from engine.accuracy.scoring import Scored, score_under
from engine.jobs import Progress
from engine.models.checkpoints import Identity
from engine.models.loading import Loaded, LoadSpec, Models, device_class, identify
from engine.models.masks import Mask
from engine.models.slicing import Sliced, sliced
from engine.questions.encoding import Encoded, encode_questions
from engine.questions.requests import Question, Requests, Selection
from engine.records import Record, canonical_key, decode, encode, version

Z_95 = 1.959963984540054
ENCODED_CHUNKS = 32  # 512 questions: 4 to 40 MB


@dataclass(frozen=True)
class Answers:
    """What a model said to n questions: `log_likelihood_nats` and `greedy` are (n, choice), nan where there is none.

    `n_cut` counts, per question, context tokens dropped because the window is shorter.
    """

    questions: tuple[Question, ...]
    log_likelihood_nats: np.ndarray
    greedy: np.ndarray
    n_cut: np.ndarray
    by_greedy: bool

    def __len__(self) -> int:
        return len(self.questions)

    @property
    def predicted(self) -> np.ndarray:
        """(n,) index of the choice with the largest log-likelihood, the first of equals."""
        return np.nanargmax(self.log_likelihood_nats, axis=1)

    @property
    def correct(self) -> np.ndarray:
        """(n,) bool: the harness's `acc` (ReCoRD: `em`; LAMBADA: greedy decoding gives the word)."""
        return self.greedy[:, 0] if self.by_greedy else self._among_golds(self.predicted)

    @property
    def correct_norm(self) -> np.ndarray:
        """(n,) bool: `acc_norm`, log-likelihood divided by the choice's length in characters."""
        if self.by_greedy:
            return self.correct
        lengths = np.full(self.log_likelihood_nats.shape, np.nan)
        for row, question in enumerate(self.questions):
            lengths[row, : len(question.n_chars)] = question.n_chars
        with np.errstate(divide="ignore"):
            return self._among_golds(np.nanargmax(self.log_likelihood_nats / lengths, axis=1))

    @property
    def gold_log_likelihood_nats(self) -> np.ndarray:
        """(n,) log-likelihood of the best gold choice."""
        pairs = zip(self.questions, self.log_likelihood_nats, strict=True)
        return np.array([row[list(question.golds)].max() for question, row in pairs])

    def _among_golds(self, chosen: np.ndarray) -> np.ndarray:
        return np.array(
            [choice in question.golds for question, choice in zip(self.questions, chosen, strict=True)], bool
        )


@dataclass(frozen=True)
class Accuracy:
    """`acc` and `acc_norm` (0-1) over n questions, Wilson 95 % interval of `acc`."""

    n: int
    acc: float
    acc_norm: float
    ci_low: float
    ci_high: float


@dataclass(frozen=True)
class Paired:
    """The same n questions under two masks: how many B gained and lost against A, exact McNemar p (two-sided)."""

    n: int
    gained: int
    lost: int
    p_mcnemar: float


def accuracy(answers: Answers) -> Accuracy:
    """Accuracy of `answers`; nan without questions."""
    n = len(answers)
    if n == 0:
        return Accuracy(0, math.nan, math.nan, 0.0, 1.0)
    low, high = wilson(int(answers.correct.sum()), n)
    return Accuracy(n, float(answers.correct.mean()), float(answers.correct_norm.mean()), low, high)


def wilson(n_right: int, n: int) -> tuple[float, float]:
    """Wilson 95 % interval of a proportion (Wilson 1927), no continuity correction."""
    share, spread = n_right / n, Z_95**2 / n
    middle = (share + spread / 2) / (1 + spread)
    half = Z_95 / (1 + spread) * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def paired(full: Answers, masked: Answers) -> Paired:
    """How `masked` differs from `full` on the questions both have so far (in the same order)."""
    n = min(len(full), len(masked))
    before, after = full.correct[:n], masked.correct[:n]
    gained, lost = int((~before & after).sum()), int((before & ~after).sum())
    tail = sum(math.comb(gained + lost, k) for k in range(min(gained, lost) + 1))
    return Paired(n, gained, lost, min(1.0, float(Fraction(2 * tail, 2 ** (gained + lost)))))


def evaluate(
    models: Models, spec: LoadSpec, requests: Requests, selection: Selection, mask: Mask, bos: bool | None, store: Any
) -> Iterator[Progress]:
    """Yields Progress whose value is the Answers so far, after each chunk and (unchanged) each forward pass.

    Chunks in the store cost no forward pass, and a run that finds all of them never loads the model. `bos` None takes
    the tokenizer's own habit.
    """
    identity = identify(spec, store)
    done, parts, all_cached = 0, [], True
    smaller = lru_cache(maxsize=1)(partial(sliced, mask=mask))  # cut once, not for every chunk
    for chunk in selection.chunks():
        part = stored_answers(chunk_key(identity, spec, requests, chunk, mask, bos), store, len(chunk))
        if part is None:
            all_cached = False
            part = yield from _scored(models, spec, requests, chunk, mask, smaller, bos, store, (done, selection.n))
        parts.append(part)
        answers = _answers(requests, selection, parts)
        done = len(answers)
        yield Progress(done, selection.n, answers, cached=all_cached)


def recall(
    identity: Identity,
    spec: LoadSpec,
    requests: Requests,
    selection: Selection,
    mask: Mask,
    bos: bool | None,
    store: Any,
) -> Answers:
    """The Answers that are stored already, up to the first missing chunk; loads and computes nothing."""
    parts = []
    for chunk in selection.chunks():
        part = stored_answers(chunk_key(identity, spec, requests, chunk, mask, bos), store, len(chunk))
        if part is None:
            break
        parts.append(part)
    return _answers(requests, selection, parts)


def numbers_key(identity: Identity, spec: LoadSpec, bos: bool | None) -> dict[str, Any]:
    """The fields that change the numbers of any measurement on this model; part of every key and receipt."""
    versions = {name: version(name) for name in ("torch", "transformers", "lm_eval")}
    if spec.precision == "int8":
        versions["bitsandbytes"] = version("bitsandbytes")
    return {
        "model": identity.digest,
        "tokenizer": identity.tokenizer_digest,
        "precision": spec.precision,
        "int8_threshold_milli": round(spec.int8_threshold * 1000) if spec.precision == "int8" else None,
        "device": device_class(),
        "attention": "sdpa",
        "bos": with_bos(identity, bos),
        "versions": versions,
    }


def with_bos(identity: Identity, bos: bool | None) -> bool:
    """Whether the beginning-of-sequence token stands in front; None = as the model's own tokenizer does."""
    return identity.default_bos if bos is None else bos


def texts_digest(requests: Requests, chunk: Sequence[int]) -> str:
    """Digest of a run of questions by their rendered text, in order."""
    return hashlib.blake2b("".join(requests.questions[i].digest for i in chunk).encode(), digest_size=16).hexdigest()


def chunk_key(
    identity: Identity, spec: LoadSpec, requests: Requests, chunk: Sequence[int], mask: Mask, bos: bool | None
) -> str:
    """Store key of one chunk of log-likelihoods; changes with anything that could change a number in it."""
    fields = numbers_key(identity, spec, bos) | {
        "questions": texts_digest(requests, chunk), "mask": mask.key(), "ablation": "zero",
    }  # fmt: skip
    return canonical_key("answers", fields)


def make_receipt(
    identity: Identity, spec: LoadSpec, requests: Requests, bos: bool | None, seconds: float
) -> dict[str, Any]:
    """What travels with every stored measurement: which model and questions, how, when, with which versions."""
    return numbers_key(identity, spec, bos) | {
        "name": identity.name, "task": asdict(requests.task), "source": requests.source,
        "seconds": round(seconds, 4), "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(), "machine": platform.machine(),
    }  # fmt: skip


def loaded_model(models: Models, spec: LoadSpec, done: int, total: int) -> Generator[Progress, None, Loaded]:
    """The model, after a Progress that says so where it has to be loaded first."""
    if models.loaded is None or models.loaded.spec != spec:
        yield Progress(done, total, message=f"loading {spec.model} in {spec.precision}")
    return models.get(spec)


def _scored(
    models: Models, spec: LoadSpec, requests: Requests, chunk: tuple[int, ...], mask: Mask,
    smaller: Callable[[Loaded], Sliced], bos: bool | None, store: Any, so_far: tuple[int, int],
) -> Generator[Progress, None, Record]:  # fmt: skip
    done, total = so_far
    loaded = yield from loaded_model(models, spec, done, total)
    started = time.perf_counter()
    encoded = encoded_chunk(loaded, requests, chunk, bos)
    steps = score_under(loaded, encoded, smaller(loaded))
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            scored = finished.value
            break
        yield Progress(done, total)
    record = answers_record(loaded, spec, requests, mask, bos, encoded, scored, time.perf_counter() - started)
    store.put(chunk_key(loaded.identity, spec, requests, chunk, mask, bos), encode(record))
    return record


def encoded_chunk(loaded: Loaded, requests: Requests, chunk: Sequence[int], bos: bool | None) -> list[list[Encoded]]:
    """The questions of a chunk as tokens; those encoded last are kept beside the model, for the next mask."""
    identity, held = loaded.identity, loaded.encoded
    key = texts_digest(requests, chunk), with_bos(identity, bos)
    if key not in held:
        while len(held) >= ENCODED_CHUNKS:
            held.pop(next(iter(held)))
        questions = [requests.questions[index] for index in chunk]
        held[key] = encode_questions(questions, loaded.tokenizer, key[1], identity.shape.n_ctx)
    return held[key]


def answers_record(
    loaded: Loaded, spec: LoadSpec, requests: Requests, mask: Mask, bos: bool | None,
    encoded: Sequence[Sequence[Encoded]], scored: Scored, seconds: float,
) -> Record:  # fmt: skip
    """What is stored of a chunk under one mask."""
    n_cut = np.array([max(choice.n_cut for choice in choices) for choices in encoded], np.int32)
    receipt = make_receipt(loaded.identity, spec, requests, bos, seconds) | {
        "kind": "answers", "mask": mask.text(), "contexts_cut": int((n_cut > 0).sum()),
    }  # fmt: skip
    log_likelihood_nats, greedy = scored
    arrays = {"log_likelihood_nats": log_likelihood_nats, "greedy": greedy.astype(np.uint8), "n_cut": n_cut}
    return Record(arrays, receipt)


def stored_answers(key: str, store: Any, n: int) -> Record | None:
    """The stored record of a chunk of n questions, None where there is none or it is no such thing."""
    record = decode(store.get(key))
    if record is None:
        return None
    names = ("log_likelihood_nats", "greedy", "n_cut")
    shapes = [record.arrays[name].shape for name in names if name in record.arrays]
    if len(shapes) < len(names) or len(shapes[0]) != 2 or shapes != [(n, shapes[0][1]), (n, shapes[0][1]), (n,)]:
        store.delete(key)
        return None
    return record


def _answers(requests: Requests, selection: Selection, parts: Sequence[Record]) -> Answers:
    rows = [index for chunk, _ in zip(selection.chunks(), parts, strict=False) for index in chunk][: selection.n]
    n_choices = max((part.arrays["log_likelihood_nats"].shape[1] for part in parts), default=1)
    scores, greedy = np.full((len(rows), n_choices), np.nan), np.zeros((len(rows), n_choices), bool)
    n_cut = np.zeros(len(rows), np.int32)
    start = 0
    for part in parts:
        block = part.arrays["log_likelihood_nats"][: len(rows) - start]
        stop, width = start + len(block), block.shape[1]
        scores[start:stop, :width] = block
        greedy[start:stop, :width] = part.arrays["greedy"][: len(block)].astype(bool)
        n_cut[start:stop] = part.arrays["n_cut"][: len(block)]
        start = stop
    return Answers(tuple(requests.questions[index] for index in rows), scores, greedy, n_cut, requests.greedy)

"""Accuracy of a model under a mask: questions -> store or forward passes -> `Answers` -> accuracy, intervals, flips.

The log-likelihood of every choice is stored, chunk by chunk, so every figure here follows without a rerun, and a
canceled or killed run resumes at its current chunk.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from engine.accuracy.scoring import Scored, score_under
from engine.errors import HeadroomError
from engine.measurement import Measurement, Workload, measured_apart, of_records
from engine.models.added_vector import AddedVector, vector_field
from engine.models.loading import Loaded
from engine.models.masks import Mask, Means, pruned
from engine.models.session import Session, Target
from engine.models.slicing import applied, sliced
from engine.pieces import Measured, Measuring, Piece
from engine.progress import Progress, driven
from engine.questions.checked_encoding import encode_chunk
from engine.questions.encoding import Encoded
from engine.questions.rendering import CHUNK, SMALL_CHUNK, Question, Questions, SizedChunk
from engine.records import Record, canonical_key
from engine.statistics import Paired, exponential, paired, wilson
from engine.timing.workload import all_characters, characters, kept_share

ENCODED_TOKENS = 1_500_000  # of 36 bytes each: 54 MB
LONG_S = 2.0  # a chunk that takes longer is split, so that the first figure appears sooner


@dataclass(frozen=True)
class Answers:
    """A model's answers to n questions: `log_likelihood_nats` and `greedy` are (n, choice), nan for missing choices.

    `n_cut` counts, per question, the context tokens that did not fit the window.
    """

    questions: tuple[Question, ...]
    log_likelihood_nats: np.ndarray
    greedy: np.ndarray
    n_cut: np.ndarray
    by_greedy: bool

    def __len__(self) -> int:
        return len(self.questions)

    def first(self, n: int) -> "Answers":
        """Returns the answers to the first n questions."""
        if n >= len(self):
            return self
        scores, greedy, cut = self.log_likelihood_nats[:n], self.greedy[:n], self.n_cut[:n]
        return Answers(self.questions[:n], scores, greedy, cut, self.by_greedy)

    @property
    def n_contexts_cut(self) -> int:
        """The number of questions that did not fit the window."""
        return int((self.n_cut > 0).sum())

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
    """Accuracy over questions.

    n: questions
    acc, acc_norm: 0-1
    ci_low, ci_high: Wilson 95% interval of `acc`
    perplexity: for tasks judged by greedy decoding (LAMBADA), exp of the mean negative log-likelihood of the last word,
        as in the harness; else nan
    """

    n: int
    acc: float
    acc_norm: float
    ci_low: float
    ci_high: float
    perplexity: float = math.nan


def accuracy(answers: Answers) -> Accuracy:
    """Returns the Accuracy of `answers`; nan without questions."""
    n = len(answers)
    if n == 0:
        return Accuracy(0, math.nan, math.nan, 0.0, 1.0)
    low, high = wilson(int(answers.correct.sum()), n)
    words = exponential(-answers.gold_log_likelihood_nats.mean()) if answers.by_greedy else math.nan
    return Accuracy(n, float(answers.correct.mean()), float(answers.correct_norm.mean()), low, high, words)


@dataclass(frozen=True)
class ModelComparison:
    """Two models' accuracy on the same n questions. `change` is from the first to the second: gained are the questions
    that only the second answers right."""

    first: Accuracy
    second: Accuracy
    change: Paired


def compared(first: Answers, second: Answers) -> ModelComparison:
    """Compares the two on the questions that both have answered so far. HeadroomError: these are not the same."""
    n = min(len(first), len(second))
    if first.questions[:n] != second.questions[:n]:
        raise HeadroomError("the two models answered different questions; measure both on one task again")
    first, second = first.first(n), second.first(n)
    return ModelComparison(accuracy(first), accuracy(second), paired(first.correct, second.correct))


@measured_apart
def evaluation(
    target: Target,
    questions: Questions,
    mask: Mask,
    by_pace: bool = True,
    means: Means | None = None,
    added: AddedVector | None = None,
) -> Measurement[Answers]:
    """Returns the Answers under a mask; the value so far covers the first questions, chunk by chunk.

    `by_pace`: use smaller chunks if this machine is slow. How questions are grouped in passes changes the last bits of
    their results, so studies, whose numbers must not depend on a machine's speed, set it to False.
    `means`: what pruned components output (None: 0). `added`: a vector for the last token of each context.
    """
    make = partial(chunk_pieces, target, questions, mask, means=means, added=added)

    def pieces(session: Session, records: list[Record]) -> Iterable[Piece]:
        return _sized_pieces(session, target, questions, make) if by_pace else make()

    def expected() -> Workload:
        return Workload({"forward": all_characters(questions) * (1 if means else kept_share(mask))})

    about = ("answers", questions, mask.key(), by_pace, means and means.digest, added and added.key())
    return of_records(target, about, pieces, partial(answers_of, questions), expected)


def _sized_pieces(
    session: Session, target: Target, questions: Questions, make: Callable[..., list[Piece]]
) -> Iterator[Piece]:
    """Yields the pieces of `chunk_pieces`, but the quarters of a piece that is not stored if they were begun or the
    piece would take long."""
    large, small = make(), list[Piece]()
    for number, (piece, chunk) in enumerate(zip(large, questions.chunks(), strict=True)):
        if session.record(piece.key) is None and len(chunk) > SMALL_CHUNK:
            small = small or make(questions.sized_chunks(SMALL_CHUNK))
            quarters = small[number * CHUNK // SMALL_CHUNK :][: CHUNK // SMALL_CHUNK]
            chunk_s = Workload({"forward": characters(questions.at(chunk))}).seconds_by_size(session.store, target)
            if session.record(quarters[0].key) is not None or chunk_s > LONG_S:
                yield from quarters
                continue
        yield piece


def chunk_pieces(
    target: Target,
    questions: Questions,
    mask: Mask,
    chunks: Sequence[SizedChunk] | None = None,
    means: Means | None = None,
    added: AddedVector | None = None,
) -> list[Piece]:
    """Returns one piece per chunk with the log-likelihoods of these questions under one mask; by default for all
    chunks. `means`, `added`: as in `evaluation`."""
    smaller = lru_cache(maxsize=1)(partial(sliced, mask=mask))  # cut once, not for every chunk
    if mask.is_full:
        means = None

    def change(loaded: Loaded) -> AbstractContextManager[None]:
        return pruned(loaded, mask, means) if means else applied(loaded, smaller(loaded))

    def measure(loaded: Loaded, chunk: tuple[int, ...]) -> Measuring:
        encoded = encoded_chunk(loaded, target, questions, chunk)
        vector = None if added is None else added.in_model(loaded)  # of the full model
        steps = score_under(loaded, encoded, partial(change, loaded), vector)
        scored = yield from driven(steps, lambda _: Progress(0, 1))
        arrays, about = answers_measured(questions, mask, encoded, scored)
        return arrays, {**about, **vector_field(added)}

    ablation = {"ablation": "mean", "means": means.digest} if means else {"ablation": "zero"}
    wanted, fields = [], target.key() | {"mask": mask.key()} | ablation | vector_field(added)
    for chunk, size in questions.sized_chunks() if chunks is None else chunks:
        key = canonical_key("answers", fields | {"questions": questions.digest(chunk)})
        shapes = {"log_likelihood_nats": (len(chunk), "C"), "greedy": (len(chunk), "C"), "n_cut": (len(chunk),)}
        reads = partial(_reads, questions, chunk, None if means else mask)
        wanted.append(Piece(key, size, shapes, partial(measure, chunk=chunk), reads))
    return wanted


def _reads(questions: Questions, chunk: Sequence[int], mask: Mask | None) -> float:
    """Returns the characters that the full model would read in the time that the pruned model takes for the chunk."""
    return characters(questions.at(chunk)) * (1 if mask is None else kept_share(mask))


def encoded_chunk(loaded: Loaded, target: Target, questions: Questions, chunk: Sequence[int]) -> list[list[Encoded]]:
    """Returns the questions of a chunk as tokens; the last ones are cached with the model, for the next mask."""
    key, held = (questions.digest(chunk), target.bos), loaded.encoded
    if key not in held:
        held[key] = encode_chunk(questions, chunk, loaded.tokenizer, target.bos, target.shape.n_ctx)
        while len(held) > 1 and sum(map(_n_tokens, held.values())) > ENCODED_TOKENS:
            held.pop(next(iter(held)))
    return held[key]


def _n_tokens(encoded: Sequence[Sequence[Encoded]]) -> int:
    return sum(len(choice.inputs) + len(choice.targets) for choices in encoded for choice in choices)


def answers_measured(
    questions: Questions, mask: Mask, encoded: Sequence[Sequence[Encoded]], scored: Scored
) -> Measured:
    """Returns the arrays and receipt to store for a chunk under one mask."""
    n_cut = np.array([max(choice.n_cut for choice in choices) for choices in encoded], np.int32)
    log_likelihood_nats, greedy = scored
    for row, choices in enumerate(encoded):
        if np.isnan(log_likelihood_nats[row, : len(choices)]).any():
            raise HeadroomError("the model's log-likelihoods are not numbers: its activations exceed what this "
                                "precision holds; choose bf16 or fp32")  # fmt: skip
    arrays = {"log_likelihood_nats": log_likelihood_nats, "greedy": greedy.astype(np.uint8), "n_cut": n_cut}
    about = {"kind": "answers", "mask": mask.text(), "contexts_cut": int((n_cut > 0).sum())}
    return arrays, questions.receipt() | about


def answers_of(questions: Questions, parts: Sequence[Record]) -> Answers:
    """Returns the Answers to the first questions, from the stored records of their chunks."""
    rows = questions.order[: min(questions.n, sum(len(part.arrays["n_cut"]) for part in parts))]
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
    return Answers(tuple(questions.at(rows)), scores, greedy, n_cut, questions.rendered.greedy)

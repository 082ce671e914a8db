"""In-context learning as a number: how much better a model predicts the 500th token of a text than the 50th.

The statistics of per-token losses over several texts (Olsson et al. 2022), and where several texts come from: the
pieces of a long one, or solved questions of a task, one after the other. Losses are arrays (n,) in nats, aligned to the
token they predict; indices count from 1, and the beginning token is none of them.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from engine.accuracy.evaluation import loaded_model
from engine.demo import passages
from engine.errors import HeadroomError, UsageError
from engine.jobs import Progress
from engine.models.checkpoints import Identity
from engine.models.loading import LoadSpec, Models, identify
from engine.questions.requests import Requests, TaskSpec, get_requests
from engine.records import Record, canonical_key, decode, encode
from engine.texts.passages import checked
from engine.texts.tokenloss import tokenized

MIN_TOKENS, EARLY, LATE = 512, 50, 500
MOST_AROUND = MIN_TOKENS - LATE  # tokens on either side that every such text has
N_TEXTS, MAX_TEXTS = 24, 200
CURVE_BINS, SLOPE_BINS = 24, 8  # even in ln(index)
BETWEEN_QUESTIONS = "\n\n"  # as between the harness's few-shot examples
CHARACTERS_A_TOKEN = 8  # more than prose has, so that one tokenization usually reaches far enough


@dataclass(frozen=True)
class Estimate:
    """A mean over `n` texts with its 95 % t interval, which is nan with one text."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class ByIndex:
    """Arrays (point,) over token indices: the mean over `n` texts and its 95 % t interval. `first` and `last` are the
    indices that a point is a mean of; `index` is their geometric mean."""

    index: np.ndarray
    first: np.ndarray
    last: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    n: np.ndarray


@dataclass(frozen=True)
class Source:
    """Where texts come from: solved questions of a `task` (train split), the pieces of a built-in `passage`, or those
    of the user's own `text`. `name` is the task, or the passage's title, or what the text is called."""

    kind: Literal["task", "passage", "text"]
    name: str
    text: str = ""
    n_texts: int = N_TEXTS
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in ("task", "passage", "text"):
            raise UsageError(f"texts from {self.kind!r} are unknown; choose task, passage or text")
        if not 1 <= self.n_texts <= MAX_TEXTS:
            raise UsageError(f"{self.n_texts} texts cannot be had; choose 1 to {MAX_TEXTS}")


def icl_score(losses: Sequence[np.ndarray], around: int = 0) -> Estimate:
    """Loss at the 500th token minus loss at the 50th, nats, averaged over the texts of at least 512 tokens (Olsson et
    al.: the in-context-learning score; below 0 = later tokens are predicted better). HeadroomError: no such text.

    One token a text is noisy where texts are few: `around` takes the mean over so many tokens on either side of each of
    the two, which is not Olsson et al.'s score but estimates the same quantity.
    """
    return estimate(scores(long_enough(losses), around))


def icl_change(before: Sequence[np.ndarray], after: Sequence[np.ndarray], around: int = 0) -> Estimate:
    """Score of `after` minus score of `before` on the same texts, nats, with the interval of the paired differences."""
    if [len(text) for text in before] != [len(text) for text in after]:
        raise HeadroomError("the two have different texts or tokens; a change is measured on the same ones")
    return estimate(scores(long_enough(after), around) - scores(long_enough(before), around))


def scores(losses: Sequence[np.ndarray], around: int = 0) -> np.ndarray:
    """(text, ...) loss around the 500th token minus loss around the 50th, nats, of texts (..., n)."""
    if not 0 <= around <= MOST_AROUND:
        raise UsageError(f"{around} tokens on either side cannot be had; choose 0 to {MOST_AROUND}")
    late, early = (slice(index - 1 - around, index + around) for index in (LATE, EARLY))
    return np.stack([np.asarray(text[..., late], float).mean(-1) - text[..., early].mean(-1) for text in losses])


def long_enough(losses: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The texts of at least 512 tokens; HeadroomError where there is none."""
    found = [text for text in losses if len(text) >= MIN_TOKENS]
    if not found:
        raise too_short(max((len(text) for text in losses), default=0))
    return found


def too_short(n_tokens: int) -> HeadroomError:
    """The error that says why a text of so many tokens has no score."""
    return HeadroomError(
        f"an in-context-learning score needs a text of at least {MIN_TOKENS} tokens, and the longest here has "
        f"{n_tokens:,}; take a longer one, or solved questions of a task"
    )


def estimate(values: np.ndarray) -> Estimate:
    """Mean of (text,) values with its 95 % t interval."""
    mean, low, high = over_texts(np.asarray(values, float)[:, None])
    return Estimate(float(mean[0]), float(low[0]), float(high[0]), len(values))


def over_texts(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(mean, low, high) over texts of values (text, ...): the 95 % t interval, nan with one text."""
    from scipy.special import stdtrit  # the t distribution's quantile, without the weight of scipy.stats

    n, mean = len(values), values.mean(0)
    if n < 2:
        return mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan)
    half = stdtrit(n - 1, 0.975) * values.std(0, ddof=1) / np.sqrt(n)
    return mean, mean - half, mean + half


def loss_by_index(losses: Sequence[np.ndarray], bins: int | None = None) -> ByIndex:
    """Mean loss at each token index, nats, up to the end of the shortest text.

    With `bins`, in so many bins even in ln(index) (fewer, where bins hold no whole index): each text's mean in the bin
    first, then mean and interval over texts. Indices without a loss (the first token, without a beginning token in
    front) are left out.
    """
    return _binned(losses, bins)[0]


def slope(losses: Sequence[np.ndarray], bins: int = SLOPE_BINS) -> ByIndex:
    """d loss / d ln(index), nats, below 0 where loss still falls.

    Finite differences between neighbouring bins that are even in ln(index): each text's mean loss in a bin minus that
    in the bin before, divided by the difference of the two bins' mean ln(index); then mean and interval over texts. So
    a loss of a + b ln(index) has slope b exactly. `first` and `last` are the two bins' outer indices.
    """
    curve, by_text = _binned(losses, bins)
    ln = np.log(curve.index)
    rise = np.diff(by_text, axis=1) / np.diff(ln)
    middle = np.exp((ln[1:] + ln[:-1]) / 2)
    return ByIndex(middle, curve.first[:-1], curve.last[1:], *over_texts(rise), curve.n[1:])


def pieces(text: str, tokenizer: Any, n_tokens: int = MIN_TOKENS, limit: int | None = None) -> list[str]:
    """Consecutive slices of the text, each cut behind the first token with which it has at least `n_tokens` when it is
    tokenized by itself; at most `limit`. What is left at the end is too short and is dropped."""
    found, start = [], 0
    while start < len(text) and (limit is None or len(found) < limit):
        length = _length(text, start, tokenizer, n_tokens)
        if length is None:
            break
        found.append(text[start : start + length])
        start += length
    return [piece for piece in found if piece.strip()]


def strung_together(
    questions: Sequence[str], tokenizer: Any, n_texts: int, seed: int = 0, n_tokens: int = MIN_TOKENS
) -> list[str]:
    """`n_texts` texts of `n_tokens` or barely more: solved questions in a seeded random order of each text's own, none
    twice in one text, a blank line between them, the last one cut. HeadroomError where all of them have too few tokens.
    """
    n_each = np.array([count_tokens(BETWEEN_QUESTIONS + question, tokenizer) for question in questions])
    texts = []
    for number in range(n_texts):
        order = np.random.default_rng((seed, number)).permutation(len(questions))
        n_questions = 1 + int(np.searchsorted(np.cumsum(n_each[order]), n_tokens))
        while True:
            text = BETWEEN_QUESTIONS.join([str(questions[at]) for at in order[:n_questions]])
            if found := pieces(text, tokenizer, n_tokens, limit=1):
                break
            if n_questions >= len(order):
                raise too_short(count_tokens(text, tokenizer))
            n_questions += 1
        texts += found
    return texts


def solved(requests: Requests) -> list[str]:
    """Each question with its right answer."""
    return [q.contexts[q.golds[0]] + q.continuations[q.golds[0]] for q in requests.questions]


def count_tokens(text: str, tokenizer: Any) -> int:
    """Tokens of the text, BOS not counted."""
    return len(tokenized(text, tokenizer)[0])


def texts_of(models: Models, spec: LoadSpec, source: Source, data_dir: str | None, store: Any) -> Iterator[Progress]:
    """Yields Progress; the last one's value is the texts, a tuple of strings, each of at least 512 tokens.

    They are stored, so that the model is loaded for its tokenizer only once. HeadroomError: no such task or passage, or
    too few tokens.
    """
    identity = identify(spec, store)
    material, digest = _material(source, data_dir, store)
    key = _key(identity, source, digest)
    record = decode(store.get(key))
    if record is None:
        tokenizer = (yield from loaded_model(models, spec, 0, 1)).tokenizer
        if source.kind == "task":
            texts = strung_together(material, tokenizer, source.n_texts, source.seed)
        else:
            texts = pieces(material[0], tokenizer, limit=source.n_texts)
            if not texts:
                raise too_short(count_tokens(material[0], tokenizer))
        blob = np.frombuffer(json.dumps(texts).encode(), np.uint8)
        record = Record({"json": blob}, {"kind": "texts", "from": source.kind, "name": source.name})
        store.put(key, encode(record))
    yield Progress(1, 1, tuple(json.loads(record.arrays["json"].tobytes())))


def _material(source: Source, data_dir: str | None, store: Any) -> tuple[list[str], str]:
    """(the solved questions or the one text that texts are made of, its digest)."""
    if source.kind == "task":
        material = solved(get_requests(TaskSpec(source.name, 0, "train"), data_dir, store))
    elif source.kind == "passage":
        found = {passage.title: passage.text for passage in passages()}
        if source.name not in found:
            raise UsageError(f"no built-in passage is called {source.name!r}; choose one of {', '.join(found)}")
        material = [found[source.name]]
    else:
        material = [checked(source.text)]
    return material, hashlib.blake2b(json.dumps(material).encode(), digest_size=20).hexdigest()


def _key(identity: Identity, source: Source, digest: str) -> str:
    seed = source.seed if source.kind == "task" else None
    fields = {"tokenizer": identity.tokenizer_digest, "material": digest, "kind": source.kind, "n": source.n_texts}
    return canonical_key("texts", fields | {"seed": seed, "tokens": MIN_TOKENS})


def _length(text: str, start: int, tokenizer: Any, n_tokens: int) -> int | None:
    """Characters of the slice from `start` that has at least `n_tokens`; None where the text ends before."""
    n_characters = CHARACTERS_A_TOKEN * n_tokens
    while True:
        part = text[start : start + n_characters]
        _, ends = tokenized(part, tokenizer)
        # by itself a slice may fall into fewer tokens than it has in the midst of its text
        for end in map(int, ends[n_tokens - 1 :]):
            if count_tokens(part[:end], tokenizer) >= n_tokens:
                return end
        if start + n_characters >= len(text):
            return None
        n_characters *= 2


def _binned(losses: Sequence[np.ndarray], bins: int | None) -> tuple[ByIndex, np.ndarray]:
    """(the curve, each text's own means (text, point))."""
    if not losses:
        raise HeadroomError("there are no losses yet; measure at least one text")
    by_text = np.stack([np.asarray(text, float)[: min(map(len, losses))] for text in losses])  # (text, index)
    known = np.flatnonzero(np.isfinite(by_text).all(0))
    if not len(known):
        raise HeadroomError("no token here has a loss; take longer texts")
    by_text, index = by_text[:, known], known + 1
    place = index if bins is None else np.searchsorted(_edges(index, bins), index, side="right")
    held = [np.flatnonzero(place == at) for at in np.unique(place)]  # positions that each point is a mean of
    means = np.stack([by_text[:, at].mean(1) for at in held], axis=1)
    middle = np.array([np.exp(np.log(index[at]).mean()) for at in held])
    first, last = np.array([index[at[0]] for at in held]), np.array([index[at[-1]] for at in held])
    n = np.full(len(held), len(losses))
    return ByIndex(middle, first, last, *over_texts(means), n), means


def _edges(index: np.ndarray, bins: int) -> np.ndarray:
    return np.geomspace(index[0], index[-1] + 1, bins + 1)

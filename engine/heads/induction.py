"""Induction scores of every head: does it look at what followed the same token before (prefix matching), and does it
raise the logit of the token it looks at (copying)? With the scores that explain how: previous token, duplicate token,
and what the weights alone say. Two variants: Olsson et al. 2022 and Bansal et al. 2212.09095.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from engine.accuracy.evaluation import loaded_model, numbers_key
from engine.errors import HeadroomError, UsageError
from engine.heads import probes
from engine.heads.circuits import ov_copying_eigenvalues, qk_trace
from engine.jobs import Progress
from engine.models.checkpoints import Identity
from engine.models.loading import LoadSpec, Models, identify
from engine.records import Record, canonical_key, decode, encode

VARIANTS = ("olsson", "bansal")
SCORES = ("prefix_matching", "copying", "previous_token", "duplicate_token", "ov_eigen", "qk_trace")
N_TOKENS, N_EXAMPLES = 25, 10
TEXT_TOKENS = 100  # tokens of one stretch of natural text
BANSAL_LENGTHS = range(25, 224, 2)
PART = 10  # examples stored together, so that a cancelled run resumes there


@dataclass(frozen=True)
class InductionScores:
    """`mean[name]` and `standard_error[name]`, both (layer, head), over `n[name]` examples, for each name of SCORES.

    Scores of the weights have no examples: n is 1 and the standard error nan. `note` says what was left out.
    """

    mean: dict[str, np.ndarray]
    standard_error: dict[str, np.ndarray]
    n: dict[str, int]
    note: str = ""


@dataclass(frozen=True)
class _Part:
    """Examples that are measured and stored together; `lengths` in random tokens (weights: none)."""

    what: str
    first: int
    lengths: tuple[int, ...]


def induction(models: Models, spec: LoadSpec, variant: str, seed: int, store: Any) -> Iterator[Progress]:
    """Yields Progress, the last one's value the InductionScores; what is stored is not computed again.

    `olsson`: 10 examples of 25 random tokens. `bansal`: one example of each of the lengths 25, 27, ..., 223 that fit
    the model's window. UsageError: no such variant.
    """
    identity = identify(spec, store)
    parts = _parts(identity, variant)
    total = sum(max(1, len(part.lengths)) for part in parts)
    records: list[Record] = []
    done, all_cached = 0, True
    for part in parts:
        key = _key(identity, spec, variant, seed, part)
        record = decode(store.get(key))
        if record is None:
            all_cached = False
            loaded = yield from loaded_model(models, spec, done, total)
            started = time.perf_counter()
            found: list[dict[str, np.ndarray]] = []
            if part.lengths:
                for length, examples in groupby(enumerate(part.lengths, part.first), key=lambda pair: pair[1]):
                    generators = [np.random.default_rng((seed, example)) for example, _ in examples]
                    found.append(_measure(variant, part.what)(loaded, length, generators))
                    yield Progress(done + sum(map(_n_examples, found)), total, message=part.what.replace("_", " "))
            else:
                before = _joined(records, "previous_token").mean(0)
                found.append({"ov_eigen": ov_copying_eigenvalues(loaded)[None],
                              "qk_trace": qk_trace(loaded, before)[None]})  # fmt: skip
            arrays = {name: np.concatenate([scores[name] for scores in found]) for name in found[0]}
            receipt = numbers_key(identity, spec, None) | {
                "kind": "induction", "name": identity.name, "variant": variant, "seed": seed, "what": part.what,
                "lengths": list(part.lengths), "merges": probes.has_merges(loaded.tokenizer),
                "seconds": round(time.perf_counter() - started, 4),
            }  # fmt: skip
            record = Record(arrays, receipt)
            store.put(key, encode(record))
        records.append(record)
        done += max(1, len(part.lengths))
        yield Progress(done, total, cached=all_cached)
    yield Progress(total, total, _scores(identity, variant, records), cached=all_cached)


def recall_induction(identity: Identity, spec: LoadSpec, variant: str, seed: int, store: Any) -> InductionScores | None:
    """The finished scores if all are stored, else None; computes nothing."""
    records = []
    for part in _parts(identity, variant):
        record = decode(store.get(_key(identity, spec, variant, seed, part)))
        if record is None:
            return None
        records.append(record)
    return _scores(identity, variant, records)


def retained(scores: np.ndarray, order: np.ndarray) -> np.ndarray:
    """(heads + 1,): share of the total score that is left when the first k heads of `order` are pruned.

    Bansal et al., figures on prefix matching and copying. Scores below 0 count as 0 here: they are no capacity to lose.
    """
    capacity = np.maximum(scores.ravel(), 0)[order]
    return 1 - np.concatenate([[0], np.cumsum(capacity)]) / max(float(capacity.sum()), 1e-30)


def best_heads(scores: np.ndarray, count: int) -> Iterator[tuple[str, float]]:
    """The `count` heads of highest score by name, such as `L3H5`."""
    n_heads, known = scores.shape[1], np.where(np.isnan(scores), -np.inf, scores)
    for flat in np.argsort(-known, axis=None)[:count]:
        yield f"L{flat // n_heads}H{flat % n_heads}", float(scores.flat[flat])


def _parts(identity: Identity, variant: str) -> list[_Part]:
    window = identity.shape.n_ctx
    if variant == "olsson":
        lengths = [N_TOKENS] * N_EXAMPLES
    elif variant == "bansal":
        lengths = list(BANSAL_LENGTHS)
    else:
        raise UsageError(f"variant {variant!r} is unknown; choose one of {', '.join(VARIANTS)}")
    lengths = [length for length in lengths if 1 + probes.N_COPIES * length <= window]
    if not lengths:
        raise HeadroomError(f"the window of {window} tokens is too short for {N_TOKENS} tokens four times over; "
                            f"use a model with a longer window")  # fmt: skip
    texts = [min(TEXT_TOKENS, window - 1)] * N_EXAMPLES
    wanted = (("prefix_matching", lengths), ("copying", lengths), ("previous_token", texts))
    cut = [_Part(what, first, tuple(all_of[first : first + PART]))
           for what, all_of in wanted for first in range(0, len(all_of), PART)]  # fmt: skip
    return [*cut, _Part("weights", 0, ())]


def _measure(variant: str, what: str) -> Any:
    return probes.copying_bansal if (variant, what) == ("bansal", "copying") else getattr(probes, what)


def _n_examples(found: dict[str, np.ndarray]) -> int:
    return len(next(iter(found.values())))


def _joined(records: Sequence[Record], name: str) -> np.ndarray:
    """(example, layer, head)."""
    return np.concatenate([record.arrays[name] for record in records if name in record.arrays])


def _scores(identity: Identity, variant: str, records: Sequence[Record]) -> InductionScores:
    mean, error, counts = {}, {}, {}
    for name in SCORES:
        examples = _joined(records, name)
        n = len(examples)
        mean[name], counts[name] = examples.mean(0), n
        error[name] = examples.std(0, ddof=1) / np.sqrt(n) if n > 1 else np.full(examples.shape[1:], np.nan)
    notes = []
    if variant == "bansal" and counts["copying"] < len(BANSAL_LENGTHS):
        notes.append(f"only {counts['copying']} of {len(BANSAL_LENGTHS)} lengths fit the window of "
                     f"{identity.shape.n_ctx} tokens")  # fmt: skip
    if not all(record.receipt.get("merges", True) for record in records):
        notes.append("the tokenizer has no merges, so random tokens are drawn in the order of their ids")
    return InductionScores(mean, error, counts, "; ".join(notes))


def _key(identity: Identity, spec: LoadSpec, variant: str, seed: int, part: _Part) -> str:
    fields = numbers_key(identity, spec, None) | {
        "attention": "own", "seed": seed, "what": part.what, "first": part.first, "lengths": list(part.lengths),
        "form": "bansal" if (variant, part.what) == ("bansal", "copying") else "olsson",
    }  # fmt: skip
    return canonical_key("induction", fields)

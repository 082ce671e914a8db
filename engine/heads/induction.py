"""Induction scores of every head: does it attend to the token that followed an earlier copy of the current one (prefix
matching), and does it raise the logit of the token it attends to (copying)? Also the scores that explain how: previous
token, duplicate token, and scores of the weights. Two variants: Olsson et al. 2022 and Bansal et al. 2212.09095.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from engine.errors import HeadroomError, refuse_unknown
from engine.heads import probes
from engine.heads.circuits import has_trace, ov_copying_eigenvalues, qk_trace
from engine.measurement import Measurement, measured_apart, of_records
from engine.models.loading import Loaded
from engine.models.session import Target
from engine.pieces import Measuring, Piece
from engine.progress import Progress
from engine.records import Key, Record, canonical_key
from engine.shapes import ModelShape
from engine.timing.workload import CHARACTERS_A_TOKEN

Probe = Callable[[Loaded, int, probes.Generators], dict[str, np.ndarray]]
VARIANTS = ("olsson", "bansal")
SCORES = ("prefix_matching", "copying", "previous_token", "duplicate_token", "ov_eigen", "qk_trace")
N_TOKENS, FEWEST_TOKENS, N_EXAMPLES = 25, 5, 10
TEXT_TOKENS = 100  # tokens of one stretch of natural text
BANSAL_LENGTHS = range(25, 224, 2)
PROBES: dict[str, Probe] = {
    "prefix_matching": probes.prefix_matching,
    "copying": probes.copying,
    "previous_token": probes.previous_token,
}
INDUCTION_FROM = 0.3  # prefix matching from which a head that copies more than chance counts as an induction head
N_ERRORS = 2  # standard errors of copying by which it is clearly above chance
PART = 10  # examples stored together, so that a canceled run resumes there


@dataclass(frozen=True)
class InductionScores:
    """`mean[name]` and `standard_error[name]`, both (layer, head), over `n[name]` examples, for each name of SCORES.

    Scores of the weights have no examples: n is 1 and the standard error nan. `note` reports deviations from the paper;
    `n_tokens` is the number of random tokens of the shortest example.
    """

    mean: dict[str, np.ndarray]
    standard_error: dict[str, np.ndarray]
    n: dict[str, int]
    note: str = ""
    n_tokens: int = N_TOKENS

    @property
    def chance(self) -> float:
        """The copying share by chance: one token of the sample."""
        return 1 / self.n_tokens

    @property
    def copying_share(self) -> np.ndarray:
        """(L, H) copying as a share, 0-1: of the logits a head raises, those of the tokens it looks at. Olsson's score,
        from -1 to 1, is 4 times that less 1, cut at 1: a half stands for all shares above it. Bansal's is a share."""
        copying = self.mean["copying"]
        return (copying + 1) / 4 if (copying < 0).any() else copying

    @property
    def is_induction_head(self) -> np.ndarray:
        """(L, H) whether a head matches prefixes, with INDUCTION_FROM or more, and copies more than chance."""
        return (self.mean["prefix_matching"] >= INDUCTION_FROM) & (self.copying_share > self.chance)

    @property
    def copying_share_error(self) -> np.ndarray:
        """(L, H) the standard error of `copying_share`; Olsson's score has four times that of its share."""
        return self.standard_error["copying"] / (4 if (self.mean["copying"] < 0).any() else 1)

    @property
    def copies_hardly(self) -> np.ndarray:
        """(L, H) whether a head copies no more than chance, or not clearly more: within N_ERRORS standard errors."""
        return self.copying_share - N_ERRORS * self.copying_share_error <= self.chance


@measured_apart
def induction(target: Target, variant: str = "olsson", seed: int = 0) -> Measurement[InductionScores]:
    """Returns the InductionScores of all heads once all records are stored.

    `olsson`: 10 examples of 25 random tokens, or fewer if four copies of 25 do not fit the window. `bansal`: one
    example of each of the lengths 25, 27, ..., 223 that fit the window. The probes add a beginning token themselves, so
    the BOS setting does not matter. HeadroomError: the window is too short. UsageError: unknown variant.
    """
    n = len(_pieces(target, variant, seed, []))

    def value(records: list[Record]) -> InductionScores | None:
        return _scores(target, variant, records) if len(records) == n else None

    about = ("induction", variant, seed)
    return of_records(target.as_usual, about, lambda session, records: _pieces(target, variant, seed, records), value)


def fits(shape: ModelShape) -> bool:
    """Returns whether the window holds the probes of Olsson et al.'s scores."""
    return (shape.n_ctx - 1) // probes.N_COPIES >= FEWEST_TOKENS


def retained(scores: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Returns (heads + 1,): the share of the total score that remains when the first k heads of `order` are pruned.

    As in Bansal et al.'s figures on prefix matching and copying. Scores below 0 count as 0: they are not a capacity
    that can be lost.
    """
    capacity = np.maximum(scores.ravel(), 0)[order]
    return 1 - np.concatenate([[0], np.cumsum(capacity)]) / max(float(capacity.sum()), 1e-30)


def best_heads(scores: np.ndarray, count: int) -> Iterator[tuple[str, float]]:
    """Yields the name, such as `L3H5`, and score of the `count` highest-scored heads; heads without a score are left
    out."""
    n_heads, known = scores.shape[1], np.where(np.isnan(scores), -np.inf, scores)
    for flat in np.argsort(-known, axis=None)[: min(count, np.isfinite(known).sum())]:
        yield f"L{flat // n_heads}H{flat % n_heads}", float(scores.flat[flat])


def _lengths(shape: ModelShape, variant: str) -> list[int]:
    """Returns the number of random tokens of each example, shortened for `olsson` so that four copies fit the
    window."""
    refuse_unknown("variant", variant, VARIANTS)
    most = (shape.n_ctx - 1) // probes.N_COPIES
    if most < (FEWEST_TOKENS if variant == "olsson" else N_TOKENS):
        instead = "choose the variant olsson" if most >= FEWEST_TOKENS else "use a model with a longer window"
        least = N_TOKENS if variant == "bansal" else FEWEST_TOKENS
        raise HeadroomError(f"the window of {shape.n_ctx} tokens is too short for {least} tokens four times over; "
                            f"{instead}")  # fmt: skip
    if variant == "olsson":
        return [min(N_TOKENS, most)] * N_EXAMPLES
    return [length for length in BANSAL_LENGTHS if length <= most]


def _pieces(target: Target, variant: str, seed: int, records: Sequence[Record]) -> list[Piece]:
    """Returns pieces of up to PART examples, and last the scores of the weights, which need the previous-token scores
    among the `records` so far."""
    lengths = _lengths(target.shape, variant)
    texts = [min(TEXT_TOKENS, target.shape.n_ctx - 1)] * N_EXAMPLES
    found, heads = [], (target.shape.n_layers, target.shape.n_heads)
    for what, each in (("prefix_matching", lengths), ("copying", lengths), ("previous_token", texts)):
        form = "bansal" if (variant, what) == ("bansal", "copying") else "olsson"
        probe = probes.copying_bansal if form == "bansal" else PROBES[what]
        for first in range(0, len(each), PART):
            part = each[first : first + PART]
            about = {"what": what, "first": first, "lengths": part, "seed": seed, "form": form}
            measure = partial(_probed, probe=probe, about=about, variant=variant)
            reads = partial(_reads, what, part)
            found.append(Piece(_key(target, about), len(part), {what: (len(part), *heads)}, measure, reads, "patterns"))
    about = {"what": "weights", "first": 0, "lengths": [], "seed": seed, "form": "olsson"}
    measure = partial(_weighed, records=records, about=about, variant=variant)
    shapes = {"ov_eigen": (1, *heads), "qk_trace": (1, *heads)}
    return [*found, Piece(_key(target, about), 1, shapes, measure)]


def _reads(what: str, lengths: Sequence[int]) -> float:
    """Returns the number of characters of a text with this many tokens."""
    return CHARACTERS_A_TOKEN * sum(lengths) * (1 if what == "previous_token" else probes.N_COPIES)


def _probed(loaded: Loaded, probe: Probe, about: Mapping[str, Any], variant: str) -> Measuring:
    """Scores a few examples; those of equal length share a forward pass."""
    found: list[dict[str, np.ndarray]] = []
    done, numbered = 0, enumerate(about["lengths"], about["first"])
    for length, examples in groupby(numbered, key=lambda pair: pair[1]):
        generators = [np.random.default_rng((about["seed"], example)) for example, _ in examples]
        found.append(probe(loaded, length, generators))
        done += len(generators)
        yield Progress(done, done, message=about["what"].replace("_", " "))
    arrays = {name: np.concatenate([scores[name] for scores in found]) for name in found[0]}
    return arrays, _told(loaded, about, variant)


def _weighed(loaded: Loaded, records: Sequence[Record], about: Mapping[str, Any], variant: str) -> Measuring:
    """Computes the scores of the weights."""
    yield Progress(0, 1, message="weights")
    before = _joined(records, "previous_token").mean(0)
    arrays = {"ov_eigen": ov_copying_eigenvalues(loaded)[None], "qk_trace": qk_trace(loaded, before)[None]}
    return arrays, _told(loaded, about, variant)


def _told(loaded: Loaded, about: Mapping[str, Any], variant: str) -> dict[str, Any]:
    fields = {name: about[name] for name in ("what", "seed", "lengths")}
    if alphabet := probes.alphabet_of(loaded):
        fields["alphabet"] = alphabet
    return fields | {"kind": "induction", "variant": variant, "merges": probes.has_merges(loaded.tokenizer)}


def _joined(records: Sequence[Record], name: str) -> np.ndarray:
    """(example, layer, head)."""
    return np.concatenate([record.arrays[name] for record in records if name in record.arrays])


def _scores(target: Target, variant: str, records: Sequence[Record]) -> InductionScores:
    mean, error, counts, shape = {}, {}, {}, target.shape
    for name in SCORES:
        examples = _joined(records, name)
        n = len(examples)
        mean[name], counts[name] = examples.mean(0), n
        error[name] = examples.std(0, ddof=1) / np.sqrt(n) if n > 1 else np.full(examples.shape[1:], np.nan)
    notes = []
    if not has_trace(target):
        mean["qk_trace"] = np.full_like(mean["qk_trace"], np.nan)
        notes.append("no QK trace, because queries and keys are normed")
    if variant == "bansal" and counts["copying"] < len(BANSAL_LENGTHS):
        notes.append(f"only {counts['copying']} of {len(BANSAL_LENGTHS)} lengths fit the window of "
                     f"{shape.n_ctx} tokens")  # fmt: skip
    n_tokens = min(_lengths(shape, variant))
    if n_tokens < N_TOKENS:
        notes.append(f"{n_tokens} random tokens instead of {N_TOKENS}, because the window has {shape.n_ctx}")
    if alphabet := {record.receipt.get("alphabet", 0) for record in records} - {0}:
        notes.append(f"random tokens are drawn from the {max(alphabet)} that the model was trained on")
    if not all(record.receipt.get("merges", True) for record in records):
        notes.append("the tokenizer has no merges, so random tokens are drawn in the order of their ids")
    return InductionScores(mean, error, counts, "; ".join(notes), n_tokens)


def _key(target: Target, about: Mapping[str, Any]) -> Key:
    # probes add a beginning token themselves, so their keys do not depend on the BOS setting
    return canonical_key("induction", {**target.as_usual.key_of_patterns(), "attention": "own", **about})

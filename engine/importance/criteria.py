"""The table of criteria, which score heads and FFNs, with the functions that compute their scores.

A criterion is a ranking of engine.importance.orders under the same name. Larger scores = kept longer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from engine.accuracy.restarts import lost
from engine.heads.copy_suppression import N_WINDOWS, copy_suppression
from engine.heads.entity_induction import entity_induction
from engine.heads.function_vectors import function_vectors
from engine.heads.induction import induction
from engine.heads.retrieval import retrieval
from engine.importance.knockouts import N_MASKS, fitted
from engine.measurement import Measurement
from engine.models.session import Target
from engine.shapes import ModelShape

Part = Literal["heads", "ffns"]
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Criterion:
    """A way to score components.

    label: the title
    heads, ffns: the names of the scores; FFNs usually go by the accuracy lost without each
    measured_from: what the scores are measured from:
        gradients: of the loss by a gate on each component (the arrays of engine.importance.scores)
        ablations: the answers without each component
        masks: the answers under random masks of heads
        weights, activity: the arrays of `magnitude_piece` and `activity_pieces` in engine.importance.activity, or both
        prompts, words: prompts of their own, of which `--prompts` sets the number for those of words
    of: returns the scores: from (arrays, heads or ffns); for ablations, with scores that break ties, from (the full
        model's answers, all others); for masks, the same from (masks, answers); for prompts, a measurement of (number
        of prompts, scores) from (target, number)
    help: describes the components pruned last
    cost: the measurements needed
    paper: the source
    """

    label: str
    heads: str
    ffns: str
    measured_from: tuple[str, ...]
    of: Callable[..., Any]
    help: str
    cost: str
    paper: str

    def score(self, part: Part) -> str:
        """Returns the name of the score of heads or of FFNs."""
        return self.heads if part == "heads" else self.ffns


def _published(found: Arrays, part: Part) -> np.ndarray:
    """Returns I_h: the sum over positions and examples, divided by the number of positions with a gradient (sequence
    length - 1), in the last layer by the number of continuation tokens, as in llm-interpret at batch size 1."""
    scores, lengths = found["absolute"].astype(np.float64).sum(0), found["lengths"]
    scores[:-1] /= lengths[:, 0].sum()
    scores[-1] /= lengths[:, 1].sum()
    return scores


def _by_one_divisor(found: Arrays, part: Part) -> np.ndarray:
    scores, (n_positions, n_targets) = _published(found, part), found["lengths"].sum(0)
    scores[-1] *= 1 / (n_positions / n_targets)
    return scores


def _taylor(found: Arrays, part: Part) -> np.ndarray:
    gold = found["gold"]
    return np.abs(found[part][np.arange(len(gold)), gold].astype(np.float64)).mean(0)


def _activation(found: Arrays, part: Part) -> np.ndarray:
    return found["head_norms" if part == "heads" else "ffn_norms"] / found["n"][0]


def _wanda(found: Arrays, part: Part) -> np.ndarray:
    of, per_layer = ("head", found["head_norms"].shape) if part == "heads" else ("ffn", found["ffn_norms"].shape)
    weighted = found[f"{of}_outputs"] * np.sqrt(found[f"{of}_squares"] / found["n"][0])
    return weighted.reshape(*per_layer, -1).sum(-1)


def _prefix_matching(target: Target, n_prompts: int) -> Measurement[tuple[int, np.ndarray]]:
    return induction(target).map(lambda found: (found.n["prefix_matching"], found.mean["prefix_matching"]))


def _of_words(kind: str, value: str, target: Target, n_prompts: int) -> Measurement[tuple[int, np.ndarray]]:
    known = entity_induction(target, n_prompts=n_prompts, kinds=(kind,))
    return known.map(lambda found: (n_prompts, getattr(found, value)[kind].mean(0)))


_FORWARD = "one forward pass per train question, shared by activation, wanda and first-token"
_OF_WORDS = "32 prompts of 66 tokens per model, each about three passes, shared by both scores of words"
CRITERIA = {
    "importance": Criterion(
        "Importance as published", "heads", "ffns", ("gradients",), _published,
        "the paper's: heads by |z · gradient|, summed over positions; FFNs by the accuracy lost without each",
        "one backward pass per train question; for FFNs one forward pass without each",
        "Bansal et al. 2212.09095",
    ),
    "gradient": Criterion(
        "Gradient", "heads-one-divisor", "ffns", ("gradients",), _by_one_divisor,
        "the paper's score of heads with one divisor for all layers: its own weights the last layer more",
        "the passes of importance",
        "after Bansal et al. 2212.09095",
    ),
    "weight": Criterion(
        "Weight", "heads-weight", "ffns-weight", ("weights",), lambda found, part: found[part].astype(np.float64),
        "large weights: the norm of a head's value and output matrices multiplied, of an FFN's matrices",
        "no questions: the weights are read once per model",
        "Han et al. 1506.02626, per component",
    ),
    "activation": Criterion(
        "Activation", "heads-activation", "ffns-activation", ("activity",), _activation,
        "large outputs: the mean length of what a component adds to the residual stream",
        _FORWARD,
        "Molchanov et al. 1611.06440",
    ),
    "wanda": Criterion(
        "Wanda", "heads-wanda", "ffns-wanda", ("weights", "activity"), _wanda,
        "|weight| times the size of its input, summed over a component's output weights",
        _FORWARD,
        "Sun et al. 2306.11695, per component",
    ),
    "taylor": Criterion(
        "Taylor", "heads-taylor", "ffns-taylor", ("gradients",), _taylor,
        "a large first-order effect: the mean over questions of |dLoss/dgate|",
        "one backward pass per train question, shared with importance of heads",
        "Michel et al. 1905.10650; Molchanov et al. 1906.10771",
    ),
    "oracle": Criterion(
        "Oracle", "heads-oracle", "ffns", ("ablations",), lost,
        "much accuracy lost without that component alone",
        "one forward pass per train question without each component",
        "Michel et al. 1905.10650",
    ),
    "knockouts": Criterion(
        "Knockouts", "heads-knockouts", "ffns", ("masks",), fitted,
        "heads with which right choices are likelier, by a sparse linear fit to random masks; FFNs as by importance",
        f"one forward pass per train question under each of {N_MASKS} masks, which prune half of the heads",
        "Bair et al. 2603.03335",
    ),
    "prefix": Criterion(
        "Prefix matching", "heads-prefix", "ffns", ("prompts",), _prefix_matching,
        "heads that look at what followed the same token before; FFNs as by importance",
        "ten short probes",
        "Olsson et al. 2209.11895",
    ),
    "function-vector": Criterion(
        "Function vector", "heads-function-vector", "ffns", ("prompts",),
        lambda target, n: function_vectors(target).map(lambda found: (len(found.rise), found.mean)),
        "heads whose mean output on solved word pairs restores the answer after shuffled ones; FFNs as by importance",
        "64 prompts of word pairs per model, each about three passes, and 128 more passes",
        "Todd et al. 2310.15213",
    ),
    "token-induction": Criterion(
        "Token induction", "heads-token-induction", "ffns", ("words",), partial(_of_words, "token", "rise"),
        "heads whose output raises the token that came next in an earlier copy; FFNs as by importance",
        "32 prompts of 66 tokens per model, each about three passes",
        "Feucht et al. 2504.03022",
    ),
    "concept-induction": Criterion(
        "Concept induction", "heads-concept-induction", "ffns", ("words",), partial(_of_words, "concept", "rise"),
        "heads whose output raises the rest of a word that came next in an earlier copy; FFNs as by importance",
        _OF_WORDS,
        "Feucht et al. 2504.03022",
    ),
    "concept-matching": Criterion(
        "Concept matching", "heads-concept-matching", "ffns", ("words",), partial(_of_words, "concept", "attention"),
        "heads that look at the end of the word that came next in an earlier copy; FFNs as by importance",
        _OF_WORDS,
        "Feucht et al. 2504.03022",
    ),
    "copy-suppression": Criterion(
        "Copy suppression", "heads-copy-suppression", "ffns", ("prompts",),
        lambda target, n: copy_suppression(target).map(lambda found: (N_WINDOWS, found)),
        "heads that lower earlier tokens which the model is about to repeat; FFNs as by importance",
        "two windows of a text per model, which the unembedding reads at every layer",
        "McDougall et al. 2310.04625",
    ),
    "retrieval": Criterion(
        "Retrieval", "heads-retrieval", "ffns", ("prompts",),
        lambda target, n: retrieval(target).map(lambda found: (len(found), found.mean(0))),
        "heads that look at the words which the model copies from far back; FFNs as by importance",
        "eight texts of 256 and 512 tokens per model, and ten decoded tokens each",
        "Wu et al. 2404.15574",
    ),
    "first-token": Criterion(
        "Beyond first token", "heads-first-token", "ffns", ("activity",),
        lambda found, part: 1 - found["first_token"] / max(found["n"][1], 1),
        "heads that look at more than the first token; FFNs as by importance",
        _FORWARD,
        "after Xiao et al. 2309.17453",
    ),
}  # fmt: skip
# by score, the criterion that says how it is measured; `gate` is Taylor's, with the gradients of every choice
MEASURED_BY = {score: each for each in CRITERIA.values() for score in (each.heads, each.ffns)}
MEASURED_BY |= {"ffns": CRITERIA["oracle"], "gate": CRITERIA["taylor"]}
# not how much a head matters, but what it does
KINDS = ("token-induction", "concept-induction", "concept-matching", "copy-suppression", "retrieval")
ON_REQUEST = (*KINDS, "knockouts")  # measured only where they are named
SLOW = ("function-vector", "oracle")  # of many times the passes of the others that are measured by default


def part_of(what: str) -> Part:
    """Returns whether a score is of heads or of FFNs."""
    return "ffns" if what.startswith("ffns") else "heads"


def passes(what: str, shape: ModelShape) -> int:
    """Returns about how many forward passes per question a score takes."""
    n_ablated = shape.n_layers if part_of(what) == "ffns" else shape.n_heads_total
    # a forward and a backward pass; a pass that returns patterns
    costs = {"gradients": 3, "activity": 2, "ablations": n_ablated + 1, "masks": N_MASKS}
    return max(costs.get(each, 1) for each in MEASURED_BY[what].measured_from)

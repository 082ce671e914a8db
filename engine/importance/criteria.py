"""The one table of criteria: by which score heads and FFNs are ranked, in words, with its source and what it costs.

A criterion is a ranking of engine.importance.rankings_of under the same name. Its scores are those of
engine.importance.importance: larger = kept longer.
"""

from dataclasses import dataclass
from typing import Literal

from engine.importance.importance import GRADIENTS, OF_ACTIVITY, OF_WEIGHTS, PREFIX
from engine.shapes import ModelShape

Part = Literal["heads", "ffns"]
GRADIENT_COST, PATTERN_COST = 3, 2  # a backward and a forward pass, and one that gives patterns, in forward passes


@dataclass(frozen=True)
class Criterion:
    """One way of saying which parts matter: `heads` and `ffns` name the scores (engine.importance.importance.WHAT),
    `help` says in a sentence what goes last, `cost` what is measured for it. docs/numbers.md says who proposed it."""

    label: str
    heads: str
    ffns: str
    help: str
    cost: str

    def of(self, part: Part) -> str:
        """The score of heads or of FFNs."""
        return self.heads if part == "heads" else self.ffns


_FORWARD = "a forward pass a train question, the same for activation, wanda and first-token"
CRITERIA = {
    "importance": Criterion(
        "Importance", "heads", "ffns",
        "the paper's: heads by |z · gradient|, summed over positions; FFNs by the accuracy lost without each",
        "a backward pass a train question; for FFNs a forward pass without each",
    ),
    "weight": Criterion(
        "Weight", "heads-weight", "ffns-weight",
        "large weights: the norm of a head's value and output matrices multiplied, of an FFN's matrices",
        "nothing is read: the weights, once a model",
    ),
    "activation": Criterion(
        "Activation", "heads-activation", "ffns-activation",
        "much written: the mean length of what a part adds to the residual stream",
        _FORWARD,
    ),
    "wanda": Criterion(
        "Wanda", "heads-wanda", "ffns-wanda",
        "|weight| times the size of its input, summed over what a part writes with",
        _FORWARD,
    ),
    "taylor": Criterion(
        "Taylor", "heads-taylor", "ffns-taylor",
        "a large first-order effect: the mean over questions of |dLoss/dgate|",
        "a backward pass a train question, the same as importance of heads",
    ),
    "oracle": Criterion(
        "Oracle", "heads-oracle", "ffns",
        "much accuracy lost without just that part",
        "a forward pass a train question without each part",
    ),
    "prefix": Criterion(
        "Prefix matching", PREFIX, "ffns",
        "heads that look at what followed the same token before; FFNs as by importance",
        "ten short probes",
    ),
    "first-token": Criterion(
        "Beyond first token", "heads-first-token", "ffns",
        "heads that look at more than the first token; FFNs as by importance",
        _FORWARD,
    ),
}  # fmt: skip


def record_of(what: str) -> str:
    """The same name for scores that are read from the same records: who has measured one has the other."""
    if what in OF_ACTIVITY:
        return "activity"
    return "weights" if what in OF_WEIGHTS else GRADIENTS.get(what, what)


def passes(what: str, shape: ModelShape) -> int:
    """Forward passes a question that a score takes, about."""
    oracles = {"ffns": shape.n_layers + 1, "heads-oracle": shape.n_heads_total + 1}
    light = dict.fromkeys(OF_ACTIVITY, PATTERN_COST) | dict.fromkeys((*OF_WEIGHTS, PREFIX), 1)
    return (oracles | light).get(what, GRADIENT_COST)

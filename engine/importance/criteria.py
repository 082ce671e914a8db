"""The table of criteria: the scores that heads and FFNs are ranked by, with descriptions and costs.

A criterion is a ranking of engine.importance.rankings_of under the same name. Its scores are those of
engine.importance.importance: larger = kept longer.
"""

from dataclasses import dataclass
from typing import Literal

from engine.importance.importance import GRADIENTS, OF_ACTIVITY, OF_WEIGHTS, PREFIX
from engine.shapes import ModelShape

Part = Literal["heads", "ffns"]
GRADIENT_COST, PATTERN_COST = 3, 2  # in forward passes: a forward and a backward pass, and a pass that returns patterns


@dataclass(frozen=True)
class Criterion:
    """A way to score components: `heads` and `ffns` name the scores (engine.importance.importance.WHAT), `help`
    describes the components pruned last, `cost` the measurements needed. docs/numbers.md names the source."""

    label: str
    heads: str
    ffns: str
    help: str
    cost: str

    def of(self, part: Part) -> str:
        """Returns the score of heads or of FFNs."""
        return self.heads if part == "heads" else self.ffns


_FORWARD = "one forward pass per train question, shared by activation, wanda and first-token"
CRITERIA = {
    "importance": Criterion(
        "Importance", "heads", "ffns",
        "the paper's: heads by |z · gradient|, summed over positions; FFNs by the accuracy lost without each",
        "one backward pass per train question; for FFNs one forward pass without each",
    ),
    "weight": Criterion(
        "Weight", "heads-weight", "ffns-weight",
        "large weights: the norm of a head's value and output matrices multiplied, of an FFN's matrices",
        "no questions: the weights are read once per model",
    ),
    "activation": Criterion(
        "Activation", "heads-activation", "ffns-activation",
        "large outputs: the mean length of what a component adds to the residual stream",
        _FORWARD,
    ),
    "wanda": Criterion(
        "Wanda", "heads-wanda", "ffns-wanda",
        "|weight| times the size of its input, summed over a component's output weights",
        _FORWARD,
    ),
    "taylor": Criterion(
        "Taylor", "heads-taylor", "ffns-taylor",
        "a large first-order effect: the mean over questions of |dLoss/dgate|",
        "one backward pass per train question, shared with importance of heads",
    ),
    "oracle": Criterion(
        "Oracle", "heads-oracle", "ffns",
        "much accuracy lost without that component alone",
        "one forward pass per train question without each component",
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
    """Returns a name shared by all scores that are read from the same records, so measured together."""
    if what in OF_ACTIVITY:
        return "activity"
    return "weights" if what in OF_WEIGHTS else GRADIENTS.get(what, what)


def passes(what: str, shape: ModelShape) -> int:
    """Returns about how many forward passes per question a score takes."""
    oracles = {"ffns": shape.n_layers + 1, "heads-oracle": shape.n_heads_total + 1}
    light = dict.fromkeys(OF_ACTIVITY, PATTERN_COST) | dict.fromkeys((*OF_WEIGHTS, PREFIX), 1)
    return (oracles | light).get(what, GRADIENT_COST)

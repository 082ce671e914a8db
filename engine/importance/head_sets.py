"""The heads with the highest prefix matching scores ablated together, compared with equally many random heads.

Ablating one such head often has no effect, because the others do the same: their effect shows when several are ablated
at once.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from engine.accuracy.evaluation import Answers, evaluation
from engine.composed import ComposedRun, composed
from engine.heads.induction import induction
from engine.importance.rankings import order
from engine.importance.rankings_of import INDUCTION_SEED
from engine.measurement import Measurement
from engine.models.masks import Mask
from engine.models.session import Target
from engine.progress import Progress
from engine.questions.requests import Questions
from engine.shapes import ModelShape
from engine.texts.tokenloss import losses_of_texts

T = TypeVar("T")
Losses = tuple[np.ndarray, ...]  # per-token losses (n,) in nats, one array per text
MOST, DRAWS = 32, 5  # heads of the largest set, random sets of each size


@dataclass(frozen=True)
class HeadSet:
    """Heads by flat index, in the order in which they were chosen. `draw` 0: the highest prefix matching scores; from
    1: the number of a random draw. The empty set is the full model."""

    heads: tuple[int, ...] = ()
    draw: int = 0

    def mask(self, shape: ModelShape) -> Mask:
        """Returns the mask that prunes them."""
        kept = np.ones(shape.n_heads_total, bool)
        kept[list(self.heads)] = False
        return Mask.from_arrays(kept.reshape(shape.n_layers, shape.n_heads), np.ones(shape.n_layers, bool))

    def names(self, shape: ModelShape) -> str:
        """Returns their names, such as "L1H0 L1H3"."""
        return " ".join(shape.head_names[head] for head in sorted(self.heads))


def sizes(n_heads: int) -> list[int]:
    """Returns the sizes of the sets: 1, 2, 4 and so on, up to a quarter of all heads and at most MOST."""
    return [2**power for power in range(MOST.bit_length()) if power == 0 or 2**power <= min(MOST, n_heads // 4)]


def n_sets(shape: ModelShape) -> int:
    """Returns how many sets are measured, including the full model."""
    return 1 + len(sizes(shape.n_heads_total)) * (1 + DRAWS)


def head_sets(prefix_matching: np.ndarray) -> list[HeadSet]:
    """Returns the full model, then by size the set of highest `prefix_matching` (L, H) and the random sets. Random sets
    are drawn from the heads outside the largest best set; a larger set of the same draw contains the smaller ones."""
    strongest = order(-prefix_matching)
    counts, found = sizes(strongest.size), [HeadSet()]
    others = np.sort(strongest[counts[-1] :])
    drawn = [np.random.default_rng(draw).permutation(others) for draw in range(1, DRAWS + 1)]
    for count in counts:
        for draw, heads in enumerate([strongest, *drawn]):
            found.append(HeadSet(tuple(heads[:count].tolist()), draw))
    return found


def set_answers(target: Target, questions: Questions) -> Measurement[dict[HeadSet, Answers]]:
    """Returns the answers without each set so far. Progress counts questions."""
    return _over_sets(target, questions.n, partial(evaluation, target, questions))


def set_losses(target: Target, texts: Sequence[str]) -> Measurement[dict[HeadSet, Losses]]:
    """Returns the per-token losses of all texts without each set so far. Progress counts texts."""
    return _over_sets(target, len(texts), partial(losses_of_texts, target, texts))


def _over_sets(target: Target, n: int, of: Callable[[Mask], Measurement[T]]) -> Measurement[dict[HeadSet, T]]:
    """Returns the value of each set so far, with `n` steps of progress each."""
    scores, full = induction(target, "olsson", INDUCTION_SEED), of(Mask.full(target.shape))

    def body(run: ComposedRun) -> Generator[Progress[Any], None, dict[HeadSet, T]]:
        values: dict[HeadSet, T] = {}
        found = yield from run.part(scores, 0, "induction scores")
        if found is None:
            run.expect("sets", partial(full.left(run.session).times, n_sets(target.shape)))
            return values
        for each in head_sets(found.mean["prefix_matching"]):
            label = f"without {len(each.heads)} heads" + f", draw {each.draw}" * bool(each.draw)
            value = yield from run.part(of(each.mask(target.shape)), n, label)
            values = values if value is None else {**values, each: value}
            yield run.so_far(values, label)
        return values

    return composed(target, ("head sets", full.key), body, n * n_sets(target.shape))

"""A function vector as a switch (Todd et al. 2310.15213): does adding the mean output of a few heads to the residual
stream of a prompt without examples make the model do a task?

The vector sums W_O z over the heads with the highest function-vector scores, z being their mean at the last token of
solved prompts. It is added to the input of one layer at the last token, for each layer in turn, and an answer is right
if its first token is the likeliest. The best layer is chosen on train pairs, and its effect is stated on test pairs.

Departures: means of 16 solved prompts, not 100 (`engine.heads.function_vectors`), and a layer chosen by measuring, not
fixed at a third of the depth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.accuracy.scoring import hidden_of, some_logits
from engine.composed import then
from engine.errors import HeadroomError
from engine.heads.function_vectors import (
    N_CLEAN,
    FunctionVectorScores,
    function_vectors,
    mean_outputs,
    prompt_characters,
    read_prompt,
)
from engine.heads.last_token import hidden_changed
from engine.measurement import Measurement, Workload, of_records, single
from engine.models.added_vector import AddedVector, function_vector
from engine.models.loading import Loaded
from engine.models.session import Session, Target
from engine.pieces import Measuring, Piece
from engine.progress import Progress
from engine.questions.rendering import Question
from engine.questions.word_pairs import N_SHOTS, Pair, PairTask
from engine.records import Record, canonical_key
from engine.statistics import Paired, paired
from engine.timing.workload import CHARACTERS_A_TOKEN

if TYPE_CHECKING:
    from torch import Tensor

SPLITS = TRAIN, TEST = "train", "test"
N_HEADS, N_PAIRS = 10, 100  # of the vector, unless that is more than a tenth of all; of each split, at most
N_A_PIECE = 25  # pairs of one record: less is lost when the work is stopped


@dataclass(frozen=True)
class VectorSwitch:
    """Which answers are right, by split, of n pairs each.

    heads: (layer, head) of the vector, the highest score first
    few: (n,) bool after solved examples
    zero: (n,) bool without examples
    switched: (L, n) bool without examples, with the vector added to the input of each layer
    """

    heads: tuple[tuple[int, int], ...]
    few: Mapping[str, np.ndarray]
    zero: Mapping[str, np.ndarray]
    switched: Mapping[str, np.ndarray]

    @property
    def best_layer(self) -> int:
        """The layer with the most right answers on train pairs, the first of equals."""
        return int(self.switched[TRAIN].sum(1).argmax())

    @property
    def lift(self) -> Paired:
        """What the vector changes on test pairs at the best layer, compared with no examples."""
        return paired(self.zero[TEST], self.switched[TEST][self.best_layer])


def top_heads(scores: FunctionVectorScores) -> tuple[tuple[int, int], ...]:
    """Returns (layer, head) of the vector: the N_HEADS highest scores, or a tenth of all heads if that is fewer."""
    mean = scores.mean
    n = max(1, min(N_HEADS, mean.size // 10))
    return tuple(
        (int(at) // mean.shape[1], int(at) % mean.shape[1]) for at in np.argsort(-mean, axis=None, kind="stable")[:n]
    )


def vector_switch(target: Target, task: PairTask, scores: FunctionVectorScores) -> Measurement[VectorSwitch]:
    """Returns the VectorSwitch of a task, with the vector of the heads that `scores` rank first. HeadroomError: too
    few pairs, or the model mixes the keys of neighboring tokens."""
    heads, tokenized = top_heads(scores), lru_cache(maxsize=1)(task.tokenized)
    parts = [
        (split, at) for split in SPLITS for at in range(0, max(1, min(N_PAIRS, len(getattr(task, split)))), N_A_PIECE)
    ]

    def pieces(session: Session, records: list[Record]) -> list[Piece]:
        about = target.key() | {"pairs": task.digest, "vector": [list(head) for head in heads], "most": N_PAIRS}
        n_layers = target.shape.n_layers
        texts = sum(len(task.asked(pair).contexts[0]) for pair in task.pairs) / max(1, len(task.pairs))
        read = N_A_PIECE * ((N_SHOTS + 2) * texts + CHARACTERS_A_TOKEN * n_layers / 2)
        shapes: dict[str, tuple[int | str, ...]] = {"few": ("n",), "zero": ("n",), "switched": (n_layers, "n")}
        all_pieces = [mean_outputs(target, task, tokenized)]
        for split, first in parts:
            key = canonical_key("vector switch", about | {"split": split, "first": first, "n": N_A_PIECE})
            questions_of = partial(_asked, split=split, first=first)
            measure = partial(
                _measured, bos=target.bos, tokenized=tokenized, asked=questions_of, heads=heads, records=records
            )
            all_pieces.append(Piece(key, 1, shapes, measure, lambda: read))
        return all_pieces

    def value(records: list[Record]) -> VectorSwitch | None:
        if len(records) <= len(parts):
            return None
        of_split = {split: [record for (of, _), record in zip(parts, records[1:], strict=True) if of == split]
                    for split in SPLITS}  # fmt: skip
        few, zero, switched = (
            {split: np.concatenate([each.arrays[what].astype(bool) for each in of_split[split]], -1)
             for split in SPLITS}
            for what in ("few", "zero", "switched")
        )  # fmt: skip
        return VectorSwitch(heads, few, zero, switched)

    return of_records(target, ("vector switch", task.digest, heads), pieces, value)


def switched_on(target: Target, task: PairTask) -> Measurement[VectorSwitch]:
    """Returns the VectorSwitch of a task, with the heads that the included tasks rank first."""

    def expected() -> Workload:
        texts = sum(len(task.asked(pair).contexts[0]) for pair in task.pairs)
        return Workload({"forward": float((N_SHOTS + 2) * texts)})

    return then(function_vectors(target), partial(vector_switch, target, task), expected, (task.digest,), (3, 1))


def added_vector(target: Target, task: PairTask, layer: int | None = None) -> Measurement[AddedVector]:
    """Returns the vector of a task, of the heads that the included tasks rank first, at a layer (None: the one that
    lifts most on train pairs, see `switched_on`)."""

    def of_heads(heads: tuple[tuple[int, int], ...], at: int) -> Measurement[AddedVector]:
        means = mean_outputs(target, task, lru_cache(maxsize=1)(task.tokenized))
        return single(target, means, lambda record: AddedVector(task.digest, heads, record.arrays["z"], at))

    about, expected = (task.digest, layer), partial(Workload, {"forward": N_CLEAN * prompt_characters(task)})
    if layer is None:
        switch = switched_on(target, task)
        return then(switch, lambda found: of_heads(found.heads, found.best_layer), expected, about, (8, 1))
    scores = function_vectors(target)
    return then(scores, lambda found: of_heads(top_heads(found), layer), expected, about, (8, 1))


def _asked(task: PairTask, split: str, first: int) -> dict[int, Pair]:
    """Returns {number in its split: pair} of one record."""
    pairs = getattr(task, split)[:N_PAIRS]
    return dict(enumerate(pairs[first : first + N_A_PIECE], first))


def _measured(
    loaded: Loaded,
    bos: bool,
    tokenized: Callable[[Any], PairTask],
    asked: Callable[[PairTask], Mapping[int, Pair]],
    heads: Sequence[tuple[int, int]],
    records: Sequence[Record],
) -> Measuring:
    import torch

    task = tokenized(loaded.tokenizer)
    if not task.is_usable:
        raise HeadroomError(f"{task.name}: {len(task.train)} train pairs whose answers begin differently are too few; "
                            f"take a task with at least {N_SHOTS + 1}")  # fmt: skip
    message = f"function vector of {task.name}"
    yield Progress(0, 1, message=message, share=0.0)
    vector, pairs = function_vector(loaded, heads, records[0].arrays["z"]), asked(task)
    right = np.zeros((2 + loaded.identity.shape.n_layers, len(pairs)), bool)
    for at, (number, pair) in enumerate(pairs.items()):
        with torch.inference_mode():
            right[:, at] = _answered(loaded, bos, task, pair, number, vector)
        yield Progress(0, 1, message=message, share=(at + 1) / len(pairs))
    arrays = {"few": right[0], "zero": right[1], "switched": right[2:]}
    return arrays, {"kind": "vector switch", "task": task.name}


def _answered(loaded: Loaded, bos: bool, task: PairTask, pair: Pair, number: int, vector: Tensor) -> np.ndarray:
    """Returns (2 + L,) whether a pair is answered right: with examples, without, and with the vector at each layer."""
    import torch

    few, _ = read_prompt(loaded, bos, with_examples(task, pair, number))
    zero, token = read_prompt(loaded, bos, task.asked(pair))
    hidden = [hidden_of(loaded, [list(few)])[0, -1:]]
    hidden.append(hidden_changed(loaded, zero, lambda layer, stream: stream + vector.to(stream)))
    likeliest = [logits.argmax(-1) for _, logits in some_logits(loaded, torch.cat(hidden))]
    return (torch.cat(likeliest) == token).cpu().numpy()


def with_examples(task: PairTask, pair: Pair, number: int) -> Question:
    """Returns the question of a pair after N_SHOTS other train pairs, drawn by its number."""
    others = [each for each in task.train if each.question != pair.question]
    drawn = np.random.default_rng(number).permutation(len(others))[:N_SHOTS]
    return task.asked(pair, [(others[at].question, others[at].answer) for at in drawn])

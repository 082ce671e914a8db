"""What pruned heads and FFNs output: 0 (Bansal et al., Michel et al.), their mean over train questions of the task, or
what they output without attention to what followed earlier copies (Crosbie and Shutova 2407.07011).

Departure: in means each token of the questions and their right answers counts the same, at every position.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from engine.accuracy.evaluation import Answers, evaluation
from engine.composed import then
from engine.errors import UsageError, refuse_unknown
from engine.heads.ablation import mean_outputs
from engine.heads.idealized import KNOCKOUT, knockout_answers
from engine.measurement import Measurement, Workload, measured_apart, single
from engine.models.added_vector import AddedVector
from engine.models.loading import Loaded
from engine.models.masks import Mask, Means
from engine.models.session import Target
from engine.pieces import Measuring, Piece
from engine.progress import Progress, may_stop
from engine.questions.checked_encoding import encode_chunk
from engine.questions.rendering import Questions
from engine.records import canonical_key
from engine.timing.workload import all_characters, characters

FILLS = ("zero", "mean", KNOCKOUT)  # what pruned components output
N_QUESTIONS = 64  # train questions over which means are taken


def filled_evaluation(
    target: Target,
    questions: Questions,
    train: Callable[[], Questions],
    mask: Mask,
    fill: str,
    added: AddedVector | None = None,
) -> Measurement[Answers]:
    """Returns the Answers under a mask, where pruned components output one of FILLS; `train`: the questions of means. A
    full mask needs none. `added`: as in `evaluation`. UsageError: attention cannot be cut in an FFN or with an added
    vector, or the fill is unknown."""
    refuse_unknown("fill", fill, FILLS)
    if fill == "zero" or mask.is_full:
        return evaluation(target, questions, mask, added=added)
    if fill == KNOCKOUT:
        if added is not None:
            raise UsageError(f"a vector cannot be added with the fill {KNOCKOUT}; choose zero or mean")
        if mask.n_ffns_pruned:
            raise UsageError(f"FFNs have no attention to cut; prune heads only, or use another fill than {KNOCKOUT}")
        heads = [(int(layer), int(head)) for layer, head in np.argwhere(~np.array(mask.heads))]
        return knockout_answers(target, questions, heads)
    asked, over = Workload({"forward": all_characters(questions)}), train()
    return then(
        mean_fill(target, over),
        lambda means: evaluation(target, questions, mask, means=means, added=added),
        lambda: asked,
        (*evaluation(target, questions, mask, added=added).about, fill),
        (min(N_QUESTIONS, over.n), questions.n),
    )


@measured_apart
def mean_fill(target: Target, train: Questions) -> Measurement[Means]:
    """Returns the Means over the first N_QUESTIONS train questions."""
    shape, rows = target.shape, train.order[: min(N_QUESTIONS, train.n)]
    shapes = {"heads": (shape.n_layers, shape.n_heads, shape.d_head), "ffns": (shape.n_layers, shape.d_model)}
    key = canonical_key("means", target.key() | {"questions": train.digest(rows)})
    piece = Piece(
        key, len(rows), shapes, partial(_measured, bos=target.bos, train=train), lambda: characters(train.at(rows))
    )
    return single(target, piece, lambda record: Means(record.arrays["heads"], record.arrays["ffns"]))


def _measured(loaded: Loaded, bos: bool, train: Questions) -> Measuring:
    """Measures the means over the first N_QUESTIONS train questions with their right answers."""
    n_ctx, chunk = loaded.identity.shape.n_ctx, train.order[: min(N_QUESTIONS, train.n)]
    encoded = encode_chunk(train, chunk, loaded.tokenizer, bos, n_ctx)
    texts = [[*choices[question.golds[0]].inputs, choices[question.golds[0]].targets[-1]][:n_ctx]
             for question, choices in zip(train.at(chunk), encoded, strict=True)]  # fmt: skip
    heads: Any = 0.0
    ffns: Any = 0.0
    for number, ids in enumerate(texts):
        may_stop()
        found = mean_outputs(loaded, [ids], Mask.full(loaded.identity.shape))
        heads, ffns = heads + len(ids) * found.heads, ffns + len(ids) * found.ffns
        yield Progress(number + 1, len(texts), message="means of the pruned components")
    n = sum(map(len, texts))
    means = {"heads": (heads / n).astype(np.float32), "ffns": (ffns / n).astype(np.float32)}
    return means, train.receipt() | {"kind": "means"}

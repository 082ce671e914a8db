"""Scores of each head and FFN for a task: by gradients, with one backward pass per choice, by ablating each
(engine.accuracy.restarts), by activity or by weights (engine.importance.activity).

The choices of a question share one packed forward pass where that is cheaper.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate

import numpy as np

from engine.accuracy.evaluation import Answers, encoded_chunk
from engine.accuracy.restarts import lost, oracle
from engine.errors import UsageError
from engine.heads.copy_suppression import N_WINDOWS, copy_suppression
from engine.heads.entity_induction import N_PROMPTS, entity_induction
from engine.heads.function_vectors import function_vectors
from engine.heads.induction import induction
from engine.heads.retrieval import retrieval
from engine.importance.activity import activity_pieces, gate_gradients, magnitude_piece, summed
from engine.measurement import Measurement, measured_apart, of_records
from engine.memory import freed_at_once
from engine.models.loading import Loaded
from engine.models.masks import Mask, pruned
from engine.models.session import Session, Target
from engine.pieces import Measuring, Piece
from engine.progress import Progress
from engine.questions.encoding import Encoded, Row, pack
from engine.questions.requests import Questions
from engine.records import Record, canonical_key
from engine.shapes import ModelShape
from engine.statistics import ALPHA, holm, mcnemar
from engine.timing.workload import gradient_characters

ORACLES = ("heads-oracle", "ffns")
OF_THE_SAME_PASSES = ("heads-one-divisor", "heads-taylor", "ffns-taylor")  # as "heads"
GRADIENTS = {"heads": "heads", "gate": "gate", **dict.fromkeys(OF_THE_SAME_PASSES, "heads")}  # the stored score of each
OF_WEIGHTS = ("heads-weight", "ffns-weight")
OF_ACTIVITY = ("heads-activation", "ffns-activation", "heads-wanda", "ffns-wanda", "heads-first-token")
PREFIX, FUNCTION_VECTOR = "heads-prefix", "heads-function-vector"
OF_ENTITIES = ("heads-token-induction", "heads-concept-induction", "heads-concept-matching")
COPY_SUPPRESSION, RETRIEVAL = "heads-copy-suppression", "heads-retrieval"
OF_PROMPTS = (PREFIX, FUNCTION_VECTOR, *OF_ENTITIES, COPY_SUPPRESSION, RETRIEVAL)  # on prompts of their own
OF_ALL_TASKS = (*OF_WEIGHTS, *OF_PROMPTS)  # which do not depend on the task
GRADIENT_TOKENS = 256  # padded tokens per backward pass, which keeps all activations; more is not faster ...
GRADIENT_TOKENS_SMALL = 512  # ... unless n_layers * d_model is at most SMALL_WIDTH
SMALL_WIDTH = 4096
LARGE_PARAMETERS = 500_000_000  # from here a pass fragments half a gigabyte, and takes longer than freeing it
WHAT = ("heads", "gate", "heads-oracle", "ffns", *OF_THE_SAME_PASSES, *OF_WEIGHTS, *OF_ACTIVITY, *OF_PROMPTS)
Found = tuple[np.ndarray, np.ndarray, np.ndarray]  # for a group of rows, as returned by gate_gradients
N_UNFINISHED = 4  # interrupted chunks whose gradients are kept with the model


@dataclass(frozen=True)
class Scores:
    """Importance scores over n questions.

    what: name of the score, one of WHAT
    n: questions
    scores: (L, H) for heads, (L,) for FFNs; larger = more important
    tie_break: orders equal scores (oracles: mean gold log-likelihood lost, nats)
    flips: (2, *scores) questions gained and lost without each head or FFN (oracles)
    gate_heads: (n, choice, L, H) signed gradients dLoss/dgate of each choice's mean loss over its continuation tokens,
        fp16, nan for missing choices; for `heads` only the gold choice, in fp32 because they are ranked by themselves
    gate_ffns: (n, choice, L) the same for FFNs
    n_targets: (n, choice) continuation tokens
    n_zero: how many of `gate_heads` are exactly 0
    n_positions: how many positions have a gradient
    """

    what: str
    n: int
    scores: np.ndarray
    tie_break: np.ndarray | None = None
    gate_heads: np.ndarray | None = None
    gate_ffns: np.ndarray | None = None
    n_targets: np.ndarray | None = None
    n_zero: int = 0
    n_positions: int = 0
    flips: np.ndarray | None = None

    @property
    def last_layer_times(self) -> float:
        """The factor by which the paper's scores weight the last layer, relative to one divisor for all layers."""
        return 1.0 if self.n_targets is None else self.n_positions / float(self.n_targets.sum())

    @property
    def is_clear(self) -> np.ndarray | None:
        """Where accuracy clearly changes without the head or FFN, bool as `scores` (McNemar's exact test, 5% for all
        together by Holm's correction); None for scores that are not accuracies."""
        if self.flips is None:
            return None
        adjusted = holm([mcnemar(*flips) for flips in self.flips.reshape(2, -1).T.tolist()])
        return np.reshape(np.array(adjusted) < ALPHA, self.scores.shape)

    def with_other_divisor(self) -> "Scores":
        """Converts scores `heads` to `heads-one-divisor`, and vice versa."""
        scores, other = self.scores.copy(), {"heads": "heads-one-divisor", "heads-one-divisor": "heads"}[self.what]
        scores[-1] *= self.last_layer_times if other == "heads" else 1 / self.last_layer_times
        return replace(self, what=other, scores=scores)


def importance(
    target: Target, questions: Questions, what: str, mask: Mask | None = None, n_prompts: int = N_PROMPTS
) -> Measurement[Scores]:
    """Returns the Scores; gradient scores have a value so far, the others only once all records are stored.

    `heads`: Bansal et al.'s I_h from the gold choice.
    `gate`: mean |dLoss/dgate| of the gold choice (Michel et al. 2019), with every choice's signed gradients.
    `heads-one-divisor`: I_h with one divisor for all layers, from the passes of `heads`.
    `heads-oracle`, `ffns`: accuracy lost when only that head or FFN is pruned.
    `heads-taylor`, `ffns-taylor`: mean |dLoss/dgate| of heads or FFNs, from the passes of `heads`.
    `heads-weight`, `ffns-weight`: size of the weights.
    `heads-activation`, `ffns-activation`: mean length of the output in the residual stream.
    `heads-wanda`, `ffns-wanda`: sum of |w| times the root mean square of its input, over the output weights.
    `heads-first-token`: attention to all but the first token.
    `heads-prefix`: prefix matching (Olsson et al.), on random tokens instead of questions.
    `heads-function-vector`: answer restored by the head's mean output (Todd et al.), on word pairs.
    `heads-token-induction`, `heads-concept-induction`: next token or next part of a word raised by the head's output
    (Feucht et al.); `heads-concept-matching`: its attention to the end of the word; over `n_prompts` of each kind.
    `heads-copy-suppression`: tokens lowered that the model is about to repeat (McDougall et al.).
    `heads-retrieval`: attention to what the model copies from far back (Wu et al.).

    With a `mask`, scores of the pruned model (gradient scores only); pruned components score 0. UsageError: unknown
    score, or not available under a mask.
    """
    if what not in WHAT:
        raise UsageError(f"importance {what!r} is unknown; choose one of {', '.join(WHAT)}")
    if mask is not None and not mask.is_full and what not in GRADIENTS:
        raise UsageError(f"importance {what!r} cannot be measured again under a mask; choose heads or gate")
    if what in ORACLES:
        return oracle(target, questions, what).map(partial(_drops, what, target.shape))
    if what in OF_PROMPTS:
        return of_prompts(target, what, n_prompts)
    return _by_questions(target, questions, what, mask)


@measured_apart
def _by_questions(target: Target, questions: Questions, what: str, mask: Mask | None) -> Measurement[Scores]:
    """Returns the Scores by passes over the questions."""

    def gradients(session: Session, records: list[Record]) -> list[Piece]:
        return _chunk_pieces(target, questions, what, mask)

    def forward(session: Session, records: list[Record]) -> list[Piece]:
        return _forward_pieces(target, questions, what)

    def value(records: list[Record]) -> Scores | None:
        if what in GRADIENTS:
            return _scores(what, questions.n, records) if records else None
        is_whole = len(records) == len(_forward_pieces(target, questions, what))
        return _of_forward(what, questions.n, target.shape, records) if is_whole else None

    about = (what, questions, "" if mask is None else mask.key())
    return of_records(target, about, gradients if what in GRADIENTS else forward, value)


def of_prompts(target: Target, what: str, n_prompts: int = N_PROMPTS) -> Measurement[Scores]:
    """Returns Scores that are measured on prompts of their own, not on questions: one of OF_PROMPTS."""
    if what == PREFIX:
        return induction(target).map(lambda of: Scores(what, of.n["prefix_matching"], of.mean["prefix_matching"]))
    if what == FUNCTION_VECTOR:
        return function_vectors(target).map(lambda found: Scores(what, len(found.rise), found.mean))
    if what == COPY_SUPPRESSION:
        return copy_suppression(target).map(lambda found: Scores(what, N_WINDOWS, found))
    if what == RETRIEVAL:
        return retrieval(target).map(lambda found: Scores(what, len(found), found.mean(0)))
    _, kind, way = what.split("-")
    known = entity_induction(target, n_prompts=n_prompts, kinds=(kind,))
    return known.map(
        lambda found: Scores(what, n_prompts, (found.rise if way == "induction" else found.attention)[kind].mean(0))
    )


def _chunk_pieces(target: Target, questions: Questions, what: str, mask: Mask | None) -> list[Piece]:
    mask, what = mask or Mask.full(target.shape), GRADIENTS[what]
    about = {"what": what} | ({} if mask.is_full else {"mask": mask.key()})
    found, fields = [], target.key(gradients=True) | about
    n_layers, n_heads = target.shape.n_layers, target.shape.n_heads
    for chunk, size in questions.sized_chunks():
        golds = [question.golds[0] for question in questions.at(chunk)]
        key = canonical_key("importance", fields | {"questions": questions.digest(chunk), "golds": golds})
        n = len(chunk)
        shapes: dict[str, tuple[int | str, ...]] = {
            "absolute": (n, n_layers, n_heads),
            "heads": (n, "C", n_layers, n_heads),
            "ffns": (n, "C", n_layers),
            "lengths": (n, 2),
            "gold": (n,),
        }
        if what == "gate":
            shapes["n_targets"] = (n, "C")
        measure = partial(_measured, target=target, questions=questions, chunk=chunk, what=what, mask=mask, key=key)
        reads = partial(gradient_characters, questions.at(chunk), what == "gate")
        found.append(Piece(key, size, shapes, measure, reads, "gradient"))
    return found


def _measured(
    loaded: Loaded, target: Target, questions: Questions, chunk: Sequence[int], what: str, mask: Mask, key: str
) -> Measuring:
    shape = target.shape
    encoded = encoded_chunk(loaded, target, questions, chunk)
    golds = [question.golds[0] for question in questions.at(chunk)]
    n_choices = max(map(len, encoded)) if what == "gate" else 1
    absolute = np.zeros((len(chunk), shape.n_layers, shape.n_heads), np.float32)
    kept_as = np.float16 if what == "gate" else np.float32  # many choices are many numbers
    heads = np.full((len(chunk), n_choices, shape.n_layers, shape.n_heads), np.nan, kept_as)
    ffns = np.full((len(chunk), n_choices, shape.n_layers), np.nan, kept_as)
    n_targets = np.zeros((len(chunk), n_choices), np.int32)
    lengths = np.zeros((len(chunk), 2), np.int64)  # positions with a gradient; continuation tokens
    rows = [row for choices, gold in zip(encoded, golds, strict=True)
            for row in (_rows(choices) if what == "gate" else pack([choices[gold]]))]  # fmt: skip
    small = shape.n_layers * shape.d_model <= SMALL_WIDTH
    groups = _groups(rows, GRADIENT_TOKENS_SMALL if small else GRADIENT_TOKENS)
    ends = list(accumulate(sum(len(row.tokens) * (1 + len(row.choices)) for row in group) for group in groups))
    done = _unfinished(loaded, key)
    if done:
        yield Progress(0, 1, cached=True, share=ends[len(done) - 1] / ends[-1])
    for group, end in zip(groups[len(done) :], ends[len(done) :], strict=True):
        with pruned(loaded, mask), freed_at_once() if loaded.identity.n_params > LARGE_PARAMETERS else nullcontext():
            done.append(gate_gradients(loaded, group))
        yield Progress(0, 1, share=end / ends[-1])
    for group, (by_position, by_head, by_ffn) in zip(groups, done, strict=True):
        places = [((index, number), choice) for index, row in enumerate(group)
                  for number, choice in enumerate(row.choices)]  # fmt: skip
        for at, choice in places:
            where = choice.question, choice.choice if what == "gate" else 0
            heads[where], ffns[where], n_targets[where] = by_head[at], by_ffn[at], len(choice.targets)
            if choice.choice == golds[choice.question]:
                absolute[choice.question] = by_position[at]
                lengths[choice.question] = len(choice.inputs), len(choice.targets)
    loaded.unfinished.pop(key, None)
    gold = np.array(golds if what == "gate" else [0] * len(chunk), np.int64)
    arrays = {"absolute": absolute, "heads": heads, "ffns": ffns, "lengths": lengths, "gold": gold}
    if what == "gate":
        arrays["n_targets"] = n_targets
    return arrays, questions.receipt() | {"kind": what, "mask": mask.text()}


def _unfinished(loaded: Loaded, key: str) -> list[Found]:
    """Returns the gradients that an interrupted run of this chunk computed, one entry per group, so that work that
    yields repeatedly still makes progress."""
    held = loaded.unfinished
    while len(held) >= N_UNFINISHED and key not in held:
        held.pop(next(iter(held)))
    return held.setdefault(key, [])


def _rows(choices: Sequence[Encoded]) -> list[Row]:
    """Returns rows for one question's choices, packed if one forward pass of the packed row and one backward pass per
    choice are cheaper than both passes for each choice alone."""
    packed = pack(choices)
    together = sum(len(row.tokens) * (1 + len(row.choices)) for row in packed)
    alone = sum(2 * len(choice.inputs) for choice in choices)
    return packed if together < alone else [pack([choice])[0] for choice in choices]


def _groups(rows: Sequence[Row], n_tokens: int) -> list[list[Row]]:
    """Returns groups of rows with equally many choices, longest first, of at most `n_tokens` padded tokens each."""
    groups: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: (-len(row.choices), -len(row.tokens))):
        first = groups[-1][0] if groups else row
        if (groups and len(first.choices) == len(row.choices)
                and (len(groups[-1]) + 1) * len(first.tokens) <= n_tokens):  # fmt: skip
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _scores(what: str, limit: int, parts: Sequence[Record]) -> Scores:
    """Returns the scores of the first `limit` questions of the stored chunks.

    I_h: sum over positions and examples, divided by the number of positions with a gradient (sequence length - 1), in
    the last layer by the number of continuation tokens, as in llm-interpret at batch size 1. `heads-one-divisor`: all
    layers divided by the former.
    """
    n_choices = max(part.arrays["heads"].shape[1] for part in parts)

    def joined(name: str) -> np.ndarray:
        arrays = [part.arrays[name] for part in parts]
        if name in ("heads", "ffns", "n_targets"):
            none = 0 if name == "n_targets" else np.nan
            widths = [[(0, 0), (0, n_choices - array.shape[1]), *[(0, 0)] * (array.ndim - 2)] for array in arrays]
            arrays = [np.pad(array, width, constant_values=none) for array, width in zip(arrays, widths, strict=True)]
        return np.concatenate(arrays)[:limit]

    heads, ffns, lengths, gold = joined("heads"), joined("ffns"), joined("lengths"), joined("gold")
    n_targets = joined("n_targets") if what == "gate" else lengths[:, 1:]
    if what not in ("heads", "heads-one-divisor"):
        signed = ffns if what == "ffns-taylor" else heads
        scores = np.abs(signed[np.arange(len(gold)), gold].astype(np.float64)).mean(0)
    else:
        scores = joined("absolute").astype(np.float64).sum(0)
        scores[:-1] /= lengths[:, 0].sum()
        scores[-1] /= lengths[:, 1].sum()
    is_other, n_positions = what == "heads-one-divisor", int(lengths[:, 0].sum())
    n_zero, name = int((heads == 0).sum()), "heads" if is_other else what
    found = Scores(name, len(gold), scores, None, heads, ffns, n_targets, n_zero, n_positions)
    return found.with_other_divisor() if is_other else found


def _forward_pieces(target: Target, questions: Questions, what: str) -> list[Piece]:
    """Returns the pieces that a score without gradients needs."""
    weights = [] if what in OF_ACTIVITY and "wanda" not in what else [magnitude_piece(target)]
    return weights if what in OF_WEIGHTS else [*weights, *activity_pieces(target, questions)]


def _of_forward(what: str, n: int, shape: ModelShape, records: Sequence[Record]) -> Scores:
    """Returns a score without gradients from the records of its pieces."""
    axis, _, criterion = what.partition("-")
    if criterion == "weight":
        return Scores(what, 0, records[0].arrays[axis].astype(np.float64))
    sums = summed(records[1:] if criterion == "wanda" else records)
    n_positions, n_after_first = sums["n"]
    if criterion == "activation":
        return Scores(what, n, sums["head_norms" if axis == "heads" else "ffn_norms"] / n_positions)
    if criterion == "first-token":
        return Scores(what, n, 1 - sums["first_token"] / max(n_after_first, 1))
    of = "head" if axis == "heads" else "ffn"
    weighted = records[0].arrays[f"{of}_outputs"] * np.sqrt(sums[f"{of}_squares"] / n_positions)
    parts = (shape.n_layers, shape.n_heads, shape.d_head) if axis == "heads" else (shape.n_layers, shape.d_mlp)
    return Scores(what, n, weighted.reshape(parts).sum(-1))


def _drops(what: str, shape: ModelShape, answers: Sequence[Answers]) -> Scores:
    """Returns the accuracy lost by each ablation; `answers`: the full model's, then one for each head or FFN."""
    size = (shape.n_layers,) if what == "ffns" else (shape.n_layers, shape.n_heads)
    accuracy_drop, nats_drop = (each.reshape(size) for each in lost(answers[0], answers[1:]))
    full, ablated = answers[0].correct, np.array([each.correct for each in answers[1:]])
    flips = np.array([(ablated & ~full).sum(1), (full & ~ablated).sum(1)]).reshape(2, *size)
    return Scores(what, len(full), accuracy_drop, nats_drop, flips=flips)

"""Scores of each head and FFN for a task: by gradients, with one backward pass per choice, by ablating each
(engine.accuracy.restarts), by activity or by weights (engine.importance.activity).

The choices of a question share one packed forward pass where that is cheaper.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import numpy as np

from engine.accuracy.evaluation import Answers, encoded_chunk
from engine.accuracy.restarts import oracle, under_each
from engine.errors import UsageError, refuse_unknown
from engine.heads.entity_induction import N_PROMPTS
from engine.importance.activity import activity_pieces, gate_gradients, magnitude_piece, summed
from engine.importance.criteria import MEASURED_BY, part_of
from engine.importance.knockouts import random_masks
from engine.measurement import Measurement, measured_apart, of_records
from engine.memory import freed_at_once
from engine.models.loading import Loaded
from engine.models.masks import Mask, pruned
from engine.models.session import Session, Target
from engine.pieces import Measuring, Piece
from engine.progress import Progress
from engine.questions.encoding import Encoded, Row, pack
from engine.questions.rendering import CHUNK, Questions
from engine.records import Record, canonical_key
from engine.shapes import ModelShape
from engine.statistics import ALPHA, holm, mcnemar
from engine.timing.workload import gradient_characters

GRADIENT_TOKENS = 256  # padded tokens per backward pass, which keeps all activations; more is not faster ...
GRADIENT_TOKENS_SMALL = 512  # ... unless n_layers * d_model is at most SMALL_WIDTH
SMALL_WIDTH = 4096
LARGE_PARAMETERS = 500_000_000  # from here a pass fragments half a gigabyte, and takes longer than freeing it
WHAT = tuple(MEASURED_BY)


def measured_from(*sources: str) -> tuple[str, ...]:
    """Returns the scores that are measured from any of these (engine.importance.criteria.Criterion)."""
    return tuple(what for what, criterion in MEASURED_BY.items() if {*sources} & {*criterion.measured_from})


GRADIENTS, ORACLES, OF_ENTITIES = measured_from("gradients"), measured_from("ablations"), measured_from("words")
OF_MASKS = measured_from("masks")
OF_PROMPTS = measured_from("prompts", "words")
OF_QUESTIONS = measured_from("gradients", "ablations", "masks", "activity")
OF_ALL_TASKS = tuple(what for what in WHAT if what not in OF_QUESTIONS)
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
    def is_clear(self) -> np.ndarray | None:
        """Where accuracy clearly changes without the head or FFN, bool as `scores` (McNemar's exact test, 5% for all
        together by Holm's correction); None for scores that are not accuracies."""
        if self.flips is None:
            return None
        adjusted = holm([mcnemar(*flips) for flips in self.flips.reshape(2, -1).T.tolist()])
        return np.reshape(np.array(adjusted) < ALPHA, self.scores.shape)


def importance(
    target: Target, questions: Questions, what: str, mask: Mask | None = None, n_prompts: int = N_PROMPTS
) -> Measurement[Scores]:
    """Returns the Scores; gradient scores have a value so far, the others only once all records are stored.

    `what`: a score of a criterion (engine.importance.criteria.CRITERIA), or `gate`: Taylor's of heads, with every
    choice's signed gradients. `n_prompts`: of each kind, for scores of words.

    With a `mask`, scores of the pruned model (gradient scores only); pruned components score 0. UsageError: unknown
    score, or not available under a mask.
    """
    refuse_unknown("importance", what, WHAT)
    if mask is not None and not mask.is_full and what not in GRADIENTS:
        raise UsageError(f"importance {what!r} cannot be measured again under a mask; choose heads or gate")
    if what in ORACLES:
        ablated = "ffns" if part_of(what) == "ffns" else "heads-oracle"
        return oracle(target, questions, ablated).map(partial(_drops, what, target.shape))
    if what in OF_MASKS:
        masks = random_masks(target.shape)
        answers = under_each(target, questions, masks)
        return answers.map(lambda found: Scores(what, questions.n, *MEASURED_BY[what].of(masks, found)))
    if what in OF_PROMPTS:
        return of_prompts(target, what, n_prompts)
    return _by_questions(target, questions, what, mask)


@measured_apart
def _by_questions(target: Target, questions: Questions, what: str, mask: Mask | None) -> Measurement[Scores]:
    """Returns the Scores by passes over the questions."""

    def gradients(session: Session, records: list[Record]) -> list[Piece]:
        pieces = _chunk_pieces(target, questions, what, mask)
        if questions.n < CHUNK and session.record(pieces[0].key) is None:  # the others of the chunk are not wanted
            return _chunk_pieces(target, questions, what, mask, questions.n)
        return pieces

    def forward(session: Session, records: list[Record]) -> list[Piece]:
        return _forward_pieces(target, questions, what)

    def value(records: list[Record]) -> Scores | None:
        if what in GRADIENTS:
            return _scores(what, questions.n, records) if records else None
        is_whole = len(records) == len(_forward_pieces(target, questions, what))
        return _of_forward(what, questions.n, records) if is_whole else None

    about = (what, questions, "" if mask is None else mask.key())
    return of_records(target, about, gradients if what in GRADIENTS else forward, value)


def of_prompts(target: Target, what: str, n_prompts: int = N_PROMPTS) -> Measurement[Scores]:
    """Returns Scores that are measured on prompts of their own, not on questions: one of OF_PROMPTS."""
    return MEASURED_BY[what].of(target, n_prompts).map(lambda found: Scores(what, *found))


def _chunk_pieces(target: Target, questions: Questions, what: str, mask: Mask | None, size: int = CHUNK) -> list[Piece]:
    """Returns one piece for each `size` questions."""
    mask, what = mask or Mask.full(target.shape), "gate" if what == "gate" else "heads"  # the stored score
    about = {"what": what} | ({} if mask.is_full else {"mask": mask.key()})
    found, fields = [], target.key(gradients=True) | about
    n_layers, n_heads = target.shape.n_layers, target.shape.n_heads
    for chunk, n_wanted in questions.sized_chunks(size):
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
        found.append(Piece(key, n_wanted, shapes, measure, reads, "gradient"))
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
    """Returns the scores of the first `limit` questions of the stored chunks."""
    n_choices = max(part.arrays["heads"].shape[1] for part in parts)

    def joined(name: str) -> np.ndarray:
        arrays = [part.arrays[name] for part in parts]
        if name in ("heads", "ffns", "n_targets"):
            none = 0 if name == "n_targets" else np.nan
            widths = [[(0, 0), (0, n_choices - array.shape[1]), *[(0, 0)] * (array.ndim - 2)] for array in arrays]
            arrays = [np.pad(array, width, constant_values=none) for array, width in zip(arrays, widths, strict=True)]
        return np.concatenate(arrays)[:limit]

    found = {name: joined(name) for name in ("absolute", "heads", "ffns", "lengths", "gold")}
    heads, lengths = found["heads"], found["lengths"]
    n_targets = joined("n_targets") if what == "gate" else lengths[:, 1:]
    scores = MEASURED_BY[what].of(found, part_of(what))
    n_zero, n_positions = int((heads == 0).sum()), int(lengths[:, 0].sum())
    return Scores(what, len(heads), scores, None, heads, found["ffns"], n_targets, n_zero, n_positions)


def _forward_pieces(target: Target, questions: Questions, what: str) -> list[Piece]:
    """Returns the pieces that a score without gradients needs."""
    sources = MEASURED_BY[what].measured_from
    weights = [magnitude_piece(target)] if "weights" in sources else []
    return [*weights, *(activity_pieces(target, questions) if "activity" in sources else [])]


def _of_forward(what: str, n: int, records: Sequence[Record]) -> Scores:
    """Returns a score without gradients from the records of its pieces."""
    criterion = MEASURED_BY[what]
    n_weights = int("weights" in criterion.measured_from)
    arrays = dict(records[0].arrays) if n_weights else {}
    if passes := records[n_weights:]:
        arrays |= summed(passes)
    return Scores(what, n if passes else 0, criterion.of(arrays, part_of(what)))


def _drops(what: str, shape: ModelShape, answers: Sequence[Answers]) -> Scores:
    """Returns the accuracy lost by each ablation; `answers`: the full model's, then one for each head or FFN."""
    size = (shape.n_layers,) if part_of(what) == "ffns" else (shape.n_layers, shape.n_heads)
    drop, tie_break = (each.reshape(size) for each in MEASURED_BY[what].of(answers[0], answers[1:]))
    full, ablated = answers[0].correct, np.array([each.correct for each in answers[1:]])
    flips = np.array([(ablated & ~full).sum(1), (full & ~ablated).sum(1)]).reshape(2, *size)
    return Scores(what, len(full), drop, tie_break, flips=flips)

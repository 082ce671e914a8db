"""Heads with an ideal attention pattern, and how much of their effect remains.

A head's effect is the loss that ablating it adds. If replacing its pattern by that of an exact previous-token head adds
almost no loss, that pattern is all the head needs (Scherlis in Olsson et al. 2022: 99% of the loss for the
previous-token head of a two-layer model). The head's queries and keys are then unused; its values, its output and all
other heads are unchanged, although later heads may attend elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from engine.accuracy.evaluation import Answers, answers_measured, answers_of, encoded_chunk, evaluation
from engine.accuracy.passes import padded_inputs, read_places
from engine.accuracy.scoring import Scored, gathered, read_rows
from engine.composed import ComposedRun, composed
from engine.errors import UsageError
from engine.heads.ablation import losses_of
from engine.measurement import Measurement, Workload, measured_apart, of_records
from engine.models.loading import Loaded
from engine.models.masks import Mask, pruned
from engine.models.patterns import Replaced, visited
from engine.models.session import Session, Target
from engine.pieces import Measuring, Piece
from engine.progress import Progress, driven
from engine.questions.encoding import Encoded, Row, pack, tokenized, with_beginning
from engine.questions.rendering import Questions
from engine.records import Record, canonical_key
from engine.statistics import share_of
from engine.texts.incontext import MIN_TOKENS
from engine.texts.passages import checked, text_digest
from engine.texts.tokenloss import Tokenize
from engine.timing.workload import characters

PATTERNS = {
    "previous": "the token before",
    "prefix": "what followed the same token before ([A][B] … [A] → B); the first token where there is none",
    "uniform": "all tokens so far equally",
}
KNOCKOUT = "knockout"  # the own pattern without `prefix`, and without renormalization
SIDES = ("full", "ablated", *PATTERNS)
STRETCH = 32  # tokens that the bootstrap draws together, because losses of neighboring tokens correlate
DRAWS = 2000
ROUNDING = float(np.finfo(np.float32).eps)  # of a loss: all are computed in fp32 at last


@dataclass(frozen=True)
class Recovered:
    """How much of the heads' effect the pattern recovers. Share and interval are nan unless ablating clearly adds to
    the loss, by more than rounding: otherwise there is nothing to recover.

    effect_nats: loss that ablating the heads adds
    effect_low, effect_high: its 95% bootstrap interval
    share: share of it that the pattern prevents, 1 = all
    low, high: its 95% bootstrap interval
    n: questions, or stretches of text
    n_scored: questions, or tokens
    """

    effect_nats: float
    effect_low: float
    effect_high: float
    share: float
    low: float
    high: float
    n: int
    n_scored: int


@dataclass(frozen=True)
class Ideal:
    """The (layer, head) pairs whose patterns are replaced together, in a model pruned by `mask`. UsageError: no head is
    named, or one of them is pruned."""

    heads: tuple[tuple[int, int], ...]
    mask: Mask

    def __post_init__(self) -> None:
        if not self.heads:
            raise UsageError("no head is named; write heads like L1H0,L1H3")
        for layer, head in self.heads:
            if not self.mask.heads[layer][head]:
                raise UsageError(f"L{layer}H{head} is pruned already; take it out of the mask, or name another head")

    @property
    def ablated(self) -> Mask:
        """The mask without these heads."""
        kept = np.array(self.mask.heads)
        kept[tuple(zip(*self.heads, strict=True))] = False
        return Mask.from_arrays(kept, np.array(self.mask.ffns))

    def key(self) -> dict[str, Any]:
        """Returns the fields that change the numbers."""
        return {"heads": sorted(map(list, self.heads)), "mask": self.mask.key()}


def ideal_pattern(kind: str, row: Row) -> np.ndarray:
    """Returns (T, T), destination by source, rows summing to 1: where a head of PATTERNS attends in a packed row.

    `prefix`: equally to every earlier position after a copy of the destination's token (the destination itself if the
    token follows itself), as the prefix matching score counts them. KNOCKOUT gives bool instead: the other positions.
    """
    tokens, positions, branch = (np.array(each) for each in (row.tokens, row.positions, row.branch))
    at = {place: index for index, place in enumerate(zip(branch.tolist(), positions.tolist(), strict=True))}
    before = np.array([at.get((own, position - 1), at.get((0, position - 1), -1))
                       for own, position in zip(branch.tolist(), positions.tolist(), strict=True)])  # fmt: skip
    n = len(tokens)
    visible = np.tril(np.ones((n, n), bool)) & ((branch[None] == 0) | (branch[None] == branch[:, None]))
    if kind == "previous":
        looked_at = np.arange(n) == np.where(before < 0, np.arange(n), before)[:, None]
    elif kind in ("prefix", KNOCKOUT):
        looked_at = visible & (before >= 0) & (tokens[before] == tokens[:, None])
        if kind == KNOCKOUT:
            return ~looked_at
        looked_at[~looked_at.any(1), 0] = True
    elif kind == "uniform":
        looked_at = visible
    else:
        raise UsageError(f"pattern {kind!r} is unknown; choose one of {', '.join(PATTERNS)}")
    return (looked_at / looked_at.sum(1, keepdims=True)).astype(np.float32)


Losses = Mapping[str, tuple[np.ndarray, ...]]  # by SIDES: one array (n,) per text, nats per token, nan if not scored


def ideal_losses(target: Target, texts: Sequence[str], ideal: Ideal) -> Measurement[Losses]:
    """Returns the Losses of the texts so far, with the heads unchanged, ablated, and with each of PATTERNS. Progress
    counts windows.

    The whole text is read in independent windows of 512 tokens (or the model's window, if shorter) without overlap. A
    last window of fewer than STRETCH tokens is left out: its tokens have too little context.
    """
    texts = [checked(text) for text in texts]

    def pieces(session: Session, records: list[Record]) -> Iterator[Piece]:
        return _text_pieces(target, texts, ideal, records)

    def expected() -> Workload:
        return Workload({"patterns": float(len(SIDES) * sum(map(len, texts)))})

    def counted(records: list[Record]) -> tuple[int, int]:
        sizes = [_n_windows(record) for record in records if not record.receipt["window"]]
        return len(records), sum(sizes) + len(texts) - len(sizes)

    about = ("ideal losses", ideal, *map(text_digest, texts))
    return of_records(target, about, pieces, _losses, expected, counted)


def ideal_answers(target: Target, questions: Questions, ideal: Ideal) -> Measurement[dict[str, Answers]]:
    """Returns the known Answers by SIDES. Progress counts questions."""
    parts = {"full": evaluation(target, questions, ideal.mask)}
    parts["ablated"] = evaluation(target, questions, ideal.ablated)
    for kind in PATTERNS:
        pieces = partial(_question_pieces, target, questions, ideal, kind)
        value = partial(answers_of, questions)
        parts[kind] = of_records(
            target, (kind, ideal, questions), lambda session, records, pieces=pieces: pieces(), value
        )

    def body(run: ComposedRun) -> Generator[Progress[Any], None, dict[str, Answers]]:
        found: dict[str, Answers] = {}
        for side, part in parts.items():
            answers = yield from run.part(part, questions.n, f"heads: {side}")
            found |= {} if answers is None else {side: answers}
        return found

    return composed(target, ("ideal answers", ideal, questions), body, len(SIDES) * questions.n)


@measured_apart
def knockout_answers(target: Target, questions: Questions, heads: Sequence[tuple[int, int]]) -> Measurement[Answers]:
    """Returns the known Answers with the attention of some (layer, head) to what followed earlier copies of a token cut
    to 0, without renormalization (Crosbie and Shutova 2407.07011)."""
    cut = Ideal(tuple(heads), Mask.full(target.shape))

    def pieces(session: Session, records: list[Record]) -> list[Piece]:
        return _question_pieces(target, questions, cut, KNOCKOUT)

    return of_records(target, (KNOCKOUT, cut, questions), pieces, partial(answers_of, questions))


def recovered_in_texts(losses: Losses, kind: str) -> Recovered:
    """Returns how much of the mean loss of all tokens the pattern recovers, with an interval over stretches of 32
    tokens."""

    def summed(texts: Sequence[np.ndarray]) -> np.ndarray:
        known = [text[np.isfinite(text)].astype(float) for text in texts]
        return np.concatenate([np.add.reduceat(text, np.arange(0, len(text), STRETCH)) for text in known if len(text)])

    full, ablated, ideal = (summed(losses[side]) for side in ("full", "ablated", kind))
    n_tokens = summed([text * 0 + 1 for text in losses["full"]])
    return _recovered(full, ablated, ideal, n_tokens)


def recovered_in_questions(answers: Mapping[str, Answers], kind: str) -> Recovered:
    """Returns how much of the mean loss of the right choice the pattern recovers, with an interval over questions."""
    loss = {side: -answers[side].gold_log_likelihood_nats for side in ("full", "ablated", kind)}
    return _recovered(loss["full"], loss["ablated"], loss[kind], np.ones(len(loss["full"])))


def _recovered(full: np.ndarray, ablated: np.ndarray, ideal: np.ndarray, n_losses: np.ndarray) -> Recovered:
    """Bootstraps over units. By unit: the sum of losses of each side, and the number of losses summed."""
    effect, kept, n = ablated - full, ablated - ideal, len(full)
    counts = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), DRAWS)  # (draw, unit)
    effects, keeps, losses = (counts @ each for each in (effect, kept, n_losses))
    low, high = map(float, np.quantile(effects / losses, (0.025, 0.975))) if n > 1 else (math.nan, math.nan)
    mean, n_scored = float(effect.sum() / n_losses.sum()), int(n_losses.sum())
    share = share_of(float(kept.sum()), float(effect.sum()), ROUNDING * float(np.abs(full).sum()))
    if not low > 0 or math.isnan(share):
        return Recovered(mean, low, high, math.nan, math.nan, math.nan, n, n_scored)
    share_low, share_high = map(float, np.quantile(keeps / effects, (0.025, 0.975)))
    return Recovered(mean, low, high, share, share_low, share_high, n, n_scored)


def _text_pieces(target: Target, texts: Sequence[str], ideal: Ideal, records: Sequence[Record]) -> Iterator[Piece]:
    """Yields one piece per window of each text; the first record of a text gives the number of its windows."""
    fields = target.key_of_patterns() | ideal.key() | {"tokens": MIN_TOKENS, "what": "texts"}
    for text in texts:
        tokenize, window, n_windows = lru_cache(maxsize=1)(partial(tokenized, text)), 0, 1
        while window < n_windows:
            key = canonical_key("idealised", fields | {"text": text_digest(text), "window": window})
            measure = partial(_window_measured, tokenize=tokenize, bos=target.bos, ideal=ideal, window=window)
            yield Piece(key, 0, {side: ("n",) for side in SIDES}, measure)
            window, n_windows = window + 1, _n_windows(records[-1])


def _n_windows(record: Record) -> int:
    """Returns the number of windows read from the record's text."""
    whole, rest = divmod(record.receipt["n_tokens"], record.receipt["window_tokens"])
    return max(1, whole + (rest >= STRETCH))


def _window_measured(loaded: Loaded, tokenize: Tokenize, bos: bool, ideal: Ideal, window: int) -> Measuring:
    (tokens, ends), size = tokenize(loaded.tokenizer), min(MIN_TOKENS, loaded.identity.shape.n_ctx)
    own = slice(window * size, (window + 1) * size)
    reading, found = with_beginning(tokens[own], ends[own], loaded.tokenizer, bos), {}
    ids = tuple(reading.inputs[:-1].tolist()) or tuple(reading.inputs.tolist())
    row = Row((), ids, tuple(range(len(ids))), (0,) * len(ids), ())
    for number, side in enumerate(SIDES):
        mask = pruned(loaded, ideal.ablated if side == "ablated" else ideal.mask)
        found[side] = losses_of(loaded, reading, mask, visited(loaded, replaced=_replaced(ideal, side, row)))
        yield Progress(number + 1, len(SIDES), message=f"heads: {side}")
    about = {"window": window, "window_tokens": size, "n_tokens": len(tokens)}
    return found, {"kind": "idealised", "heads": _names(ideal), "mask": ideal.mask.text(), **about}


def _losses(records: Sequence[Record]) -> Losses:
    """Returns the losses of each text whose windows are all among the records."""
    found: dict[str, tuple[np.ndarray, ...]] = {side: () for side in SIDES}
    for first, record in enumerate(records):
        windows = records[first : first + _n_windows(record)]
        if record.receipt["window"] or len(windows) < _n_windows(record):
            continue
        for side in SIDES:
            scored = [each.arrays[side] for each in windows]
            left_out = np.full(record.receipt["n_tokens"] - sum(map(len, scored)), np.nan, np.float32)
            found[side] += (np.concatenate([*scored, left_out]),)
    return found


def _question_pieces(target: Target, questions: Questions, ideal: Ideal, kind: str) -> list[Piece]:
    def measure(loaded: Loaded, chunk: Sequence[int]) -> Measuring:
        encoded = encoded_chunk(loaded, target, questions, chunk)
        scored = yield from driven(_score(loaded, encoded, ideal, kind), lambda share: Progress(0, 1, share=share))
        arrays, about = answers_measured(questions, ideal.mask, encoded, scored)
        return arrays, dict(about) | {"kind": "idealised", "heads": _names(ideal), "pattern": kind}

    wanted, fields = [], target.key_of_patterns() | ideal.key() | {"what": "questions", "pattern": kind}
    for chunk, size in questions.sized_chunks():
        key = canonical_key("idealised", fields | {"questions": questions.digest(chunk)})
        shapes = {"log_likelihood_nats": (len(chunk), "C"), "greedy": (len(chunk), "C"), "n_cut": (len(chunk),)}
        reads = partial(characters, questions.at(chunk))  # row by row, so at a different speed than other passes
        wanted.append(Piece(key, size, shapes, partial(measure, chunk=chunk), reads, "patterns"))
    return wanted


def _score(
    loaded: Loaded, questions: Sequence[Sequence[Encoded]], ideal: Ideal, kind: str
) -> Generator[float, None, Scored]:
    """Scores like `engine.accuracy.scoring.score`, but row by row, because each row has different patterns."""
    import torch

    rows, results = [row for choices in questions for row in pack(choices)], []
    for number, row in enumerate(rows):
        inputs = padded_inputs(loaded, [row])
        changed = pruned(loaded, ideal.mask), visited(loaded, replaced=_replaced(ideal, kind, row))
        with torch.inference_mode(), changed[0], changed[1]:
            hidden = loaded.model.base_model(**inputs, use_cache=False).last_hidden_state[0]
            results += read_rows(loaded, [row], hidden[[position for _, position in read_places([row])]])
        yield (number + 1) / len(rows)
    return gathered(questions, rows, results)


def _replaced(ideal: Ideal, side: str, row: Row) -> Replaced:
    import torch

    if side not in (*PATTERNS, KNOCKOUT):
        return {}
    instead = torch.from_numpy(ideal_pattern(side, row))
    return {head: instead for head in ideal.heads}


def _names(ideal: Ideal) -> str:
    return " ".join(f"L{layer}H{head}" for layer, head in sorted(ideal.heads))

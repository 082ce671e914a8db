"""Token and concept induction of heads (Feucht et al. 2504.03022): does a head repeat the token that comes next, or the
word of several tokens that does?

A clean prompt is random tokens, an entity, a newline, and the same random tokens again. A corrupt one has another first
half. A head's output at the last random token of the clean prompt is put in its place in the corrupt one, and raises
the probability of the entity's first token there (token induction; the entity is random tokens), or of its second token
after its first (concept induction; the entity is a word or a name).

Departures: N_PROMPTS prompts of each kind, not thousands; the beginning and the newline are the tokenizer's own;
entities are the words of the included word pairs, or of the included tasks for the included model.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engine.accuracy.scoring import hidden_of, nats_of
from engine.demo import story
from engine.errors import HeadroomError
from engine.heads.last_token import hidden_with
from engine.heads.probes import random_tokens
from engine.measurement import Measurement, measured_apart, of_records
from engine.models.loading import Loaded
from engine.models.patterns import visited
from engine.models.session import Session, Target
from engine.pieces import Measuring, Piece
from engine.progress import Progress
from engine.questions.encoding import single_beginning
from engine.questions.word_pairs import included_tasks
from engine.records import Record, canonical_key
from engine.shapes import ModelShape
from engine.timing.workload import CHARACTERS_A_TOKEN

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("token", "concept")
N_PROMPTS, PART = 32, 8  # of each kind, unless said; prompts stored together
N_RANDOM, FEWEST_RANDOM = 30, 5  # random tokens in front of an entity
MOST_TOKENS = 5  # of an entity, which has at least two
WORD = re.compile(r"[^\W\d_]{4,}")
Entities = Callable[[Any], Sequence[tuple[int, ...]]]  # their tokens, from a tokenizer


@dataclass(frozen=True)
class EntityInductionScores:
    """Scores of every head, each by kind ("token" or "concept") over n prompts.

    rise: (n, L, H) probability of the wanted token with the head's clean output, minus that without
    attention: (n, L, H) share of the head's attention, weighted by the length of the values, from the last random token
    to the entity's first token ("token") or last token ("concept") in the clean prompt
    """

    rise: dict[str, np.ndarray]
    attention: dict[str, np.ndarray]


class Prompt(NamedTuple):
    """`clean` and `corrupt` end with the same tokens, `back` of them from the last random one on; the model should
    continue with `wanted`. `source`: index of the entity's token that attention to is measured."""

    clean: tuple[int, ...]
    corrupt: tuple[int, ...]
    back: int
    wanted: int
    source: int


@measured_apart
def entity_induction(
    target: Target, words: Sequence[str] | None = None, n_prompts: int = N_PROMPTS, kinds: Sequence[str] = KINDS
) -> Measurement[EntityInductionScores]:
    """Returns the EntityInductionScores over `n_prompts` of each of the `kinds` once all records are stored; entities
    are those of `words` (None: the included ones) that have two to five tokens. The prompts add a beginning token
    themselves, so the BOS setting does not matter. HeadroomError: the window is too short, or the tokenizer splits too
    few words."""
    asked = included_words(target.identity.folder) if words is None else tuple(words)
    _n_random(target.shape)
    digest = hashlib.blake2b("\n".join(asked).encode(), digest_size=16).hexdigest()
    entities = lru_cache(maxsize=1)(partial(_entities, words=asked))  # of the tokenizer, not once for every piece
    pieces = [
        _piece(target.as_usual, kind, first, digest, entities) for kind in kinds for first in range(0, n_prompts, PART)
    ]

    def value(records: list[Record]) -> EntityInductionScores | None:
        return _scores(records, n_prompts, kinds) if len(records) == len(pieces) else None

    def given(session: Session, records: list[Record]) -> list[Piece]:
        return pieces

    return of_records(target.as_usual, ("entity induction", digest, n_prompts, *kinds), given, value)


def included_words(folder: Path) -> tuple[str, ...]:
    """Returns words and names to use as entities with a model in a folder: those of its included word pairs and of the
    included story."""
    texts = {text for task in included_tasks(folder) for pair in task.pairs for text in (pair.question, pair.answer)}
    return tuple(sorted(texts | {word for text in (story(), *texts) for word in WORD.findall(text)}))


def _n_random(shape: ModelShape) -> int:
    n = min(N_RANDOM, (shape.n_ctx - MOST_TOKENS - 3) // 2)
    if n < FEWEST_RANDOM:
        raise HeadroomError(f"the window of {shape.n_ctx} tokens is too short for {FEWEST_RANDOM} random tokens and an "
                            "entity, twice over; use a model with a longer window")  # fmt: skip
    return n


def _piece(target: Target, kind: str, first: int, digest: str, entities: Entities) -> Piece:
    shape = target.shape
    about = {"kind": kind, "first": first, "n": PART, "words": digest}
    heads = (PART, shape.n_layers, shape.n_heads)
    tokens = 3 * 2 * _n_random(shape) + shape.n_heads * (shape.n_layers + 1)  # three passes, and all heads
    return Piece(
        canonical_key("entity induction", target.key_of_patterns() | about),
        PART,
        {"rise": heads, "attention": heads},
        partial(_measured, kind=kind, first=first, entities=entities),
        partial(float, PART * CHARACTERS_A_TOKEN * tokens),
        "patterns",
    )


def _measured(loaded: Loaded, kind: str, first: int, entities: Entities) -> Measuring:
    """Measures a few prompts of one kind."""
    import torch

    known = entities(loaded.tokenizer) if kind == "concept" else []
    rises, attention = [], []
    for number in range(first, first + PART):
        yield Progress(number - first, PART, message=f"{kind} induction")
        prompt = _prompt(loaded, kind, number, known)
        with torch.inference_mode():
            z, seen = _at_last_random(loaded, prompt)
            hidden = hidden_with(loaded, prompt.corrupt, z, prompt.back)
        p = np.exp(-nats_of(loaded, hidden, np.full(len(hidden), prompt.wanted)).astype(np.float64))
        rises.append((p[1:] - p[0]).reshape(z.shape[:2]))
        attention.append(seen)
    yield Progress(PART, PART, message=f"{kind} induction")
    arrays = {"rise": np.stack(rises).astype(np.float32), "attention": np.stack(attention)}
    return arrays, {"kind": "entity induction", "of": kind, "entities": len(known)}


def _entities(tokenizer: Any, words: Sequence[str]) -> list[tuple[int, ...]]:
    """Returns the tokens of each word that has two to five, as after a space, and that has a counterpart: a word of as
    many tokens that begins otherwise. HeadroomError: there are none."""
    encoded = tokenizer([f" {word}" for word in words], add_special_tokens=False).input_ids
    found = [tuple(ids) for ids in encoded if 2 <= len(ids) <= MOST_TOKENS]
    begins = {n: {ids[:2] for ids in found if len(ids) == n} for n in range(2, MOST_TOKENS + 1)}
    if not (found := [ids for ids in found if len(begins[len(ids)]) > 1]):
        raise HeadroomError("the tokenizer splits too few words, so concept induction cannot be measured; choose "
                            "another model")  # fmt: skip
    return found


def _prompt(loaded: Loaded, kind: str, number: int, entities: Sequence[tuple[int, ...]]) -> Prompt:
    generator = np.random.default_rng((number, KINDS.index(kind)))
    n = _n_random(loaded.identity.shape)
    drawn = random_tokens(loaded, n + MOST_TOKENS, [generator, generator]).tolist()
    if kind == "token":
        end = n + int(generator.integers(2, MOST_TOKENS + 1))
        pair = [each[n:end] for each in drawn]
    else:
        entity = entities[int(generator.integers(len(entities)))]
        others = [each for each in entities if len(each) == len(entity) and each[:2] != entity[:2]]
        pair = [entity, others[int(generator.integers(len(others)))]]
    begin, newline = single_beginning(loaded.tokenizer, default=0), _newline(loaded.tokenizer)
    known, other = ((begin, *drawn[at][:n], *pair[at], newline) for at in (0, 1))
    back = 1 + (kind == "concept")  # a concept is read after its first token
    again = (*drawn[0][:n], *pair[0][: back - 1])
    source = n + 1 if kind == "token" else n + len(pair[0])
    return Prompt((*known, *again), (*other, *again), back, pair[0][back - 1], source)


def _newline(tokenizer: Any) -> int:
    ids = tokenizer("\n", add_special_tokens=False).input_ids
    return ids[-1] if ids else single_beginning(tokenizer, default=0)


def _at_last_random(loaded: Loaded, prompt: Prompt) -> tuple[Tensor, np.ndarray]:
    """Returns (z (L, H, d_head), attention (L, H)) of every head at the last random token of the clean prompt."""
    import torch

    outputs, shares = [], []

    def visit(layer: int, pattern: Tensor, z: Tensor, values: Tensor) -> None:
        outputs.append(z[0, :, -prompt.back].float().cpu())
        weighted = pattern[0, :, -prompt.back] * values[0].float().norm(dim=-1)
        shares.append((weighted[:, prompt.source] / weighted.sum(-1)).float().cpu().numpy())

    with visited(loaded, visit):
        hidden_of(loaded, [list(prompt.clean)])
    return torch.stack(outputs), np.stack(shares)


def _scores(records: Sequence[Record], n_prompts: int, kinds: Sequence[str]) -> EntityInductionScores:
    """The first prompts of the records' arrays by kind, in the order of `kinds`."""
    found = dict[str, dict[str, np.ndarray]]()
    for name in ("rise", "attention"):
        parts = np.split(np.concatenate([record.arrays[name] for record in records]), len(kinds))
        found[name] = {kind: part[:n_prompts] for kind, part in zip(kinds, parts, strict=True)}
    return EntityInductionScores(**found)

"""Retrieval scores of heads (Wu et al. 2404.15574): does a head look at what the model copies from far back?

A prompt is the included story with a needle sentence in it, and then the needle's beginning again. The model continues
it, always with the likeliest token. A token of the rest of the needle counts for a head if it is produced while the
head's largest attention lies on that very token in the needle; the score is the share of those that count.

Departures: prompts are of LENGTHS tokens with the needle at DEPTHS places, not of up to 50,000 tokens; the question is
the beginning of the needle, and its end is a list of words, so that small models without instruction tuning continue it
too; neither a newline nor an end token stops.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from engine.accuracy.scoring import next_logits
from engine.demo import story
from engine.errors import HeadroomError
from engine.measurement import Measurement, measured_apart, of_records
from engine.models.loading import Loaded
from engine.models.patterns import visited
from engine.models.session import Session, Target
from engine.pieces import Measuring, Piece
from engine.progress import Progress
from engine.questions.encoding import single_beginning, tokenized
from engine.records import Record, canonical_key
from engine.texts.passages import text_digest
from engine.timing.workload import CHARACTERS_A_TOKEN

if TYPE_CHECKING:
    from torch import Tensor

NEEDLE = (  # its beginning, which is the question, and the rest
    " The list of the old sailor is: lion lemon",
    " axe rake apple goose hook melon date spider mango broom.",
)
LENGTHS, DEPTHS = (256, 512), 4  # tokens, the answer included; places of the needle, evenly spaced from the first token
N_ANSWER = 10  # tokens that are decoded, at most


@measured_apart
def retrieval(target: Target) -> Measurement[np.ndarray]:
    """Returns (n, L, H), for n prompts, once all records are stored: the share of the needle's tokens that are produced
    while the head's largest attention lies on them. Prompts begin with a beginning token, so the BOS setting does not
    matter. HeadroomError: the window is too short."""
    target, shape = target.as_usual, target.shape
    pieces = []
    for length in sorted({min(length, shape.n_ctx) for length in LENGTHS}):
        for depth in range(DEPTHS):
            about = {"length": length, "depth": [depth, DEPTHS], "needle": NEEDLE, "answer": N_ANSWER}
            pieces.append(Piece(
                canonical_key("retrieval", target.key_of_patterns() | about | {"text": text_digest(story())}), length,
                {"share": (shape.n_layers, shape.n_heads)},
                partial(_measured, length=length, depth=depth), partial(float, CHARACTERS_A_TOKEN * length), "patterns",
            ))  # fmt: skip

    def value(records: list[Record]) -> np.ndarray | None:
        return np.stack([record.arrays["share"] for record in records]) if len(records) == len(pieces) else None

    def given(session: Session, records: list[Record]) -> list[Piece]:
        return pieces

    return of_records(target, tuple(piece.key for piece in pieces), given, value)


def _measured(loaded: Loaded, length: int, depth: int) -> Measuring:
    yield Progress(0, 1, message="retrieval")
    ids, answer, at = _prompt(loaded, length, depth)
    given, looked_at = _continued(loaded, ids, len(answer))
    produced = given[:, None] == answer  # (step, token of the answer)
    hits = produced[:, None, None] & (looked_at[..., None] == at + np.arange(len(answer)))
    receipt = {"kind": "retrieval", "tokens": len(ids), "produced": float(produced.diagonal().mean())}
    return {"share": hits.any(0).mean(-1).astype(np.float32)}, receipt


def _prompt(loaded: Loaded, length: int, depth: int) -> tuple[list[int], np.ndarray, int]:
    """Returns a prompt, the tokens that the needle continues with, and where they begin in the prompt."""
    text, question, rest = (tokenized(each, loaded.tokenizer)[0].tolist() for each in (story(), *NEEDLE))
    answer = rest[:N_ANSWER]
    room = length - 1 - 2 * len(question) - len(rest) - len(answer)
    if room < 1:
        raise HeadroomError(f"the window of {length} tokens is too short for a text with a sentence to find; choose a "
                            "model with a longer window")  # fmt: skip
    around, place = np.resize(text, room).tolist(), room * depth // DEPTHS
    before = [single_beginning(loaded.tokenizer, default=0), *around[:place], *question]
    return [*before, *rest, *around[place:], *question], np.array(answer), len(before)


def _continued(loaded: Loaded, ids: list[int], n: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the n likeliest tokens after a prompt, one after the other (n,), and the position that each head attends
    to most where it predicts them (n, L, H)."""
    import torch
    from transformers import DynamicCache

    held, given, looked_at = DynamicCache(), list[int](), []

    def visit(layer: int, pattern: Tensor, z: Tensor, values: Tensor) -> None:
        looked_at.append(pattern[0, :, -1].argmax(-1).cpu().numpy())

    with torch.inference_mode(), visited(loaded, visit):
        for _ in range(n):
            read = given[-1:] or ids
            given.append(int(next_logits(loaded, read, held, len(ids) + len(given) - len(read)).argmax()))
    return np.array(given), np.stack(looked_at).reshape(n, loaded.identity.shape.n_layers, -1)

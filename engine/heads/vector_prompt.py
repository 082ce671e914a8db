"""A prompt read with a task's function vector added at each layer: what would the model say next?

As in `engine.heads.vector_switch`, the vector is added to the input of one layer at the last token of the prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from engine.accuracy.scoring import some_logits
from engine.composed import then
from engine.heads.function_vectors import FunctionVectorScores, function_vectors, mean_outputs
from engine.heads.last_token import hidden_changed
from engine.heads.vector_switch import top_heads
from engine.measurement import Measurement, Workload, of_records
from engine.models.added_vector import function_vector
from engine.models.loading import Loaded
from engine.models.session import Session, Target
from engine.pieces import Measuring, Piece
from engine.progress import Progress
from engine.questions.encoding import pack_strings, unpack_strings
from engine.questions.word_pairs import PairTask
from engine.records import Record, canonical_key
from engine.texts.continuation import prompt_ids
from engine.texts.passages import checked, text_digest
from engine.timing.workload import CHARACTERS_A_TOKEN

N_GUESSES = 5


@dataclass(frozen=True)
class VectorGuesses:
    """The likeliest next tokens of a prompt, in the first row without the vector, then with it added at each of L
    layers.

    heads: (layer, head) of the vector, the highest score first
    token_ids: (L + 1, N_GUESSES), the likeliest first
    p: (L + 1, N_GUESSES) their probabilities
    strings: the text of each token of `token_ids`
    """

    heads: tuple[tuple[int, int], ...]
    token_ids: np.ndarray
    p: np.ndarray
    strings: dict[int, str]

    def likeliest(self, row: int) -> tuple[str, float]:
        """Returns the likeliest token of a row, and its probability."""
        return self.strings[int(self.token_ids[row, 0])], float(self.p[row, 0])


def guesses_with_vector(target: Target, task: PairTask, prompt: str) -> Measurement[VectorGuesses]:
    """Returns the VectorGuesses of a prompt, with the vector of the heads that the included tasks rank first.
    HeadroomError: an empty or too long prompt, or the model mixes the keys of neighboring tokens."""
    prompt = checked(prompt, "the prompt")
    expected = partial(Workload, {"forward": float(len(prompt))})
    return then(
        function_vectors(target), partial(_guesses, target, task, prompt), expected, (task.digest, prompt), (3, 1)
    )


def _guesses(target: Target, task: PairTask, prompt: str, scores: FunctionVectorScores) -> Measurement[VectorGuesses]:
    heads, known = top_heads(scores), lru_cache(maxsize=1)(task.tokenized)

    def pieces(session: Session, records: list[Record]) -> list[Piece]:
        n_layers = target.shape.n_layers
        about = {"pairs": task.digest, "vector": [list(head) for head in heads], "text": text_digest(prompt)}
        key = canonical_key("vector guesses", target.key() | about | {"likeliest": N_GUESSES})
        shapes: dict[str, tuple[int | str, ...]] = {name: (n_layers + 1, N_GUESSES) for name in ("token_ids", "p")}
        measure = partial(_measured, bos=target.bos, prompt=prompt, heads=heads, records=records)
        characters = len(prompt) + CHARACTERS_A_TOKEN * n_layers / 2
        piece = Piece(key, 1, shapes | {"strings": ("bytes",)}, measure, partial(float, characters))
        return [mean_outputs(target, task, known), piece]

    def value(records: list[Record]) -> VectorGuesses | None:
        return None if len(records) < 2 else _as_guesses(heads, records[1])

    return of_records(target, ("vector guesses", task.digest, heads, prompt), pieces, value)


def _measured(
    loaded: Loaded, bos: bool, prompt: str, heads: Sequence[tuple[int, int]], records: Sequence[Record]
) -> Measuring:
    import torch

    yield Progress(0, 1)
    ids = prompt_ids(loaded, prompt, bos, is_chat=False)
    vector = function_vector(loaded, heads, records[0].arrays["z"])
    with torch.inference_mode():
        hidden = hidden_changed(loaded, ids, lambda layer, stream: stream + vector.to(stream))
        logits = torch.cat([rows for _, rows in some_logits(loaded, hidden)])
        best = logits.float().softmax(-1).topk(N_GUESSES)
    arrays = {"token_ids": best.indices.int().cpu().numpy(), "p": best.values.cpu().numpy()}
    return arrays | {"strings": pack_strings(arrays["token_ids"].ravel(), loaded.tokenizer)}, {"kind": "vector guesses"}


def _as_guesses(heads: tuple[tuple[int, int], ...], record: Record) -> VectorGuesses:
    arrays = record.arrays
    return VectorGuesses(heads, arrays["token_ids"], arrays["p"], unpack_strings(arrays["strings"]))

"""Probe inputs for induction heads, and the scores of every head on one batch of them.

Every probe takes one random generator per example and returns arrays (example, layer, head); a batch is one forward
pass.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.accuracy.scoring import hidden_of
from engine.checkpoints.tokenizer import ROWS
from engine.demo import story
from engine.errors import HeadroomError
from engine.models.loading import Loaded
from engine.models.patterns import Visit, visited
from engine.models.weights import output_bias, output_weights, unembedding, written_weights
from engine.questions.encoding import single_beginning

if TYPE_CHECKING:
    from torch import Tensor

N_COPIES = 4
LEAVE_OUT = 0.04  # share of the most and of the least common merges excluded from random tokens
Generators = Sequence[np.random.Generator]


def random_token_pool(tokenizer: Any) -> np.ndarray:
    """Returns the token ids that random tokens are drawn from, most common merges first, without the 4% at either end.

    For a tokenizer without BPE merges, the ids in ascending order. Special tokens are excluded.
    """
    model = _tokenizer_model(tokenizer)
    special = set(tokenizer.all_special_ids)
    if model.get("merges"):
        pairs = [pair if isinstance(pair, list) else pair.split(" ") for pair in model["merges"]]
        ids = [model["vocab"]["".join(pair)] for pair in pairs]
    else:
        ids = sorted(tokenizer.get_vocab().values())
    n_rows = getattr(tokenizer, ROWS, math.inf)  # added tokens may have no embedding
    pool = [token for token in dict.fromkeys(ids) if token not in special and token < n_rows]
    aside = int(LEAVE_OUT * len(pool))
    return np.array(pool[aside : len(pool) - aside], np.int64)


def alphabet_of(loaded: Loaded) -> int:
    """Returns the number of distinct random tokens (ids from 1) that a model trained by Headroom was trained on; 0 for
    any other model."""
    size = loaded.identity.config.get("headroom_alphabet")
    return size if isinstance(size, int) and 0 < size < loaded.identity.shape.n_vocab else 0


def has_merges(tokenizer: Any) -> bool:
    """Returns whether the tokenizer has merges, which order tokens by frequency."""
    return bool(_tokenizer_model(tokenizer).get("merges"))


@lru_cache(maxsize=1)  # tens of thousands of entries, needed for every batch
def _tokenizer_model(tokenizer: Any) -> dict[str, Any]:
    return json.loads(tokenizer.backend_tokenizer.to_str())["model"]


def random_tokens(loaded: Loaded, n_tokens: int, generators: Generators) -> np.ndarray:
    """Returns (example, n_tokens) ids, distinct within an example. HeadroomError: the tokenizer has too few."""
    alphabet = alphabet_of(loaded)
    pool = np.arange(1, 1 + alphabet) if alphabet else random_token_pool(loaded.tokenizer)
    if n_tokens > len(pool):
        raise HeadroomError(f"{n_tokens} random tokens asked for, the tokenizer has only {len(pool)} to draw from; "
                            f"the variant olsson needs the fewest")  # fmt: skip
    return np.stack([generator.choice(pool, n_tokens, replace=False) for generator in generators])


def repeated_tokens(loaded: Loaded, n_tokens: int, n_copies: int, generators: Generators) -> np.ndarray:
    """Returns (example, 1 + n_tokens * n_copies): a beginning token, then the same random tokens `n_copies` times."""
    tokens = np.tile(random_tokens(loaded, n_tokens, generators), n_copies)
    return np.insert(tokens, 0, single_beginning(loaded.tokenizer, default=0), 1)


def prefix_matching(loaded: Loaded, n_tokens: int, generators: Generators) -> dict[str, np.ndarray]:
    """Returns prefix matching and duplicate-token scores, 0 to 1.

    The input is a beginning token and random tokens repeated 4 times. The scores are the attention to positions that
    follow an earlier copy of the current token, and to those copies themselves, averaged over positions from the second
    copy on. Unlike llm-interpret, which credits the position after BOS as if it followed a copy of the last token.
    """
    inputs = repeated_tokens(loaded, n_tokens, N_COPIES, generators)
    destination, source = np.indices((inputs.shape[1], inputs.shape[1]))
    later, distance = destination > n_tokens, destination - source
    wanted = {
        "prefix_matching": later & (source > 1) & (distance >= 0) & ((distance + 1) % n_tokens == 0),
        "duplicate_token": later & (source > 0) & (distance > 0) & (distance % n_tokens == 0),
    }
    return _attention_to(loaded, inputs, wanted, inputs.shape[1] - 1 - n_tokens)


def previous_token(loaded: Loaded, n_tokens: int, generators: Generators) -> dict[str, np.ndarray]:
    """Returns mean attention to the previous position, in stretches of the built-in story chosen by the generators.

    Averaged from the second token on: only the beginning token precedes the first.
    """
    ids = np.array(loaded.tokenizer(story(), add_special_tokens=False).input_ids)
    firsts = [generator.integers(0, max(1, len(ids) - n_tokens)) for generator in generators]
    stretches = np.stack([ids[first : first + n_tokens] for first in firsts])
    inputs = np.insert(stretches, 0, single_beginning(loaded.tokenizer, default=0), 1)
    destination, source = np.indices((inputs.shape[1], inputs.shape[1]))
    wanted = {"previous_token": (destination - source == 1) & (source > 0)}
    return _attention_to(loaded, inputs, wanted, inputs.shape[1] - 2)


def copying(loaded: Loaded, n_tokens: int, generators: Generators) -> dict[str, np.ndarray]:
    """Returns the copying score, -1 to 1 (Olsson et al.).

    The input is random tokens, once, without BOS. A head's output alone, through W_O, the weights of a norm behind
    attention and of the final norm, and the unembedding, raises or lowers the sample's tokens relative to their mean. r
    is the share of everything raised that goes to the tokens attended to (weighted by attention), averaged over
    positions; the score is 4 r - 1, at most 1. The residual stream is the real one.
    """
    import torch

    inputs = random_tokens(loaded, n_tokens, generators)
    readers = unembedding(loaded, torch.from_numpy(inputs))  # (example, token, d_model)
    scores = _zeros(loaded, len(inputs))

    def visit(layer: int, pattern: Tensor, z: Tensor, values: Tensor) -> None:
        weights = written_weights(loaded, layer)
        for head in range(pattern.shape[1]):
            logits = (z[:, head].float() @ weights[head]) @ readers.to(z.device).transpose(1, 2)
            raised = (logits - logits.mean(-1, keepdim=True)).relu()  # (example, position, token)
            share = (raised * pattern[:, head]).sum(-1) / raised.sum(-1).clamp_min(1e-12)
            scores[:, layer, head] = (4 * share.mean(-1) - 1).clamp(-1, 1).cpu().numpy()

    _run(loaded, inputs, visit)
    return {"copying": scores}


def copying_bansal(loaded: Loaded, n_tokens: int, generators: Generators) -> dict[str, np.ndarray]:
    """Returns the copying score, 0 to 1, as computed by llm-interpret.

    The input is BOS and 4 n random tokens. Every layer's input is the embeddings; a head's output is the value at the
    position itself, through W_O with its whole bias and the unembedding without the final norm. The score is the share
    of the token attended to most in everything raised among the tokens so far (probabilities relative to their mean).
    llm-interpret takes the softmax over the vocabulary, Headroom over these tokens only: a common factor that cancels.
    """
    import torch

    inputs = repeated_tokens(loaded, 4 * n_tokens, 1, generators)
    readers = unembedding(loaded, torch.from_numpy(inputs), final_norm=False)
    scores = _zeros(loaded, len(inputs))
    seen = torch.ones(inputs.shape[1], inputs.shape[1], dtype=torch.bool).tril()

    def visit(layer: int, pattern: Tensor, z: Tensor, values: Tensor) -> None:
        weights, bias = output_weights(loaded, layer), output_bias(loaded, layer)
        far = ~seen.to(z.device)
        for head in range(pattern.shape[1]):
            logits = (values[:, head].float() @ weights[head] + bias) @ readers.to(z.device).transpose(1, 2)
            probability = logits.masked_fill_(far, -torch.inf).softmax(-1)
            mean = 1 / (~far).sum(-1, keepdim=True)
            raised = (probability - mean).relu()
            most = pattern[:, head].argmax(-1, keepdim=True)
            share = raised.gather(-1, most)[..., 0] / raised.sum(-1).clamp_min(1e-30)
            scores[:, layer, head] = share[:, 1:].mean(-1).cpu().numpy()

    _run(loaded, inputs, visit, embeddings_everywhere=True)
    return {"copying": scores}


def _attention_to(
    loaded: Loaded, inputs: np.ndarray, wanted: Mapping[str, np.ndarray], n_destinations: int
) -> dict[str, np.ndarray]:
    scores = {name: _zeros(loaded, len(inputs)) for name in wanted}
    where = np.stack([each.ravel() for each in wanted.values()], axis=1) / n_destinations  # (T * T, names)

    def visit(layer: int, pattern: Tensor, z: Tensor, values: Tensor) -> None:
        found = pattern.flatten(2) @ pattern.new_tensor(where)  # (example, head, names), without a second pattern
        for number, name in enumerate(wanted):
            scores[name][:, layer] = found[..., number].cpu().numpy()

    _run(loaded, inputs, visit)
    return scores


def _zeros(loaded: Loaded, n_examples: int) -> np.ndarray:
    return np.zeros((n_examples, loaded.identity.shape.n_layers, loaded.identity.shape.n_heads))


class _SeenAll(Exception):
    """Stops a pass after the last layer's heads have been visited: its output is not needed."""


def _run(loaded: Loaded, inputs: np.ndarray, visit: Visit, embeddings_everywhere: bool = False) -> None:
    import torch

    def visit_until_last(layer: int, pattern: Tensor, z: Tensor, values: Tensor) -> None:
        visit(layer, pattern, z, values)
        if layer == loaded.identity.shape.n_layers - 1:
            raise _SeenAll

    with suppress(_SeenAll), torch.inference_mode(), visited(loaded, visit_until_last, embeddings_everywhere):
        hidden_of(loaded, inputs)

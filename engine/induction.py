"""Induction scores of every head: does it look at what followed the same token before (prefix matching), and does it
raise the logit of the token it looks at (copying)? Olsson et al. 2022, section "Mechanistic evidence".
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.errors import HeadroomError
from engine.loading import Loaded
from engine.patterns import output_weights, unembedding, visited

N_TOKENS, N_COPIES, N_EXAMPLES = 25, 4, 10
LEAVE_OUT = 0.04  # share of the most and of the least common merges that random tokens are not drawn from


@dataclass(frozen=True)
class HeadScores:
    """`mean` and its `standard_error` over `n` examples, both (layer, head)."""

    mean: np.ndarray
    standard_error: np.ndarray
    n: int


def random_token_pool(tokenizer: Any) -> np.ndarray:
    """Token ids that random tokens are drawn from, most common merges first, without the 4 % at either end.

    A tokenizer without BPE merges gives its ids in their own order. Special tokens are never among them.
    """
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    special = set(tokenizer.all_special_ids)
    if model.get("merges"):
        pairs = [pair if isinstance(pair, list) else pair.split(" ") for pair in model["merges"]]
        ids = [model["vocab"]["".join(pair)] for pair in pairs]
    else:
        ids = sorted(tokenizer.get_vocab().values())
    pool = [token for token in dict.fromkeys(ids) if token not in special]
    aside = int(LEAVE_OUT * len(pool))
    return np.array(pool[aside : len(pool) - aside], np.int64)


def random_tokens(pool: np.ndarray, n_tokens: int, seed: int) -> np.ndarray:
    """(n_tokens,) distinct ids of `pool` from the example's own generator. HeadroomError: the pool is too small."""
    if n_tokens > len(pool):
        raise HeadroomError(f"{n_tokens} random tokens asked for, the tokenizer has only {len(pool)} to draw from; "
                            f"use shorter sequences")  # fmt: skip
    return np.random.default_rng(seed).choice(pool, n_tokens, replace=False)


def prefix_matching(loaded: Loaded, n_examples: int = N_EXAMPLES, n_tokens: int = N_TOKENS) -> HeadScores:
    """Prefix-matching score of every head, 0 to 1 (Olsson et al.).

    `n_tokens` random tokens, 4 times over, behind a BOS token: the attention that positions from the second copy on pay
    to all positions that follow an earlier copy of their token, averaged over positions. Departs from llm-interpret,
    which counts the first copy's first token as a repeat.
    """
    pool = random_token_pool(loaded.tokenizer)
    examples = np.stack([np.tile(random_tokens(pool, n_tokens, seed), N_COPIES) for seed in range(n_examples)])
    inputs = np.concatenate([np.full((n_examples, 1), loaded.tokenizer.bos_token_id or 0), examples], axis=1)
    length = inputs.shape[1]
    destination, source = np.indices((length, length))
    # destination d holds the token of position d - n_tokens, d - 2 n_tokens, ...; what follows those is looked for
    behind = destination - source + 1
    wanted = (behind % n_tokens == 0) & (behind > 0) & (source > 1) & (destination > n_tokens)
    scores = np.zeros((n_examples, loaded.identity.shape.n_layers, loaded.identity.shape.n_heads))

    def visit(layer: int, pattern: Any, z: Any) -> None:
        weight = pattern.new_tensor(wanted)
        scores[:, layer] = (pattern * weight).sum((2, 3)).cpu().numpy() / (length - 1 - n_tokens)

    _run(loaded, inputs, visit)
    return _summary(scores)


def copying(loaded: Loaded, n_examples: int = N_EXAMPLES, n_tokens: int = N_TOKENS) -> HeadScores:
    """Copying score of every head, -1 to 1 (Olsson et al.).

    `n_tokens` random tokens, once, without BOS. A head's output alone, through W_O, the final norm's weights and the
    unembedding, raises or lowers the sample's tokens against their mean; of all that it raises, the share that goes to
    the tokens attended to (weighted by attention) is r, averaged over positions, and the score is 4 r - 1, at most 1.
    The residual stream is the real one; llm-interpret feeds the embeddings to every layer.
    """
    import torch

    pool = random_token_pool(loaded.tokenizer)
    inputs = np.stack([random_tokens(pool, n_tokens, seed) for seed in range(n_examples)])
    readers = unembedding(loaded, torch.from_numpy(inputs))  # (example, token, d_model)
    scores = np.zeros((n_examples, loaded.identity.shape.n_layers, loaded.identity.shape.n_heads))

    def visit(layer: int, pattern: Any, z: Any) -> None:
        weights = output_weights(loaded, layer)
        for head in range(pattern.shape[1]):
            written = z[:, :, head].float() @ weights[head]  # (example, position, d_model)
            logits = written @ readers.to(written.device).transpose(1, 2)  # (example, position, token)
            raised = (logits - logits.mean(-1, keepdim=True)).relu()
            attended = (raised * pattern[:, head]).sum(-1)
            share = attended / raised.sum(-1).clamp_min(1e-12)
            scores[:, layer, head] = (4 * share.mean(-1) - 1).clamp(-1, 1).cpu().numpy()

    _run(loaded, inputs, visit)
    return _summary(scores)


def _run(loaded: Loaded, inputs: np.ndarray, visit: Any) -> None:
    import torch

    device = loaded.model.get_input_embeddings().weight.device
    with torch.inference_mode(), visited(loaded, visit):
        loaded.model.base_model(input_ids=torch.from_numpy(inputs).to(device), use_cache=False)


def _summary(scores: np.ndarray) -> HeadScores:
    n = len(scores)
    error = scores.std(0, ddof=1) / np.sqrt(n) if n > 1 else np.full(scores.shape[1:], np.nan)
    return HeadScores(scores.mean(0), error, n)


def best_heads(scores: np.ndarray, count: int) -> Iterator[tuple[str, float]]:
    """The `count` heads of highest score by name, `L3H5` style."""
    n_heads = scores.shape[1]
    for flat in np.argsort(-scores, axis=None)[:count]:
        yield f"L{flat // n_heads}H{flat % n_heads}", float(scores.flat[flat])

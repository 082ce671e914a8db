"""Scores of heads from their weights alone: OV copying eigenvalues and the K-composition trace (Olsson et al. 2022).

Both are traces or eigenvalues of (n_vocab, n_vocab) matrices of rank d_head, so they are taken on the d_head side.
"""

import numpy as np

from engine.models.loading import Loaded
from engine.models.weights import (
    attention_norm,
    attention_weights,
    embedding,
    folded,
    normed,
    output_weights,
    unembedding,
)


def ov_copying_eigenvalues(loaded: Loaded) -> np.ndarray:
    """(L, H): for the eigenvalues of the full OV circuit, the sum of their real parts over the sum of their magnitudes.

    1: attending to any token raises that token's logit; -1: lowers it. The circuit is W_E W_V W_O W_U with the
    attention's norm and the final norm folded in; positions and the output of other layers are left out.
    """
    import torch

    shape = loaded.identity.shape
    scores = np.zeros((shape.n_layers, shape.n_heads))
    with torch.inference_mode():
        tokens = unembedding(loaded).T @ embedding(loaded)  # (d_model, d_model)
        for layer in range(shape.n_layers):
            _, _, value = attention_weights(loaded, layer)
            read = normed(attention_norm(loaded, layer), tokens)
            small = output_weights(loaded, layer) @ read.to(value.device) @ value  # (H, d_head, d_head)
            found = torch.linalg.eigvals(small.cpu().double()).numpy()
            scores[layer] = found.real.sum(1) / np.maximum(np.abs(found).sum(1), 1e-30)
    return scores


def qk_trace(loaded: Loaded, previous_token: np.ndarray) -> np.ndarray:
    """(L, H): trace of the term that matches a head's query token with the token *before* the key.

    The keys are what earlier heads wrote at the key from the token before it, each weighted by its previous-token score
    (L, H): W_E W_Q (W_E sum_k score_k W_V W_O W_K)^T. Large and positive for an induction head. Undefined (nan) in
    layer 0. Rotary positions are left out.
    """
    import torch

    shape = loaded.identity.shape
    scores = np.full((shape.n_layers, shape.n_heads), np.nan)
    with torch.inference_mode():
        rows = embedding(loaded)
        tokens = rows.T @ rows  # (d_model, d_model)
        written = torch.zeros_like(tokens)
        for layer in range(shape.n_layers):
            norm = attention_norm(loaded, layer)
            query, key, value = (folded(norm, weight.mT).mT for weight in attention_weights(loaded, layer))
            if layer:
                from_tokens = written.T @ tokens @ query.to(tokens.device)  # (H, d_model, d_head)
                scores[layer] = (from_tokens * key.to(tokens.device)).sum((1, 2)).cpu().numpy()
            weight = torch.from_numpy(previous_token[layer]).to(value)
            through = value @ output_weights(loaded, layer).to(value.device)  # (H, d_model, d_model)
            written += (weight[:, None, None] * through).sum(0).to(written.device)
    return scores

"""Heads by their weights alone: OV copying eigenvalues and the K-composition trace (Olsson et al. 2022), which earlier
heads feed a head's keys, and the tokens that a head raises and lowers when it attends to a token.

Traces and eigenvalues are of (n_vocab, n_vocab) matrices of rank d_head, so they are taken on the d_head side. Norms
are folded in; rotary positions are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from engine.architecture.family import family_of
from engine.heads.attention import Head
from engine.measurement import Measurement, Workload, known_value, single
from engine.models.loading import Loaded
from engine.models.session import Target
from engine.models.weights import (
    attention_norm,
    attention_weights,
    embedding,
    folded,
    normed,
    unembedding,
    written_weights,
)
from engine.pieces import Measuring, Piece
from engine.progress import Progress
from engine.questions.encoding import pack_strings, tokenized, unpack_strings
from engine.records import Record, canonical_key
from engine.texts.passages import checked, text_digest
from engine.timing.workload import CHARACTERS_A_TOKEN

if TYPE_CHECKING:
    from torch import Tensor

N_RANDOM = 6  # random heads on either side; all pairs are used
MOST_TOKENS = 256  # distinct ones of a text
N_LISTED = 10
ROWS = 128  # tokens whose rows are held at once
_EXTREMES = ("raised_ids", "raised", "lowered_ids", "lowered")


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
            read = normed(loaded, attention_norm(loaded, layer), tokens)
            small = written_weights(loaded, layer) @ read.to(value.device) @ value  # (H, d_head, d_head)
            found = torch.linalg.eigvals(small.cpu().double()).numpy()
            scores[layer] = found.real.sum(1) / np.maximum(np.abs(found).sum(1), 1e-30)
    return scores


def has_trace(target: Target) -> bool:
    """Whether QK traces say anything: not if queries and keys are divided by their norms, one number a position that
    weights alone do not give, and that makes the size of a trace arbitrary."""
    return not family_of(target.identity.config).qk_norms


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
            query, key, value = (folded(loaded, norm, weight.mT).mT for weight in attention_weights(loaded, layer))
            if layer:
                from_tokens = written.T @ tokens @ query.to(tokens.device)  # (H, d_model, d_head)
                scores[layer] = (from_tokens * key.to(tokens.device)).sum((1, 2)).cpu().numpy()
            weight = torch.from_numpy(previous_token[layer]).to(value)
            through = value @ written_weights(loaded, layer).to(value.device)  # (H, d_model, d_model)
            written += (weight[:, None, None] * through).sum(0).to(written.device)
    return scores


@dataclass(frozen=True)
class Feeding:
    """Two numbers for each earlier head, (earlier layers, H).

    trace: the QK trace, of W_E W_Q (W_E W_V W_O W_K)^T over the vocabulary, without a unit: large if the earlier head's
        output for a token matches this head's query for the same token (Olsson et al. 2022). Multiplied by the earlier
        head's previous-token score, it is that head's share of the QK trace among the induction scores. nan if queries
        and keys are normed
    composition: K-composition, 0 to 1, how much of the earlier head's output the keys read, |W_Q W_K^T (W_V W_O)^T| /
        (|W_Q W_K^T| |W_V W_O|) in Frobenius norms (Elhage et al. 2021)
    random: (n,) the composition of pairs of random heads of the same shapes
    """

    trace: np.ndarray
    composition: np.ndarray
    random: np.ndarray


def feeding(target: Target, head: Head) -> Measurement[Feeding]:
    """Returns the Feeding of `head`; empty in layer 0."""
    if not head[0]:
        none = np.zeros((0, target.shape.n_heads))
        return known_value(target.as_usual, ("feeding", head), Feeding(none, none, np.zeros(0)))
    # int8 weights are read by a pass over d_model rows
    rows = target.shape.d_model * (head[0] + 1) / target.shape.n_layers
    expected = partial(Workload, {"forward": CHARACTERS_A_TOKEN * rows})
    each = (head[0], target.shape.n_heads)
    shapes: dict[str, tuple[int | str, ...]] = {"trace": each, "composition": each, "random": ("n",)}
    key = canonical_key("head feeding", target.as_usual.key() | {"head": list(head)})
    piece = Piece(key, 1, shapes, partial(_fed, head=head))

    def value(record: Record) -> Feeding:
        found = Feeding(**record.arrays)
        return found if has_trace(target) else replace(found, trace=np.full_like(found.trace, np.nan))

    return single(target.as_usual, piece, value, expected)


def _fed(loaded: Loaded, head: Head) -> Measuring:
    import torch

    (layer, number), shape = head, loaded.identity.shape
    trace, composed = np.zeros((2, layer, shape.n_heads))
    yield Progress(0, layer, message="weights")
    with torch.inference_mode():
        rows = embedding(loaded)
        tokens = rows.T @ rows  # (d_model, d_model)
        norm = attention_norm(loaded, layer)
        query, key, _ = (folded(loaded, norm, weight[number].T).T.to(tokens.device)
                         for weight in attention_weights(loaded, layer))  # fmt: skip
        sought = tokens @ query  # (d_model, d_head)
        for earlier in range(layer):
            _, _, value = attention_weights(loaded, earlier)
            before = attention_norm(loaded, earlier)
            value = folded(loaded, before, value.mT).mT.to(tokens.device)  # (H, d_model, d_head)
            output = written_weights(loaded, earlier).to(tokens.device).mT  # (H, d_model, d_head)
            trace[earlier] = ((value.mT @ sought) * (output.mT @ key)).sum((1, 2)).cpu().numpy()
            composed[earlier] = _composition(query, key, value, output).cpu().numpy()
            yield Progress(earlier + 1, layer, message="weights")
        generator = torch.Generator().manual_seed(0)
        drawn = torch.randn(4, N_RANDOM, shape.d_model, shape.d_head, generator=generator)
        random = [_composition(drawn[0, at], drawn[1, at], drawn[2], drawn[3]) for at in range(N_RANDOM)]
    arrays = {"trace": trace, "composition": composed, "random": torch.cat(random).double().cpu().numpy()}
    return arrays, {"kind": "head feeding", "head": f"L{layer}H{number}"}


def _composition(query: Tensor, key: Tensor, value: Tensor, output: Tensor) -> Tensor:
    """(H,): K-composition of one head with each of H others; `query` and `key` (d_model, d_head), `value` and `output`
    (H, d_model, d_head). On the d_head side: |A M B^T|^2 is the trace of M^T (A^T A) M (B^T B)."""
    queries, keys = query.T @ query, key.T @ key
    values, outputs = value.mT @ value, output.mT @ output  # (H, d_head, d_head)
    middle = key.T @ output  # (H, d_head, d_head): W_K^T W_O^T
    joint = ((queries @ middle @ values) * middle).sum((1, 2))
    alone = (queries * keys).sum() * (values * outputs).sum((1, 2))
    return (joint / alone.clamp_min(1e-30)).clamp_min(0).sqrt()


@dataclass(frozen=True)
class OvTokens:
    """The tokens that a head raises and lowers for each of the n distinct tokens of a text, in order of appearance.
    Values are in standard deviations of a token's row.

    token_ids: (n,)
    own: (n,) how much each token raises itself
    own_rank: (n,) its rank in its own row; 1 if it raises no other token more
    raised_ids, raised: (n, 10) the tokens raised most, and by how much
    lowered_ids, lowered: (n, 10) the tokens lowered most, and by how much
    strings: the text of each token id
    """

    token_ids: np.ndarray
    own: np.ndarray
    own_rank: np.ndarray
    raised_ids: np.ndarray
    raised: np.ndarray
    lowered_ids: np.ndarray
    lowered: np.ndarray
    strings: Mapping[int, str]

    @property
    def copied(self) -> float:
        """The share of tokens that are among the ten that they raise most."""
        return float((self.own_rank <= N_LISTED).mean())


def ov_tokens(target: Target, text: str, head: Head) -> Measurement[OvTokens]:
    """Returns the OvTokens of the first 256 distinct tokens of a text. HeadroomError: the text is empty."""
    text, expected = checked(text), partial(Workload, {"forward": float(len(text))})
    key = canonical_key("head ov", target.as_usual.key() | {"text": text_digest(text), "head": list(head)})
    shapes: dict[str, tuple[int | str, ...]] = dict.fromkeys(("token_ids", "own", "own_rank"), ("n",))
    shapes |= dict.fromkeys(("raised_ids", "raised", "lowered_ids", "lowered"), ("n", "k"))
    measure = partial(_tokens_measured, text=text, head=head)
    piece = Piece(key, 1, shapes | {"strings": ("bytes",)}, measure, reads=_as_tokens)
    return single(target.as_usual, piece, _as_tokens, expected)


def circuit_rows(loaded: Loaded, head: Head, token_ids: Tensor) -> Tensor:
    """Returns (n, n_vocab): rows of the full OV circuit W_E W_V W_O W_U (Elhage et al. 2021), with the attention's norm
    and the final norm folded in; positions and the output of other layers are left out. Each is standardized over the
    vocabulary (its mean 0, its standard deviation 1), so the scales of the norms do not matter."""
    layer, number = head
    _, _, value = attention_weights(loaded, layer)
    read = normed(loaded, attention_norm(loaded, layer), embedding(loaded, token_ids)).to(value.device)
    rows = read @ value[number] @ written_weights(loaded, layer)[number].to(value.device)
    rows = rows @ unembedding(loaded).to(value.device).T
    rows = rows - rows.mean(-1, keepdim=True)
    return rows / rows.square().mean(-1, keepdim=True).sqrt().clamp_min(1e-30)


def _tokens_measured(loaded: Loaded, text: str, head: Head) -> Measuring:
    import torch

    yield Progress(0, 1, message="weights")
    ids, _ = tokenized(text, loaded.tokenizer)
    distinct = np.array(list(dict.fromkeys(ids.tolist()))[:MOST_TOKENS], np.int64)
    device = loaded.model.get_input_embeddings().weight.device
    parts: dict[str, list[np.ndarray]] = {name: [] for name in ("own", "own_rank", *_EXTREMES)}
    with torch.inference_mode():
        for first in range(0, len(distinct), ROWS):
            tokens = torch.from_numpy(distinct[first : first + ROWS]).to(device)
            rows = circuit_rows(loaded, head, tokens)
            own = rows.gather(1, tokens[:, None].to(rows.device))
            count = min(N_LISTED, rows.shape[1])
            high, low = rows.topk(count), rows.topk(count, largest=False)
            values = (own[:, 0], 1 + (rows > own).sum(1), high.indices, high.values, low.indices, low.values)
            for part, value in zip(parts.values(), values, strict=True):
                part.append(value.cpu().numpy())
    arrays = {name: np.concatenate(part) for name, part in parts.items()}
    shown = np.concatenate([distinct, arrays["raised_ids"].ravel(), arrays["lowered_ids"].ravel()])
    arrays["strings"] = pack_strings(shown, loaded.tokenizer)
    layer, number = head
    return arrays | {"token_ids": distinct}, {"kind": "head ov", "head": f"L{layer}H{number}"}


def _as_tokens(record: Record) -> OvTokens:
    arrays = dict(record.arrays)
    return OvTokens(strings=unpack_strings(arrays.pop("strings")), **arrays)

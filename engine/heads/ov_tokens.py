"""The tokens that a head raises and lowers when it attends to a token, by its weights alone.

These are rows of the full OV circuit W_E W_V W_O W_U (Elhage et al. 2021), with the attention's norm and the final norm
folded in; positions and the output of other layers are left out. Each row is standardized over the vocabulary (its mean
0, its standard deviation 1), so the scales of the norms do not matter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from engine.heads.attention import Head
from engine.measurement import Measurement, Workload, single
from engine.models.loading import Loaded
from engine.models.session import Target
from engine.models.weights import attention_norm, attention_weights, embedding, normed, output_weights, unembedding
from engine.pieces import Measuring, Piece
from engine.progress import Progress
from engine.questions.tokens import tokenized
from engine.records import Record, canonical_key
from engine.texts.passages import checked, text_digest

if TYPE_CHECKING:
    from torch import Tensor

MOST_TOKENS = 256  # distinct ones of a text
N_LISTED = 10
ROWS = 128  # tokens whose rows are held at once


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
    expected = partial(Workload, {"forward": float(len(text))})
    return single(target.as_usual, _piece(target, checked(text), head), _of, expected)


def circuit_rows(loaded: Loaded, head: Head, token_ids: Tensor) -> Tensor:
    """Returns (n, n_vocab): standardized rows of the OV circuit."""
    layer, number = head
    _, _, value = attention_weights(loaded, layer)
    read = normed(attention_norm(loaded, layer), embedding(loaded, token_ids)).to(value.device)
    rows = read @ value[number] @ output_weights(loaded, layer)[number].to(value.device)
    rows = rows @ unembedding(loaded).to(value.device).T
    rows = rows - rows.mean(-1, keepdim=True)
    return rows / rows.square().mean(-1, keepdim=True).sqrt().clamp_min(1e-30)


def _piece(target: Target, text: str, head: Head) -> Piece:
    key = canonical_key("head ov", target.as_usual.key() | {"text": text_digest(text), "head": list(head)})
    shapes: dict[str, tuple[int | str, ...]] = dict.fromkeys(("token_ids", "own", "own_rank"), ("n",))
    shapes |= dict.fromkeys(("raised_ids", "raised", "lowered_ids", "lowered"), ("n", "k"))
    return Piece(key, 1, shapes | {"strings": ("bytes",)}, partial(_measured, text=text, head=head), reads=_of)


def _measured(loaded: Loaded, text: str, head: Head) -> Measuring:
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
    shown = sorted(
        {*distinct.tolist(), *arrays["raised_ids"].ravel().tolist(), *arrays["lowered_ids"].ravel().tolist()}
    )
    strings = dict(zip(shown, loaded.tokenizer.batch_decode([[each] for each in shown]), strict=True))
    arrays["strings"] = np.frombuffer(json.dumps(strings).encode(), np.uint8)
    layer, number = head
    return arrays | {"token_ids": distinct}, {"kind": "head ov", "head": f"L{layer}H{number}"}


_EXTREMES = ("raised_ids", "raised", "lowered_ids", "lowered")


def _of(record: Record) -> OvTokens:
    arrays = dict(record.arrays)
    strings = json.loads(arrays.pop("strings").tobytes())
    return OvTokens(**arrays, strings={int(token): words for token, words in strings.items()})

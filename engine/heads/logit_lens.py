"""The logit lens (nostalgebraist 2020): the next token that a model would guess after each of its layers.

The residual stream after a layer is read by the final norm and the unembedding, as if all later layers were left out.
Probabilities are those of the whole vocabulary, after a cap of the logits (Gemma 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.accuracy.restarts import kept
from engine.accuracy.scoring import hidden_of, logits_of
from engine.errors import HeadroomError
from engine.heads.attention import AttendedText
from engine.measurement import Measurement, single
from engine.models.loading import Loaded
from engine.models.masks import Mask, pruned
from engine.models.session import Target
from engine.pieces import Measuring, Piece
from engine.placement.accelerate_internals import onloaded
from engine.placement.needs import READ_POSITIONS
from engine.progress import Progress
from engine.questions.encoding import pack_strings, read_within, unpack_strings
from engine.records import Record, canonical_key
from engine.texts.passages import checked, text_digest
from engine.timing.workload import CHARACTERS_A_TOKEN

if TYPE_CHECKING:
    from torch import Tensor

MAX_TOKENS = 256  # with BOS; a longer text is cut after this many
N_GUESSES = 5
MOST_ROWS, MOST_LOGITS = 512, 2**25  # positions, of any layer, that are read at once: products of few are slow
MOST_FP32 = 2**28  # weights of an unembedding that are turned from bf16 to fp32: once, not again for each layer


@dataclass(frozen=True)
class LogitLens(AttendedText):
    """The guesses at each of T tokens: before the first layer, and after each of L layers.

    n_left_out: tokens at the end that did not fit
    guess_ids: (L + 1, T, N_GUESSES) the likeliest next tokens, the likeliest first
    guess_p: (L + 1, T, N_GUESSES) their probabilities
    next_p: (L + 1, T) the probability of the actual next token; nan for the last token, which has none
    next_rank: (L + 1, T) its rank among all tokens, 1 = the likeliest; 0 for the last token
    guesses: the text of each token of `guess_ids`
    """

    n_left_out: int
    guess_ids: np.ndarray
    guess_p: np.ndarray
    next_p: np.ndarray
    next_rank: np.ndarray
    guesses: dict[int, str]

    @property
    def names(self) -> list[str]:
        """The names of the L + 1 rows: "start" before the first layer, then the number of the layer before."""
        return ["start", *(str(layer) for layer in range(len(self.next_p) - 1))]


def logit_lens(target: Target, text: str, mask: Mask) -> Measurement[LogitLens]:
    """Returns the LogitLens of a text under a mask. HeadroomError: the text is empty, or a single token."""
    text, shape = checked(text), target.shape
    rows, guesses = (shape.n_layers + 1, "T"), (shape.n_layers + 1, "T", N_GUESSES)
    shapes: dict[str, tuple[int | str, ...]] = {"token_ids": ("T",), "ends": ("n",), "n_left_out": ()}
    shapes |= {"guess_ids": guesses, "guess_p": guesses, "next_p": rows, "next_rank": rows}
    shapes |= {"strings": ("bytes",)}
    in_fp32 = target.spec.precision == "bf16" and shape.n_vocab * shape.d_model <= MOST_FP32
    about = {"lens": "final norm", "guesses": N_GUESSES, "mask": mask.key(), "text": text_digest(text)}
    about |= {"unembedding": "fp32"} if in_fp32 else {}
    key, value = canonical_key("logit lens", target.key() | about), partial(_as_lens, text)
    # every layer is read by the unembedding too
    times = 1 + shape.n_layers * shape.d_model * shape.n_vocab / max(1, target.identity.n_params)
    n_characters = min(len(text), MAX_TOKENS * CHARACTERS_A_TOKEN)
    measure = partial(_measured, text=text, mask=mask, bos=target.bos, in_fp32=in_fp32)
    return single(target, Piece(key, 1, shapes, measure, lambda: n_characters * times, "forward", value), value)


def _measured(loaded: Loaded, text: str, mask: Mask, bos: bool, in_fp32: bool) -> Measuring:
    import torch

    n_layers, tokenizer = loaded.identity.shape.n_layers, loaded.tokenizer
    reading = read_within(text, tokenizer, bos, min(MAX_TOKENS, loaded.identity.shape.n_ctx))
    if len(reading.inputs) < 2:
        raise HeadroomError(f"the text {text[:40]!r} is a single token, and a guess needs two; take a longer text")
    yield Progress(0, 1, message="logit lens", share=0.0)
    arrays: dict[str, Any] = {"token_ids": reading.inputs, "ends": reading.ends}
    arrays["n_left_out"] = np.array(reading.n_left_out)
    tokens, found = torch.from_numpy(reading.inputs.astype(np.int64)), list[dict[str, np.ndarray]]()
    n_rows = max(READ_POSITIONS, min(MOST_ROWS, MOST_LOGITS // loaded.identity.shape.n_vocab))
    with torch.inference_mode(), pruned(loaded, mask), kept(loaded, {*range(n_layers)}) as streams:
        last = hidden_of(loaded, tokens[None].to(loaded.model.get_input_embeddings().weight.device))[0]
    head = loaded.model.get_output_embeddings()
    with torch.inference_mode(), onloaded(head):
        weights = head.weight.float() if in_fp32 else None
        layers = [read_by_final_norm(loaded, streams.pop(layer)[0]) for layer in range(n_layers)]
        hidden, following = torch.cat([*layers, last]), tokens.roll(-1).repeat(n_layers + 1)  # of the last token: any
    for start in range(0, len(hidden), n_rows):
        which = slice(start, start + n_rows)
        with torch.inference_mode():
            found.append(_guessed(loaded, hidden[which], following[which], weights))
        yield Progress(0, 1, message="logit lens", share=min(1.0, which.stop / len(hidden)))
    for name in found[0]:
        of_all = np.concatenate([each[name] for each in found])
        arrays[name] = of_all.reshape(n_layers + 1, len(tokens), *of_all.shape[1:])
    arrays["next_p"][:, -1], arrays["next_rank"][:, -1] = np.nan, 0
    arrays["strings"] = pack_strings(arrays["guess_ids"], tokenizer)
    return arrays, {"kind": "logit lens", "mask": mask.text()}


def read_by_final_norm(loaded: Loaded, stream: Tensor) -> Tensor:
    """Returns the residual stream (T, d_model) as the unembedding would get it if no layer followed."""
    family, model = loaded.family, loaded.model
    for module in (family.final_norm(model), family.projection(model, "project_out")):
        stream = stream if module is None else module(stream)
    return stream


def _guessed(loaded: Loaded, hidden: Tensor, following: Tensor, weights: Tensor | None) -> dict[str, np.ndarray]:
    """Returns the arrays of some positions; `hidden` (n, d_model): the unembedding's input, `following` (n,): the next
    tokens, `weights`: those of the unembedding in fp32."""
    logits = logits_of(loaded, hidden, weights=weights).float()
    largest, own = logits.topk(N_GUESSES), logits.gather(1, following.to(logits.device)[:, None])
    rank, most = 1 + (logits > own).sum(-1), largest.values[:, :1]
    total = logits.sub_(most).exp_().sum(-1, keepdim=True)  # in place: a copy takes as long as the product
    found = {
        "guess_ids": largest.indices,
        "guess_p": (largest.values - most).exp() / total,
        "next_p": ((own - most).exp() / total)[:, 0],
        "next_rank": rank,
    }
    return {name: each.cpu().numpy().astype(np.float32 if name.endswith("_p") else np.int32)
            for name, each in found.items()}  # fmt: skip


def _as_lens(text: str, record: Record) -> LogitLens:
    arrays: dict[str, Any] = {**record.arrays, "n_left_out": int(record.arrays["n_left_out"])}
    guesses = unpack_strings(arrays.pop("strings"))
    return LogitLens(text, **arrays, guesses=guesses)

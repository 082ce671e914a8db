"""The likeliest next tokens after a prompt, and a short continuation, under any mask.

Sampling uses Gumbel noise (the largest of log p / temperature + noise is a draw from the softmax), seeded by the step
alone, so that continuations under two masks with the same seed differ only where the models differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.accuracy.scoring import next_logits
from engine.errors import HeadroomError, UsageError
from engine.measurement import Measurement, Workload, single
from engine.models.added_vector import AddedVector, adding, vector_field
from engine.models.loading import Loaded
from engine.models.masks import Mask, pruned
from engine.models.session import Target
from engine.pieces import Measuring, Piece
from engine.progress import Progress
from engine.questions.encoding import read
from engine.records import Record, canonical_key, pack_json, unpack_json
from engine.texts.passages import chat_field, checked, text_digest
from engine.timing.workload import CHARACTERS_A_TOKEN

if TYPE_CHECKING:
    from torch import Tensor

N_LIKELIEST = 10
MOST_TOKENS, MOST_PERMILLE = 256, 2000


@dataclass(frozen=True)
class How:
    """Settings of a continuation: at most `n_tokens`, each the likeliest (`temperature_permille` 0) or drawn with this
    `seed` at this temperature in thousandths."""

    n_tokens: int = 32
    temperature_permille: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.n_tokens <= MOST_TOKENS:
            raise UsageError(f"cannot generate {self.n_tokens} tokens; choose 1 to {MOST_TOKENS}")
        if not 0 <= self.temperature_permille <= MOST_PERMILLE:
            raise UsageError(f"temperature {self.temperature_permille / 1000:g} is out of range; choose 0 (the "
                             f"likeliest token) to {MOST_PERMILLE / 1000:g}")  # fmt: skip


@dataclass(frozen=True)
class Continuation:
    """The continuation of a prompt so far: `token_ids` (n,) and their `log_p` (n,) in nats, at temperature 1 whatever
    the setting; `pieces` of text, which joined are the continuation ("" for the first bytes of a character that takes
    several tokens); `ended`: what ended it, the model's end token or its window."""

    token_ids: np.ndarray
    log_p: np.ndarray
    pieces: tuple[str, ...]
    ended: str = ""

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass(frozen=True)
class NextTokens:
    """The likeliest next tokens under several masks, in the order of the first: `token_ids` (m,), their text, and
    `log_p` (mask, m) in nats."""

    token_ids: np.ndarray
    strings: tuple[str, ...]
    log_p: np.ndarray


def continuation(
    target: Target, prompt: str, mask: Mask, how: How, is_chat: bool = False, added: AddedVector | None = None
) -> Measurement[Continuation]:
    """Returns the Continuation of a prompt, token by token; it is stored when complete. `is_chat`: a chat template
    rendered the prompt (`engine.texts.passages.as_chat`), so special tokens in it are special. `added`: a vector for
    the last token of the prompt, which generated tokens attend to but do not get. HeadroomError: an empty prompt, or
    one that does not fit the model's window."""
    prompt = checked(prompt, "the prompt")
    expected = partial(Workload, {"forward": len(prompt) + CHARACTERS_A_TOKEN * how.n_tokens})
    fields = {"text": text_digest(prompt), "mask": mask.key(), "ablation": "zero", **asdict(how)} | chat_field(is_chat)
    key = canonical_key("continuation", target.key() | fields | vector_field(added))
    shapes = {"token_ids": ("n",), "log_p": ("n",), "json": ("bytes",)}
    measure = partial(_continued, bos=target.bos, prompt=prompt, mask=mask, how=how, is_chat=is_chat, added=added)
    return single(target, Piece(key, how.n_tokens, shapes, measure, reads=_joined), _joined, expected)


def next_tokens(
    target: Target, prompt: str, masks: Sequence[Mask], is_chat: bool = False, added: AddedVector | None = None
) -> Measurement[NextTokens]:
    """Returns the N_LIKELIEST next tokens under each mask, and with an `added` vector then also those under the last
    mask with it. HeadroomError: as for `continuation`."""
    prompt, n = checked(prompt, "the prompt"), len(masks) + (added is not None)
    expected = partial(Workload, {"forward": float(len(prompt) * n)})
    fields = {"text": text_digest(prompt), "masks": [mask.key() for mask in masks], "ablation": "zero"}
    fields |= chat_field(is_chat) | vector_field(added)
    key = canonical_key("nexttokens", target.key() | fields | {"likeliest": N_LIKELIEST})
    shapes: dict[str, tuple[int | str, ...]] = {"token_ids": ("m",), "log_p": (n, "m"), "json": ("bytes",)}
    measure = partial(_compared, bos=target.bos, prompt=prompt, masks=tuple(masks), is_chat=is_chat, added=added)
    return single(target, Piece(key, n, shapes, measure, reads=_likeliest), _likeliest, expected)


def chosen(log_p: np.ndarray, how: How, step: int) -> int:
    """Returns the next token, given log-probabilities (V,) in nats: the likeliest, or a seeded draw."""
    if not how.temperature_permille:
        return int(log_p.argmax())
    noise = np.random.default_rng((how.seed, step)).gumbel(size=len(log_p))
    return int((log_p * (1000 / how.temperature_permille) + noise).argmax())


def _continued(
    loaded: Loaded, bos: bool, prompt: str, mask: Mask, how: How, is_chat: bool, added: AddedVector | None
) -> Measuring:
    import torch
    from transformers import DynamicCache

    ids, tokenizer = prompt_ids(loaded, prompt, bos, is_chat), loaded.tokenizer
    room = loaded.identity.shape.n_ctx - len(ids)
    kept, token_ids, log_ps, strings, ended = DynamicCache(), list[int](), list[float](), list[str](), ""
    front, text = len(_decoded(tokenizer, ids)), ""
    vector = None if added is None else added.in_model(loaded)  # of the full model
    with torch.inference_mode(), pruned(loaded, mask):
        for step in range(how.n_tokens):
            read_now = ids if not token_ids else token_ids[-1:]
            with _with_vector(loaded, vector if step == 0 else None, ids):
                log_p = _log_p(loaded, read_now, kept, len(ids) + len(token_ids) - len(read_now))
            token = chosen(log_p, how, step)
            token_ids, log_ps = [*token_ids, token], [*log_ps, float(log_p[token])]
            ended = "its end token" if token == tokenizer.eos_token_id else "" if step + 1 < room else "its window"
            whole = text if token == tokenizer.eos_token_id else _decoded(tokenizer, [*ids, *token_ids])[front:]
            if not ended and step + 1 < how.n_tokens:
                whole = whole.rstrip("\ufffd")  # an incomplete character
            strings, text = [*strings, whole[len(text) :]], max(text, whole, key=len)
            arrays = {"token_ids": np.array(token_ids, np.int32), "log_p": np.array(log_ps, np.float32)}
            yield Progress(step + 1, how.n_tokens, Continuation(**arrays, pieces=tuple(strings), ended=ended))
            if ended:
                break
    arrays["json"] = pack_json({"pieces": strings, "ended": ended})
    return arrays, {"kind": "continuation", "mask": mask.text(), **asdict(how), **vector_field(added)}


def _with_vector(loaded: Loaded, vector: tuple[int, Tensor] | None, ids: Sequence[int]) -> AbstractContextManager[None]:
    """Context in which a pass over these tokens has the vector, if any, added at the last one."""
    return nullcontext() if vector is None else adding(loaded, *vector, [len(ids) - 1])


def _compared(
    loaded: Loaded, bos: bool, prompt: str, masks: Sequence[Mask], is_chat: bool, added: AddedVector | None
) -> Measuring:
    import torch

    ids, rows = prompt_ids(loaded, prompt, bos, is_chat), []
    changes = [(mask, None) for mask in masks]
    changes += [] if added is None else [(masks[-1], added.in_model(loaded))]
    for number, (mask, vector) in enumerate(changes):
        with torch.inference_mode(), pruned(loaded, mask), _with_vector(loaded, vector, ids):
            rows.append(_log_p(loaded, ids))
        yield Progress(number + 1, len(changes))
    many = min(N_LIKELIEST, len(rows[0]))
    token_ids = sorted({int(token) for row in rows for token in np.argsort(-row, kind="stable")[:many]},
                       key=lambda token: -rows[0][token])  # fmt: skip
    strings = loaded.tokenizer.batch_decode([[token] for token in token_ids])
    arrays = {"token_ids": np.array(token_ids, np.int32), "log_p": np.stack(rows)[:, token_ids].astype(np.float32)}
    return arrays | {"json": pack_json(strings)}, {
        "kind": "nexttokens",
        "masks": [mask.text() for mask in masks],
        **vector_field(added),
    }


def prompt_ids(loaded: Loaded, prompt: str, bos: bool, is_chat: bool) -> list[int]:
    """Returns the prompt's tokens, with BOS first if it is on. HeadroomError: the window has no room for another
    token."""
    n_ctx = loaded.identity.shape.n_ctx
    reading = read(prompt, loaded.tokenizer, bos, n_ctx, is_chat)
    if len(reading.inputs) + reading.n_left_out >= n_ctx:
        n = len(reading.inputs) + reading.n_left_out
        raise HeadroomError(f"the prompt has {n:,} tokens and the model reads {n_ctx:,} at once; shorten it")
    return reading.inputs.tolist()


def _decoded(tokenizer: Any, ids: Sequence[int]) -> str:
    return tokenizer.decode(ids, clean_up_tokenization_spaces=False)


def _log_p(loaded: Loaded, ids: Sequence[int], kept: Any = None, first: int = 0) -> np.ndarray:
    """Returns (V,) log-probabilities in nats of the token after `ids`, float64, as for `next_logits`."""
    return next_logits(loaded, ids, kept, first).double().log_softmax(-1).cpu().numpy()


def _joined(record: Record) -> Continuation:
    about = unpack_json(record.arrays["json"])
    return Continuation(record.arrays["token_ids"], record.arrays["log_p"], tuple(about["pieces"]), about["ended"])


def _likeliest(record: Record) -> NextTokens:
    strings = tuple(unpack_json(record.arrays["json"]))
    return NextTokens(record.arrays["token_ids"], strings, record.arrays["log_p"])

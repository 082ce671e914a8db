"""A text as tokens: what stands in front of it, its tokens and where they end, and the text of each."""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from engine.errors import HeadroomError


@dataclass(frozen=True)
class TokenizedText:
    """A text as a model reads it: `inputs` (T,) token ids, `n_front` of them before the text (BOS or none); `ends` of
    the text's tokens among them, in characters; `n_left_out` tokens behind did not fit."""

    inputs: np.ndarray
    n_front: int
    ends: np.ndarray
    n_left_out: int


def beginning(tokenizer: Any, default: int | None = None) -> int:
    """The token in front of a sequence: BOS, or what a tokenizer without one has instead; HeadroomError where it has
    neither and there is no `default`."""
    for token in (tokenizer.bos_token_id, tokenizer.eos_token_id, default):
        if token is not None:
            return token
    raise HeadroomError("the tokenizer has neither a beginning nor an end token; choose BOS off in the sidebar, or use "
                        "the model's own tokenizer files")  # fmt: skip


def tokenized(text: str, tokenizer: Any) -> tuple[np.ndarray, np.ndarray]:
    """(token ids, where each ends in characters), without BOS. What looks like a special token is plain text."""
    plain = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
    found = tokenizer(text, return_offsets_mapping=True, **plain)
    if not found.input_ids:
        raise HeadroomError(f"the tokenizer finds no token in {text[:40]!r}; take another text")
    ends = np.maximum.accumulate([end for _, end in found.offset_mapping]).astype(np.int32)
    ends[-1] = len(text)
    return np.array(found.input_ids, np.int32), ends


def read(text: str, tokenizer: Any, bos: bool, most: int) -> TokenizedText:
    """The text with its beginning in front where `bos` is on, cut behind at `most` tokens of its own."""
    ids, ends = tokenized(text, tokenizer)
    return replace(with_beginning(ids[:most], ends[:most], tokenizer, bos), n_left_out=max(0, len(ids) - most))


def with_beginning(ids: np.ndarray, ends: np.ndarray, tokenizer: Any, bos: bool) -> TokenizedText:
    """Tokens of a text that end there, with its beginning in front where `bos` is on."""
    front = np.array([beginning(tokenizer)] if bos else [], np.int32)
    return TokenizedText(np.concatenate([front, ids]), len(front), ends, 0)


def pieces_at(text: str, ends: np.ndarray) -> list[str]:
    """The text between one end and the next; together they are the text up to the last one."""
    return [text[start:stop] for start, stop in pairwise([0, *ends.tolist()])]

"""Questions as tokens: each choice encoded exactly as lm-evaluation-harness does it, then packed one row a question. A
text as tokens: what stands in front of it, its tokens and where they end, and the text of each.

A packed row holds the shared beginning of all choices once (the trunk) and each choice's remainder as a branch that
sees the trunk and itself only. Choices that share too little get a row each. How questions are packed depends on
nothing but the questions, so that the same call gives the same numbers in int8 and bf16 too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from os.path import commonprefix
from typing import Any

import numpy as np

from engine.checkpoints.tokenizer import ROWS, prefix_token, tokens_in_front
from engine.errors import HeadroomError
from engine.questions.faults import BadChoices, RowFault, clipped
from engine.questions.rendering import Question
from engine.records import pack_json, unpack_json

BATCH_TOKENS = 2048  # padded tokens a forward pass; part of the numbers in int8 and bf16, see records.SCHEMA
PASS_TOKENS = 256  # padded tokens that are worth a forward pass of their own
JOINED_TOKENS = 512  # tokens from which more in one pass make it no faster a token
MIN_LENGTH = 0.8  # of the longest row in a group: padding costs as much as tokens
ROW_TOKENS = 2048  # longest packed row, unless one choice alone is longer
NO_EMBEDDING = "a token has no row in the model's embedding"
IN_FRONT, OTHER_FILES = "what stands in front of a text", "use the model's own tokenizer files"
TAKE_OUT = "take it out of the text"
MIN_SHARED = 0.25  # trunk / mean input length below which packing costs more attention than it saves


@dataclass(frozen=True)
class Encoded:
    """One choice of one question: `inputs` (T,) and the continuation's tokens `targets`, predicted at the last inputs.

    `n_cut` context tokens were dropped on the left because the model's window is shorter.
    """

    question: int
    choice: int
    inputs: tuple[int, ...]
    targets: tuple[int, ...]
    n_cut: int


@dataclass(frozen=True)
class Row:
    """One row of a forward pass. `branch` 0 is the trunk; `read` holds (index in `choices`, row position, target)."""

    choices: tuple[Encoded, ...]
    tokens: tuple[int, ...]
    positions: tuple[int, ...]
    branch: tuple[int, ...]
    read: tuple[tuple[int, int, int], ...]


def encode_questions(questions: Sequence[Question], tokenizer: Any, bos: bool, n_ctx: int) -> list[list[Encoded]]:
    """Per question, per choice: the context's tokens, and behind as many those of the whole text, as in the harness.

    Blanks at the end of a context move to the continuation; contexts beyond `n_ctx` are cut on the left. With `bos`,
    the tokens of `front` stand in front, unless a context begins with the prefix token; an empty context is always that
    token. BadChoices names all questions of which a continuation has no token of its own (a merge across the join) or
    does not fit the window, or that have a token which the embedding lacks.
    """
    beginning, start = front(tokenizer, bos), prefix_token(tokenizer)
    starts = "" if start is None else tokenizer.decode([start])
    pairs = []
    for question in questions:
        for context, continuation in zip(question.contexts, question.continuations, strict=True):
            stripped = context.rstrip()
            pairs.append((stripped, context[len(stripped) :] + continuation))
    texts = list(dict.fromkeys(text for context, continuation in pairs for text in (context, context + continuation)))
    ids = dict(zip(texts, tokenizer(texts, add_special_tokens=False)["input_ids"], strict=True)) if texts else {}
    encoded, faults, flat = [], list[RowFault](), iter(pairs)
    for index, question in enumerate(questions):
        choices = []
        for choice in range(len(question.contexts)):
            context, continuation = next(flat)
            whole = ids[context + continuation]
            if question.contexts[choice] == "":
                first = [single_beginning(tokenizer) if start is None else start]
                refuse_unknown(first, tokenizer, IN_FRONT, OTHER_FILES)
                context_ids, target_ids = first, whole[1:] if whole[:1] == first else whole
            else:
                alone = ids[context]  # as the harness reads it, also if a merge crosses the join
                begins = start is not None and context.startswith(starts)
                context_ids, target_ids = ([] if begins else beginning) + alone, whole[len(alone) :]
            if (unknown := unknown_token(context_ids + target_ids, tokenizer)) is not None:
                faults.append(RowFault(question.doc_id, f"{NO_EMBEDDING}; {TAKE_OUT}", clipped(repr(unknown))))
            elif what := _fault(len(context_ids), len(target_ids), n_ctx):
                faults.append(RowFault(question.doc_id, what, clipped(repr(question.continuations[choice]))))
            n_cut = max(0, len(context_ids) + len(target_ids) - (n_ctx + 1))
            inputs = (context_ids + target_ids)[n_cut:-1]
            choices.append(Encoded(index, choice, tuple(inputs), tuple(target_ids), n_cut))
        encoded.append(choices)
    if faults:
        raise BadChoices(faults)
    return encoded


def _fault(n_context: int, n_target: int, n_ctx: int) -> str:
    """Why a choice of so many tokens behind so many cannot be scored; "" if it can."""
    if not n_context:
        return "the context of a choice has no token; write a text there, or prepend the beginning token"
    if not n_target:
        return "a choice has no token of its own after its context; change the text"
    return f"a choice has more tokens than the model's window of {n_ctx:,}; shorten it" if n_target > n_ctx else ""


def pack(choices: Sequence[Encoded]) -> list[Row]:
    """Rows for one question's choices: packed where they share enough, else a row a choice."""
    trunk = len(commonprefix([choice.inputs for choice in choices]))
    mean_length = sum(len(choice.inputs) for choice in choices) / len(choices)
    if trunk < MIN_SHARED * mean_length:
        return [_row([choice], len(choice.inputs)) for choice in choices]
    rows, held, length = [], [], trunk
    for choice in choices:
        extra = len(choice.inputs) - trunk
        if held and length + extra > ROW_TOKENS:
            rows.append(_row(held, trunk))
            held, length = [], trunk
        held.append(choice)
        length += extra
    return [*rows, _row(held, trunk)]


def batches(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows in groups for one forward pass each: longest first, at most BATCH_TOKENS padded tokens a group, and, once a
    group is worth a pass, none much shorter than its longest."""
    groups: list[list[Row]] = []
    longest = padded = 0  # tokens of the last group's first row, and of all its rows padded to that
    for row in sorted(rows, key=lambda row: -len(row.tokens)):
        alike = len(row.tokens) >= MIN_LENGTH * longest or padded < PASS_TOKENS
        if groups and alike and padded + longest <= BATCH_TOKENS:
            groups[-1].append(row)
        else:
            groups.append([row])
            longest, padded = len(row.tokens), 0
        padded += longest
    return groups


def joined(groups: Sequence[list[Row]]) -> list[list[list[Row]]]:
    """The groups, in order, as many together as share a forward pass: up to JOINED_TOKENS, or one alone."""
    together: list[list[list[Row]]] = []
    n_tokens = 0
    for group in groups:
        more = sum(len(row.tokens) for row in group)
        if together and n_tokens + more <= JOINED_TOKENS:
            together[-1].append(group)
        else:
            together.append([group])
            n_tokens = 0
        n_tokens += more
    return together


def _row(choices: Sequence[Encoded], trunk: int) -> Row:
    tokens, positions = list(choices[0].inputs[:trunk]), list(range(trunk))
    branch, read = [0] * trunk, []
    for number, choice in enumerate(choices):
        start, length, n_targets = len(tokens), len(choice.inputs), len(choice.targets)
        tokens += choice.inputs[trunk:]
        positions += range(trunk, length)
        branch += [number + 1] * (length - trunk)
        for target, position in zip(choice.targets, range(length - n_targets, length), strict=True):
            read.append((number, position if position < trunk else start + position - trunk, target))
    return Row(tuple(choices), tuple(tokens), tuple(positions), tuple(branch), tuple(read))


@dataclass(frozen=True)
class TokenizedText:
    """A text as a model reads it: `inputs` (T,) token ids, `n_front` of them before the text (see `front`); `ends` of
    the text's tokens among them, in characters; `n_left_out` tokens behind did not fit."""

    inputs: np.ndarray
    n_front: int
    ends: np.ndarray
    n_left_out: int


def front(tokenizer: Any, bos: bool) -> list[int]:
    """The tokens in front of a text where `bos` is on, else none: what the tokenizer itself puts there, or the one of
    `single_beginning`. HeadroomError: there is none, or the embedding lacks it."""
    found = (tokens_in_front(tokenizer) or [single_beginning(tokenizer)]) if bos else []
    refuse_unknown(found, tokenizer, IN_FRONT, "choose BOS off")
    return found


def single_beginning(tokenizer: Any, default: int | None = None) -> int:
    """The one token in front of a sequence that is not a text: the last that the tokenizer itself puts in front of one,
    else BOS or EOS, else `default`; HeadroomError where there is none of them."""
    known = tokens_in_front(tokenizer)
    token = known[-1] if known else prefix_token(tokenizer, default)
    if token is not None:
        refuse_unknown([token], tokenizer, IN_FRONT, OTHER_FILES)
        return token
    raise HeadroomError("the tokenizer has neither a beginning nor an end token to put in front; choose BOS off, give "
                        "every question a context, or use the model's own tokenizer files")  # fmt: skip


def unknown_token(ids: Sequence[int], tokenizer: Any) -> str | None:
    """The text of the first token without a row in the model's embedding; None if all have one. Tokens that were added
    to a tokenizer may have none, see `engine.checkpoints.validation.refuse_unknown_tokens`."""
    n_rows = getattr(tokenizer, ROWS, None)
    if n_rows is None or max(ids, default=0) < n_rows:
        return None
    return tokenizer.decode([next(token for token in ids if token >= n_rows)])


def refuse_unknown(ids: Sequence[int], tokenizer: Any, where: str, advice: str = TAKE_OUT) -> None:
    """HeadroomError, with the place, where tokens are not among the rows of the model's embedding."""
    if (unknown := unknown_token(ids, tokenizer)) is not None:
        raise HeadroomError(f"{where}: {NO_EMBEDDING}, {unknown[:40]!r}; {advice}")


def tokenized(text: str, tokenizer: Any, is_chat: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """(token ids, where each ends in characters), without BOS. In a chat, what looks like a special token is one; in
    any other text it is plain text."""
    plain = {"add_special_tokens": False, "split_special_tokens": not is_chat, "verbose": False}
    found = tokenizer(text, return_offsets_mapping=True, **plain)
    if not found.input_ids:
        raise HeadroomError(f"the tokenizer finds no token in {text[:40]!r}; take another text")
    refuse_unknown(found.input_ids, tokenizer, f"the text {text[:40]!r}")
    ends = np.maximum.accumulate([end for _, end in found.offset_mapping]).astype(np.int32)
    ends[-1] = len(text)
    return np.array(found.input_ids, np.int32), ends


def read(text: str, tokenizer: Any, bos: bool, most: int, is_chat: bool = False) -> TokenizedText:
    """The text with its beginning in front where `bos` is on, cut behind at `most` tokens of its own."""
    ids, ends = tokenized(text, tokenizer, is_chat)
    return replace(with_beginning(ids[:most], ends[:most], tokenizer, bos), n_left_out=max(0, len(ids) - most))


def read_within(text: str, tokenizer: Any, bos: bool, length: int) -> TokenizedText:
    """The same, cut at `length` tokens together with those in front."""
    return read(text, tokenizer, bos, length - len(front(tokenizer, bos)))


def with_beginning(ids: np.ndarray, ends: np.ndarray, tokenizer: Any, bos: bool) -> TokenizedText:
    """Tokens of a text that end there, with its beginning in front where `bos` is on."""
    before = np.array(front(tokenizer, bos), np.int32)
    return TokenizedText(np.concatenate([before, ids]), len(before), ends, 0)


def pack_strings(ids: np.ndarray, tokenizer: Any) -> np.ndarray:
    """(bytes,) the text of each distinct token id, as an array of a record."""
    shown = np.unique(ids).tolist()
    return pack_json(dict(zip(shown, tokenizer.batch_decode([[each] for each in shown]), strict=True)))


def unpack_strings(array: np.ndarray) -> dict[int, str]:
    """The texts that `pack_strings` packed, by token id."""
    return {int(token): text for token, text in unpack_json(array).items()}


def pieces_at(text: str, ends: np.ndarray) -> list[str]:
    """The text between one end and the next; together they are the text up to the last one."""
    return [text[start:stop] for start, stop in pairwise([0, *ends.tolist()])]

"""Questions as tokens, with all questions that a model cannot score named at once, by their rows in a user's file."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from engine.errors import HeadroomError
from engine.progress import may_stop
from engine.questions.encoding import Encoded, encode_questions
from engine.questions.faults import BadChoices, RowFault
from engine.questions.rendering import Question, Questions, render_questions
from engine.questions.rows import OwnFile
from engine.questions.tasks import SPLITS

AT_ONCE = 256  # questions encoded between two points at which work can stop


def encode_chunk(
    questions: Questions, chunk: Sequence[int], tokenizer: Any, bos: bool, n_ctx: int
) -> list[list[Encoded]]:
    """Returns what `encode_questions` does for a chunk of the questions. BadChoices names all questions for
    which it fails, or all rows of a user's file."""
    try:
        return encode_questions(questions.at(chunk), tokenizer, bos, n_ctx)
    except BadChoices as error:
        encoding, own = (tokenizer, bos, n_ctx), questions.rendered.own
        if own is None:
            raise BadChoices([*_faults(questions.at(questions.order[: questions.n]), *encoding)]) from error
        parts = [(questions.rendered.questions, own), *_other_splits(questions, own)]
        found = [replace(fault, row=of.rows[fault.row]) for asked, of in parts for fault in _faults(asked, *encoding)]
        raise BadChoices(sorted(found, key=lambda fault: fault.row), own.path) from error


def _other_splits(questions: Questions, own: OwnFile) -> Iterator[tuple[Sequence[Question], OwnFile]]:
    """The questions of the task's other splits that are from the same file."""
    for split in SPLITS:
        if split != questions.task.split:
            try:
                found = render_questions(replace(questions.task, split=split))
            except HeadroomError:  # such as too few rows for the examples: then these are not asked either
                continue
            if found.own is not None and found.own.path == own.path:
                yield found.questions, found.own


def _faults(questions: Sequence[Question], tokenizer: Any, bos: bool, n_ctx: int) -> Iterator[RowFault]:
    for start in range(0, len(questions), AT_ONCE):
        may_stop()
        try:
            encode_questions(questions[start : start + AT_ONCE], tokenizer, bos, n_ctx)
        except BadChoices as error:
            yield from error.faults

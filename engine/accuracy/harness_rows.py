"""The rows of a file that lm-evaluation-harness 0.4 wrote with `--log_samples`, whatever its version.

0.4.0 to 0.4.2 wrote one JSON list, with the arguments of a request as a list and answers as numbers; later versions
write one JSON object per line, with arguments as objects and answers as text. A row may have any mixture of these.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict, TypeVar

from cache.files import InvalidFile
from cache.typed_json import BOM, Count, convert, decode_json
from engine.errors import HeadroomError

HOW = "give a file samples_TASK_DATE.jsonl of lm-eval --log_samples, or its folder"
OTHER_TASK = "only logs of tasks with choices, or of a text's log-likelihood, can be compared"
NON_FINITE = re.compile(rb"\b(?:NaN|Infinity)\b")
SHOWN = 60  # characters of a value in an error
T = TypeVar("T")


class _Row(TypedDict):
    doc_id: Count
    arguments: dict[str, Any] | list[Any]
    filtered_resps: list[Any]
    resps: NotRequired[list[Any] | None]


class AskedChoice(NamedTuple):
    """A choice as the harness asked for it: the text before it, and its own."""

    context: str
    continuation: str


class ScoredChoice(NamedTuple):
    """The harness's answer to a request: its log-likelihood in nats, and whether greedy decoding gives it."""

    nats: float
    is_greedy: bool


class LoggedRow(NamedTuple):
    """The answers to one question: a request and its answer per choice."""

    doc_id: int
    requests: tuple[AskedChoice, ...]
    scores: tuple[ScoredChoice, ...]


class _Unusable(Exception):
    """A row cannot be compared: which field, what was found, what to do."""


def logged_rows(file: Path, raw: bytes) -> Iterator[LoggedRow]:
    """Yields the rows of a file. HeadroomError names the row, the field, and its value."""
    for where, row in _decoded_rows(file, raw):
        try:
            requests = _requests(row["arguments"])
            scores = _scores(row, len(requests))
            kept = _conditional(requests) if "acc_mutual_info" in row else range(len(requests))
        except _Unusable as error:
            raise HeadroomError(f"{where}: {error}") from error
        yield LoggedRow(row["doc_id"], tuple(requests[at] for at in kept), tuple(scores[at] for at in kept))


def _decoded_rows(file: Path, raw: bytes) -> Iterator[tuple[str, _Row]]:
    """Yields where a row is, and its fields: of a JSON list, or of one JSON object per line."""
    content = raw.removeprefix(BOM)
    if content.lstrip().startswith(b"["):
        for at, value in enumerate(_decoded(content, list[Any], str(file)), start=1):
            yield f"{file}, row {at}", _checked(value, f"{file}, row {at}")
        return
    for at, line in enumerate(content.split(b"\n"), start=1):
        if line.strip():
            where = f"{file}, line {at}"
            yield where, _checked(_decoded(line, dict[str, Any], where), where)


def _decoded(raw: bytes, kind: type[T], where: str) -> T:
    try:
        return decode_json(raw, kind, where)
    except InvalidFile as error:
        try:  # Python also writes NaN and infinities, which JSON does not have
            if NON_FINITE.search(raw):
                return convert(json.loads(raw), kind, where)
        except (ValueError, RecursionError, InvalidFile):
            pass
        raise HeadroomError(f"{error}; {HOW}") from error


def _checked(value: Any, where: str) -> Any:
    """Returns the row if it has the fields of one; all of its fields, as metrics are among them."""
    try:
        convert(value, _Row, where)
    except InvalidFile as error:
        raise HeadroomError(f"{error}; {HOW}") from error
    return value


def _requests(arguments: Mapping[str, Any] | Sequence[Any]) -> list[AskedChoice]:
    found = [_request(_in_order(each)) for each in _in_order(arguments) if each is not None]
    if not found:
        raise _Unusable(f"`arguments` is empty; {HOW}")
    return found


def _request(arguments: Any) -> AskedChoice:
    """Returns a request from its arguments, of which images and the like may follow."""
    match arguments:
        case [str(context), str(continuation), *_]:
            return AskedChoice(context, continuation)
        case [_, dict() as settings, *_]:
            raise _Unusable(f"the model generated text here (`arguments` has {_short(settings)}); {OTHER_TASK}")
        case [str()]:
            raise _Unusable(f"a whole text was scored here (`arguments` has one text per request); {OTHER_TASK}")
    raise _Unusable(f"`arguments` has {_short(arguments)}, expected the two texts of a choice; {HOW}")


def _in_order(values: Any) -> Any:
    """Returns the values of `gen_args_0`, `gen_args_1`, ... by number, as other tools sort names as text; or a list as
    it is."""
    if not isinstance(values, dict):
        return values
    return [values[name] for name in sorted(values, key=lambda name: int((re.findall(r"\d{1,9}", name) or ["0"])[-1]))]


def _scores(row: _Row, n: int) -> list[ScoredChoice]:
    """Returns an answer per request. `resps` serves where a filter has made something else of the answers."""
    for given in (row["filtered_resps"], row.get("resps") or []):
        answers = [each for each in given if each is not None]
        found = [_scored(each) for each in answers]
        if n == 1 and len(answers) == 2 and not isinstance(answers[0], list):
            found = [_scored(answers)]
        if len(found) == n and None not in found:
            return [each for each in found if each]
    answers = row["filtered_resps"]
    wrong = next((each for each in answers if _scored(each) is None), None)
    if len(answers) == n and wrong is not None:
        raise _Unusable(
            f"`filtered_resps` has {_short(wrong)}, expected a log-likelihood and True or False for each choice; "
            f"{OTHER_TASK}"
        )
    raise _Unusable(f"expected {n} answers in `filtered_resps`, one for each choice, got {len(answers)}; {HOW}")


def _scored(answer: Any) -> ScoredChoice | None:
    """Returns an answer written as `[-1.5, false]` or `["-1.5", "False"]`, of several equal ones the first; or None."""
    while isinstance(answer, list) and answer and isinstance(answer[0], list):
        answer = answer[0]
    match answer:
        case [int() | float() | str() as said, bool() | str() as greedy] if not isinstance(said, bool):
            words = {"true": True, "false": False}
            try:
                nats = float(said)
            except ValueError:
                return None
            if not math.isnan(nats) and (is_greedy := words.get(str(greedy).strip().lower())) is not None:
                return ScoredChoice(nats, is_greedy)
    return None


def _conditional(requests: Sequence[AskedChoice]) -> range:
    """Returns which requests of a task scored by mutual information are the choices. Each choice is also asked for
    without a context: 0.4.0 to 0.4.2 wrote the two next to each other, later versions all of the second kind last."""
    half = len(requests) // 2
    for kept, others in ((range(half), range(half, 2 * half)), (range(0, 2 * half, 2), range(1, 2 * half, 2))):
        pairs = [(requests[at], requests[other]) for at, other in zip(kept, others, strict=True)]
        if 2 * half == len(requests) and all(
            not bare.context and bare.continuation.strip() == choice.continuation.strip() for choice, bare in pairs
        ):
            return kept
    raise _Unusable(f"`arguments` lacks the requests without a context that acc_mutual_info needs; {HOW}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"

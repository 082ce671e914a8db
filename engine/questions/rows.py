"""The rows of a task's JSON Lines files: read line by line, parted, checked one by one before the harness sees them, so
that an error names the file, the row and the column.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import HeadroomError
from engine.files import read_regular
from engine.memory import Kept
from engine.questions.faults import MOST_FAULTS, SHOWN, BadRows, RowFault, clipped
from engine.questions.pair_files import read_pair_file
from engine.questions.tasks import OWN, OWN_COLUMNS, OWN_PAIRS, PAIR_COLUMNS, TaskInfo
from engine.questions.text_files import as_utf8
from engine.questions.white_space import white_space_note, without_blanks

LARGE, SAMPLED = 150_000, 10_000  # of a file of more rows than LARGE, so many are drawn
TRAIN_SHARE = 3  # of one file of questions, every third row is for training
Lines = Sequence[tuple[int, bytes]]  # number in the file, from 1, and what stands there


@dataclass(frozen=True)
class OwnFile:
    """A user's own file, as a split of a task is read from it.

    path: of the file
    rows: the row of each question, from 1
    remarks: lines on how the files of all splits were read, and on white space in their rows
    """

    path: str
    rows: tuple[int, ...]
    remarks: tuple[str, ...]


OWN_FILES: "Kept[OwnFile]" = Kept(1_000_000)  # rows; one for the process, by all that a value depends on


@dataclass(frozen=True)
class Given:
    """The files that a task's splits are read from, and what they hold.

    files: by split
    raw: their content as JSON lines in UTF-8, without the blanks that are no part of a user's own texts
    numbers: of each file of word pairs, the row of each of these lines
    first: of a file with more rows than LARGE so many of a split's first rows are taken, or where that is 0 a sample,
        None: all
    notes: lines on how the files were read
    """

    files: Mapping[str, Path]
    raw: Mapping[Path, bytes]
    numbers: Mapping[Path, Sequence[int]] = field(default_factory=dict)
    first: Mapping[str, int | None] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        return hashlib.blake2b(b"".join(self.raw[file] for file in self.files.values())).hexdigest()[:32]

    @property
    def is_parted(self) -> bool:
        """Whether one file serves as all splits."""
        return len(self.raw) < len(self.files)

    @property
    def is_large(self) -> bool:
        return any(content.count(b"\n") >= LARGE for content in self.raw.values())

    @cached_property
    def lines(self) -> dict[str, Lines]:
        """The lines of each split that hold anything.

        Of one file that serves as all splits a third of the rows is for training, drawn by what they say, so that equal
        rows stay together and the same file is always parted alike.
        """
        found = {file: _lines(content, self.numbers.get(file)) for file, content in self.raw.items()}
        of = {split: found[file] for split, file in self.files.items()}
        if self.is_parted:
            lines = of["train"]
            marks = [hashlib.blake2b(line.strip(), digest_size=8).digest() for _, line in lines]
            train = set(sorted(marks)[: max(1, len(lines) // TRAIN_SHARE)])
            here = list(zip(lines, marks, strict=True))
            of = {split: [line for line, mark in here if (mark in train) == (split == "train")] for split in of}
        return {split: _drawn(lines, self.first.get(split, 0)) for split, lines in of.items()}

    def rows(self, split: str, info: TaskInfo) -> list[dict[str, Any]]:
        """The rows, checked; BadRows names the file and the faulty rows."""
        file, lines = self.files[split], self.lines[split]
        if lines:
            found, faults = _checked(lines, info)
            if faults:
                raise BadRows(file, self._faults(info) if self.is_parted else faults)
            return found
        if self.is_parted and (faults := self._faults(info)):
            raise BadRows(file, faults)  # rows that are wrong are said first
        if any(self.lines.values()) and self.is_parted:
            raise HeadroomError(f"task {info.name}: {file} has too few rows that differ: some of them are for training "
                                f"and the others are asked; add rows")  # fmt: skip
        how = "a question and its answer in each row" if info.columns == PAIR_COLUMNS else "one question a line as JSON"
        raise HeadroomError(f"task {info.name}: {file} is empty; write {how}")

    def own_file(self, split: str, info: TaskInfo) -> OwnFile:
        """A split's file, which is the user's own."""

        def make() -> OwnFile:
            rows = tuple(number for number, _ in self.lines[split])
            return OwnFile(str(self.files[split]), rows, tuple(self._remarks(info)))

        key = self.digest, split, *self.files.values(), *self.first.items()
        return OWN_FILES.get(key, make, lambda found: len(found.rows))

    def _remarks(self, info: TaskInfo) -> Iterator[str]:
        yield from self.notes
        for file in self.raw:
            lines = {line for split, lines in self.lines.items() if self.files[split] == file for line in lines}
            checked = ((number, *_row(number, line, info)) for number, line in sorted(lines))
            if note := white_space_note(file.name, ((number, row) for number, row, wrong in checked if not wrong)):
                yield note

    def _faults(self, info: TaskInfo) -> list[RowFault]:
        """The faults of all splits, in file order."""
        faults = [fault for lines in self.lines.values() for fault in _checked(lines, info)[1]]
        return sorted(faults, key=lambda fault: fault.row)[:MOST_FAULTS]


def read(info: TaskInfo, files: Mapping[str, Path]) -> Given:
    """What these files hold; HeadroomError where one cannot be read."""
    raw, numbers, notes = dict[Path, bytes](), dict[Path, Sequence[int]](), list[str]()
    for file in dict.fromkeys(files.values()):
        try:
            content = read_regular(file)
        except FileNotFoundError as error:
            raise HeadroomError(f"task {info.name}: {file} does not exist; put its rows there as JSON lines") from error
        except OSError as error:
            raise HeadroomError(
                f"task {info.name}: {file} cannot be read ({error.strerror}); put its rows there"
            ) from error
        if file.suffix == OWN_PAIRS:
            raw[file], numbers[file], note = _pairs_as_lines(file, content)
            notes += [note] * bool(note)
        else:
            content = as_utf8(file, content)
            raw[file] = without_blanks(content) if info.name.endswith(OWN) else content
    return Given(files, raw, numbers, notes=tuple(notes))


def changed_column(lines: Lines, rows: Sequence[dict[str, Any]]) -> str:
    """Which column changes its type, and where, such as "column 'label' is text in row 1 and a number in row 7"; ""
    where none does."""
    seen: dict[str, tuple[str, int]] = {}
    for (number, _), row in zip(lines, rows, strict=True):
        for column, value in row.items():
            kind = _kind(value)
            first, where = seen.setdefault(column, (kind, number)) if kind else ("", 0)
            if kind != first:
                return f"column {column!r} is {first} in row {where} and {kind} in row {number}"
    return ""


def _drawn(lines: Lines, first: int | None) -> Lines:
    if len(lines) <= LARGE or first is None:
        return lines
    if first:
        return lines[:first]
    return [lines[at] for at in sorted(np.random.default_rng(0).choice(len(lines), SAMPLED, replace=False))]


def _lines(raw: bytes, numbers: Sequence[int] | None = None) -> Lines:
    # line feeds alone end a row: other signs that end lines may stand inside a text
    lines = raw.split(b"\n")
    numbered = enumerate(lines, 1) if numbers is None else zip(numbers, lines, strict=False)  # none: one empty line
    return [(number, line) for number, line in numbered if line.strip()]


def _pairs_as_lines(file: Path, content: bytes) -> tuple[bytes, Sequence[int], str]:
    """(the pairs of a task as JSON lines, the row of each, a note on how they were read)."""
    found = read_pair_file(file, content)
    if found.tasks[1:]:
        raise HeadroomError(f"{file}: {2 * len(found.tasks)} columns; write a question and its answer in each row, "
                            "below a row of titles: a file for each task")  # fmt: skip
    pairs = found.tasks[0].pairs
    lines = [json.dumps(dict(zip(PAIR_COLUMNS, pair, strict=True))) for _, *pair in pairs]
    return "\n".join(lines).encode(), [row for row, *_ in pairs], found.note


def _checked(lines: Lines, info: TaskInfo) -> tuple[list[dict[str, Any]], list[RowFault]]:
    """The valid rows, and the first MOST_FAULTS faults of the others."""
    found: list[dict[str, Any]] = []
    faults: list[RowFault] = []
    for number, line in lines:
        row, wrong = _row(number, line, info)
        if not wrong:
            found.append(row)
        elif len(faults) < MOST_FAULTS:
            faults += wrong
    return found, faults[:MOST_FAULTS]


def _row(number: int, line: bytes, info: TaskInfo) -> tuple[dict[str, Any], list[RowFault]]:
    row, why = _decoded(line)
    shown = line[:SHOWN].decode("utf-8", "replace")
    if why or not isinstance(row, dict):
        return {}, [RowFault(number, why or f"is {type(row).__name__}, must be a JSON object", shown)]
    present = ", ".join(sorted(column for column in row if row[column] is not None)) or "none"
    missing = [column for column in info.columns if row.get(column) is None]
    lacks = "column {!r} is missing (present: {}); add it to the row"
    empty = "column {!r} is empty; fill it in, or remove the row"
    faults = [
        RowFault(number, (empty if column in row else lacks).format(column, present), shown) for column in missing
    ]
    if info.columns == OWN_COLUMNS:
        own = {column: row[column] for column in OWN_COLUMNS if column not in missing}
        faults += [RowFault(number, what, clipped(repr(value)), got=True) for what, value in _own_faults(own)]
        row = own
    return row, faults


def _decoded(line: bytes) -> tuple[Any, str]:
    """(what a line says, "" or why it cannot be read)."""
    try:
        row = json.loads(line.decode("utf-8"))
        json.dumps(row, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        return None, f"cannot be read as UTF-8 text ({error}); save the file as UTF-8"
    except UnicodeEncodeError:
        return None, "has half a character (\\ud800 to \\udfff alone); write the whole one"
    except RecursionError:
        return None, "is nested too deeply; write plain values, or lists of them"
    except ValueError as error:
        return None, f"is not valid JSON ({error}); write one object a line"
    return row, ""


def _own_faults(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """(what must be otherwise, what stands there) in those columns of a user's own row that are there."""
    choices = row.get("choices")
    if "context" in row and not _is_text(row["context"]):
        yield "column 'context' must be text that is not empty", row["context"]
    if "choices" in row and (not isinstance(choices, list) or len(choices) < 2):
        yield "column 'choices' must be a list of at least 2 texts", choices
    if not isinstance(choices, list):
        return
    for choice in choices:
        if not _is_text(choice):
            yield "column 'choices': every choice must be text that is not empty", choice
    gold = row.get("gold")
    if gold is not None and (not isinstance(gold, int) or isinstance(gold, bool) or not 0 <= gold < len(choices)):
        yield f"column 'gold' must be a whole number from 0 to {len(choices) - 1}", gold


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _kind(value: Any) -> str:
    """What a value is, in words; "" where it is nothing."""
    if value is None:
        return ""
    if isinstance(value, list):
        return "a list" + next((f" with {kind}" for kind in map(_kind, value) if kind), "")
    kinds = ((bool, "true or false"), (int | float, "a number"), (str, "text"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "an object")

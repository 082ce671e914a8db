"""The rows of a task's JSON Lines files: read line by line, parted, checked one by one before the harness sees them, so
that an error names the file, the row and the column.
"""

import csv
import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import HeadroomError
from engine.files import read_regular
from engine.questions.tasks import OWN_COLUMNS, OWN_PAIRS, PAIR_COLUMNS, TaskInfo

BOM = b"\xef\xbb\xbf"
LARGE, SAMPLED = 150_000, 10_000  # of a file of more rows than LARGE, so many are drawn
MOST_FAULTS = 200  # reported for one file
SHOWN = 200  # characters of a value that is wrong
TRAIN_SHARE = 3  # of one file of questions, every third row is for training
Lines = Sequence[tuple[int, bytes]]  # number in the file, from 1, and what stands there


@dataclass(frozen=True)
class RowFault:
    """A fault in a row: its number in the file, from 1; the rule that it breaks; the text found. `got`: whether the
    line of an error repeats the value."""

    row: int
    what: str
    value: str
    got: bool = False


class BadRows(HeadroomError):
    """Rows of a file are not as they must be. The line names the first fault; `details` are all, as RowFaults."""

    def __init__(self, file: Path, faults: Sequence[RowFault]) -> None:
        first, n = faults[0], len(faults)
        value = f", got {first.value}" if first.got else ""
        many = f" (1 of {'at least ' if n == MOST_FAULTS else ''}{n} faults in the file)" if n > 1 else ""
        super().__init__(f"{file}, row {first.row}: {first.what}{value}{many}")
        self.details = tuple(faults)


@dataclass(frozen=True)
class Given:
    """The files that a task's splits are read from, and what they hold. `first`: of a file with more rows than LARGE so
    many of a split's first rows are taken, or where that is 0 a sample, None: all."""

    files: Mapping[str, Path]
    raw: Mapping[Path, bytes]
    first: Mapping[str, int | None] = field(default_factory=dict)

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
        found = {
            file: _pair_lines(file, content) if file.suffix == OWN_PAIRS else _lines(content)
            for file, content in self.raw.items()
        }
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
        raise HeadroomError(f"task {info.name}: {file} is empty; write one question a line as JSON")

    def _faults(self, info: TaskInfo) -> list[RowFault]:
        """The faults of all splits, in file order."""
        faults = [fault for lines in self.lines.values() for fault in _checked(lines, info)[1]]
        return sorted(faults, key=lambda fault: fault.row)[:MOST_FAULTS]


def read(info: TaskInfo, files: Mapping[str, Path]) -> Given:
    """What these files hold; HeadroomError where one cannot be read."""
    raw: dict[Path, bytes] = {}
    for file in files.values():
        try:
            raw[file] = raw[file] if file in raw else read_regular(file)
        except FileNotFoundError as error:
            raise HeadroomError(f"task {info.name}: {file} does not exist; put its rows there as JSON lines") from error
        except OSError as error:
            raise HeadroomError(
                f"task {info.name}: {file} cannot be read ({error.strerror}); put its rows there"
            ) from error
    return Given(files, raw)


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


def _lines(raw: bytes) -> Lines:
    # line feeds alone end a row: other signs that end lines may stand inside a text
    lines = raw.removeprefix(BOM).split(b"\n")
    return [(number, line) for number, line in enumerate(lines, 1) if line.strip()]


def csv_cells(file: Path, raw: bytes) -> list[list[str]]:
    """The cells of a CSV file of word pairs, which has tabs if it comes from a spreadsheet; HeadroomError: it cannot be
    read."""
    try:
        text = raw.decode("utf-8-sig")
        titles = text.partition("\n")[0]
        has_tabs = "\t" in titles and "," not in titles
        return list(csv.reader(io.StringIO(text), delimiter="\t" if has_tabs else ",", strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise not_csv(file, error) from error


def not_csv(file: Path, error: Exception) -> HeadroomError:
    """The error of a file of word pairs that cannot be read."""
    return HeadroomError(f"{file} cannot be read as a CSV file in UTF-8 ({error}); give a file of word pairs")


def _pair_lines(file: Path, raw: bytes) -> Lines:
    """The rows of a CSV file of word pairs as JSON, without the titles; HeadroomError: it cannot be read."""
    cells = csv_cells(file, raw)
    if wrong := next((number for number, row in enumerate(cells, 1) if len(row) not in (0, 2)), 0):
        raise HeadroomError(f"{file}, row {wrong}: {len(cells[wrong - 1])} columns; write a question and its answer in "
                            "each row, below a row of titles, and quote text with commas")  # fmt: skip
    pairs = [(number, dict(zip(PAIR_COLUMNS, (cell.strip() or None for cell in row), strict=True)))
             for number, row in enumerate(cells[1:], 2) if any(cell.strip() for cell in row)]  # fmt: skip
    return [(number, json.dumps(pair).encode()) for number, pair in pairs]


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
        faults += [RowFault(number, what, _short(value), got=True) for what, value in _own_faults(own)]
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


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _kind(value: Any) -> str:
    """What a value is, in words; "" where it is nothing."""
    if value is None:
        return ""
    if isinstance(value, list):
        return "a list" + next((f" with {kind}" for kind in map(_kind, value) if kind), "")
    kinds = ((bool, "true or false"), (int | float, "a number"), (str, "text"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "an object")

"""The rows of a task's JSON Lines files: read line by line, parted, checked one by one before the harness sees them, so
that an error names the file, the row and the column.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import HeadroomError
from engine.files import read_regular
from engine.questions.tasks import OWN_COLUMNS, TaskInfo

BOM = b"\xef\xbb\xbf"
LARGE, SAMPLED = 150_000, 10_000  # of a file of more rows than LARGE, so many are drawn
TRAIN_SHARE = 3  # of one file of questions, every third row is for training
Lines = Sequence[tuple[int, bytes]]  # number in the file, from 1, and what stands there


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
        found = {file: _lines(content) for file, content in self.raw.items()}
        of = {split: found[file] for split, file in self.files.items()}
        if self.is_parted:
            lines = of["train"]
            marks = [hashlib.blake2b(line.strip(), digest_size=8).digest() for _, line in lines]
            train = set(sorted(marks)[: max(1, len(lines) // TRAIN_SHARE)])
            here = list(zip(lines, marks, strict=True))
            of = {split: [line for line, mark in here if (mark in train) == (split == "train")] for split in of}
        return {split: _drawn(lines, self.first.get(split, 0)) for split, lines in of.items()}

    def rows(self, split: str, info: TaskInfo) -> list[dict[str, Any]]:
        """The rows, checked; HeadroomError names the file, the row and the column that is wrong."""
        file, lines = self.files[split], self.lines[split]
        if lines:
            return [_row(f"{file}, row {number}", line, info) for number, line in lines]
        for number, line in self.lines["train"] if self.is_parted else ():
            _row(f"{file}, row {number}", line, info)  # a row that is wrong is said first
        if any(self.lines.values()) and self.is_parted:
            raise HeadroomError(f"task {info.name}: {file} has too few rows that differ: some of them are for training "
                                f"and the others are asked; add rows")  # fmt: skip
        raise HeadroomError(f"task {info.name}: {file} is empty; write one question a line as JSON")


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


def _row(where: str, line: bytes, info: TaskInfo) -> dict[str, Any]:
    try:
        row = json.loads(line.decode("utf-8"))
        json.dumps(row, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        raise HeadroomError(f"{where}: cannot be read as UTF-8 text ({error}); save the file as UTF-8") from error
    except UnicodeEncodeError as error:
        raise HeadroomError(f"{where}: has half a character (\\ud800 to \\udfff alone); write the whole one") from error
    except RecursionError as error:
        raise HeadroomError(f"{where}: is nested too deeply; write plain values, or lists of them") from error
    except ValueError as error:
        raise HeadroomError(f"{where}: is not valid JSON ({error}); write one object a line") from error
    if not isinstance(row, dict):
        raise HeadroomError(f"{where}: is {type(row).__name__}, must be a JSON object")
    for column in info.columns:
        if row.get(column) is None:
            present = ", ".join(sorted(row)) or "none"
            raise HeadroomError(f"{where}: column {column!r} is missing (present: {present}); add it to the row")
    if info.columns == OWN_COLUMNS:
        _check_own_row(where, row)
        return {column: row[column] for column in OWN_COLUMNS}
    return row


def _check_own_row(where: str, row: dict[str, Any]) -> None:
    context, choices, gold = row["context"], row["choices"], row["gold"]
    if not isinstance(context, str) or not context.strip():
        raise HeadroomError(f"{where}: column 'context' is {context!r}, must be text that is not empty")
    if not isinstance(choices, list) or len(choices) < 2:
        raise HeadroomError(f"{where}: column 'choices' must be a list of at least 2 texts, got {choices!r}")
    for choice in choices:
        if not isinstance(choice, str) or not choice.strip():
            raise HeadroomError(
                f"{where}: column 'choices' holds {choice!r}, every choice must be text that is not empty"
            )
    if not isinstance(gold, int) or isinstance(gold, bool) or not 0 <= gold < len(choices):
        raise HeadroomError(f"{where}: column 'gold' is {gold!r}, must be a whole number from 0 to {len(choices) - 1}")


def _kind(value: Any) -> str:
    """What a value is, in words; "" where it is nothing."""
    if value is None:
        return ""
    if isinstance(value, list):
        return "a list" + next((f" with {kind}" for kind in map(_kind, value) if kind), "")
    kinds = ((bool, "true or false"), (int | float, "a number"), (str, "text"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "an object")

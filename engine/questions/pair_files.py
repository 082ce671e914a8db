"""Files of word pairs, such as spreadsheets write them: columns two by two, a question and its answer, below titles.

Cells may be separated by commas, semicolons, tabs, or vertical bars. The file itself names the delimiter in a first
line such as `sep=;`, or it is the one with which every row has as many columns as there are titles, in full pairs.
"""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.errors import HeadroomError
from engine.questions.faults import MOST_FAULTS, BadRows, RowFault
from engine.questions.text_files import as_utf8, row_at

DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "vertical bars"}
NAMED = re.compile(r'"?sep=([^\w\s"]|\t)"?\1*[^\S\n]*(?:\n|$)', re.IGNORECASE)
FORMAT = "write two per task, questions and answers, with titles"


@dataclass(frozen=True)
class PairColumns:
    """The two columns of a task.

    titles: of the questions and the answers
    pairs: row in the file, question, answer
    """

    titles: tuple[str, str]
    pairs: tuple[tuple[int, str, str], ...]


@dataclass(frozen=True)
class PairFile:
    """A file of word pairs.

    tasks: their columns
    note: names the delimiter, if the file can be read with another one as well; else ""
    """

    tasks: tuple[PairColumns, ...]
    note: str = ""


@dataclass(frozen=True)
class _Table:
    """A file split at one delimiter: rows with their number, without empty cells at their end, and without blank rows;
    `error`: why the row `error_row` and all others could not be read."""

    delimiter: str
    rows: tuple[tuple[int, tuple[str, ...]], ...]
    error: str = ""
    error_row: int = 0

    @property
    def width(self) -> int:
        return len(self.rows[0][1]) if self.rows else 0

    @property
    def at(self) -> str:
        return DELIMITERS.get(self.delimiter, repr(self.delimiter))

    def faults(self) -> Iterator[RowFault]:
        """The rows that do not fit the titles."""
        titles = self.rows[0][1]
        for row, cells in self.rows[1:]:
            if len(cells) > self.width:
                what = f"{len(cells)} cells, expected {self.width}; quote text with {self.at}"
                yield RowFault(row, what, self.delimiter.join(cells))
                continue
            for column, question, answer in self.pairs(cells):
                if not (question and answer):
                    lacking = titles[column + bool(question)] or ("question", "answer")[bool(question)]
                    yield RowFault(row, f"{question or answer!r} has no {lacking}; fill in both", question or answer)
        if self.error:
            yield self.unread

    @property
    def unread(self) -> RowFault:
        """Why the table ends early."""
        what = f"cannot be read as a CSV file with {self.at} between cells ({self.error}); close every quote"
        return RowFault(self.error_row, what, "")

    def pairs(self, cells: tuple[str, ...]) -> Iterator[tuple[int, str, str]]:
        """(column, question, answer) of the pairs in a row."""
        padded = (*cells, *[""] * (self.width - len(cells)))
        for column in range(0, self.width, 2):
            if padded[column] or padded[column + 1]:
                yield column, padded[column], padded[column + 1]


def read_pair_file(file: Path, raw: bytes) -> PairFile:
    """Returns the word pairs in the content of a file. BadRows, HeadroomError: what is wrong with it, and where."""
    text = _decoded(file, as_utf8(file, raw))
    named = NAMED.match(text)
    if named:
        tables = [_split(text[named.end() :], named.group(1), 2)]
    else:
        tables = [_split(text, delimiter) for delimiter in DELIMITERS]
    if not any(table.rows or table.error for table in tables):
        raise HeadroomError(f"{file} is empty: 0 columns; {FORMAT}")
    usable = [table for table in tables if table.width and table.width % 2 == 0]
    if not usable:
        table = max(tables, key=lambda table: (table.width, bool(table.error)))
        if table.error and not table.rows:
            raise BadRows(file, [table.unread])
        by = table.at if named or table.width > 1 else " or ".join(DELIMITERS.values())
        raise HeadroomError(f"{file}: {table.width} columns, with {by} between cells; {FORMAT}")
    n_faults = [sum(1 for _ in table.faults()) for table in usable]
    table = usable[n_faults.index(min(n_faults))]
    if min(n_faults):
        raise BadRows(file, [*table.faults()][:MOST_FAULTS])
    others = [other for other, n in zip(usable, n_faults, strict=True) if other is not table and n == 0]
    note = ""
    if others:
        note = (f"{file.name}: columns are split at {table.at}, although {others[0].at} fit as well: to split there, "
                f"write sep={others[0].delimiter} in a first line")  # fmt: skip
    return PairFile(_tasks(table), note)


def _decoded(file: Path, raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = raw[error.start]
        raise HeadroomError(f"{file}, row {row_at(raw, error.start)}: cannot be read as a CSV file in UTF-8 (byte "
                            f"0x{byte:02x}); save it as “CSV UTF-8” in the spreadsheet") from error  # fmt: skip


def _split(text: str, delimiter: str, first: int = 1) -> _Table:
    """Returns the text split at a delimiter; `first`: the number of its first row. A quote after blanks begins a quoted
    cell, unless the cell goes on behind its end."""
    table = _read(text, delimiter, first, skips=True)
    return _read(text, delimiter, first, skips=False) if table.error else table


def _read(text: str, delimiter: str, first: int, skips: bool) -> _Table:
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=skips, strict=True)
    rows, row = [], first
    try:
        while (cells := next(reader, None)) is not None:
            kept = [cell.strip() for cell in cells]
            while kept and not kept[-1]:
                kept.pop()
            if kept:
                if not rows and len(kept) % 2 and len(cells) > len(kept):
                    kept.append("")  # the last title is empty
                rows.append((row, tuple(kept)))
                if len(rows[0][1]) % 2:  # such titles fit nothing below
                    break
            row = first + reader.line_num
    except csv.Error as error:
        return _Table(delimiter, tuple(rows), str(error), row)
    return _Table(delimiter, tuple(rows))


def _tasks(table: _Table) -> tuple[PairColumns, ...]:
    titles = table.rows[0][1]
    found: dict[int, list[tuple[int, str, str]]] = {column: [] for column in range(0, table.width, 2)}
    for row, cells in table.rows[1:]:
        for column, question, answer in table.pairs(cells):
            found[column].append((row, question, answer))
    return tuple(PairColumns((titles[at], titles[at + 1]), tuple(pairs)) for at, pairs in found.items())

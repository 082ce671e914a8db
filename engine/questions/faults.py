"""What is wrong in the rows of a file: `RowFault`, and the errors that name all faulty rows at once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine.errors import HeadroomError

MOST_FAULTS = 200  # reported for one file
MOST_NAMED = 20  # rows named in a line
SHOWN, EXAMPLE = 200, 60  # characters of a value that is wrong, in a table and in a line


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


class BadChoices(HeadroomError):
    """A model cannot score some choices. The line names all of their rows; `details` are the choices, as RowFaults.

    Without a file, the numbers are those of the questions in their task, from 0.
    """

    def __init__(self, faults: Sequence[RowFault], file: str = "") -> None:
        noun, of = ("row", f" of {file}") if file else ("question", "")
        lines = []
        for what in dict.fromkeys(fault.what for fault in faults):
            here = [fault for fault in faults if fault.what == what]
            where = numbered(noun, [fault.row for fault in here])
            example = clipped(here[0].value, EXAMPLE) + f" in {noun} {here[0].row}" * (here[0].row != here[-1].row)
            lines.append(f"{where}{of}: {what} ({example})")
        super().__init__("; ".join(lines))
        self.faults = tuple(faults)
        self.details = self.faults if file else None

    def in_file(self, file: str, rows: Sequence[int]) -> "BadChoices":
        """Returns the same for questions that are these rows of a file."""
        return BadChoices([replace(fault, row=rows[fault.row]) for fault in self.faults], file)


def numbered(noun: str, numbers: Sequence[int], most: int = MOST_NAMED) -> str:
    """Returns text such as "row 3", "rows 3, 17 and 20", or "rows 3, 17 and 38 others"."""
    each = sorted({*numbers})
    words = [str(number) for number in each[:most]]
    if len(each) > most:
        words.append(f"{len(each) - most} others" if len(each) > most + 1 else str(each[-1]))
    listed = " and ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)
    return f"{noun}{'s' * (len(each) > 1)} {listed}"


def clipped(text: str, most: int = SHOWN) -> str:
    """Returns the beginning of a text."""
    return text if len(text) <= most else f"{text[:most]}…"

"""Exceptions shown to users. Their text is one line: the problem, the value, and what to do next."""

import re
import tempfile
import traceback
from collections.abc import Collection

LONGEST, KEPT = 160, 60  # characters of a word that a line shows whole; else so many of its beginning and its end
MOST = 1000  # characters of a line


class HeadroomError(Exception):
    """Something outside the program is not as it must be; the command line exits with 1. `details`: data about it, for
    a screen that can show or offer more than the line."""

    details: object = None


class UsageError(HeadroomError):
    """The request itself cannot be meant (a level of 120%, a head that does not exist); exit code 2."""


class NotHere(HeadroomError):
    """A model or rows that are on the Hub but not on this computer: the user must agree to the download. `model` names
    it; rows of a task where that is empty."""

    def __init__(self, model: str, line: str) -> None:
        super().__init__(line)
        self.model = model


class Canceled(HeadroomError):
    """The user stopped the work; what was finished is stored. Exit code 130."""


def refuse_unknown(what: str, name: str, known: Collection[str]) -> None:
    """Raises UsageError if `name` is not one of the `known`; `what` says what it names."""
    if name not in known:
        raise UsageError(f"{what} {name!r} is unknown; choose one of {', '.join(known)}")


def one_line(text: object) -> str:
    """What any terminal and any page can show of a text: one line, without what steers a terminal, and of a word or
    line that is too long its two ends."""
    line = "".join(letter if letter.isprintable() else " " for letter in str(text))
    line = re.sub(rf"\S{{{LONGEST + 1},}}", lambda found: _ends(found.group(), KEPT), " ".join(line.split()))
    return line if len(line) <= MOST else _ends(line, MOST // 2)


def unforeseen(error: BaseException) -> str:
    """The line for an unexpected error, which names a file with the details for developers."""
    said = one_line(f"{type(error).__name__}: {error}")
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", errors="backslashreplace", prefix="headroom-", suffix=".log", delete=False
        ) as file:
            file.writelines(traceback.format_exception(error))
    except OSError:
        return f"unexpected: {said}"
    return f"unexpected: {said}; {file.name} says where, please report it"


def _ends(text: str, n: int) -> str:
    return f"{text[:n]}…{text[-n:]}"

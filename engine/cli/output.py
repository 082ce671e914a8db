"""How results leave: lines or one JSON object on standard output, files, progress on standard error."""

import sys
import time
from pathlib import Path

from engine.errors import HeadroomError
from engine.files import write_whole
from engine.progress import in_time
from engine.requests.base import Report, Request, Result
from engine.requests.output import to_json


def deliver(request: Request, result: Result) -> None:
    """Writes the files of a result, and prints it: as one JSON object with --json, else its lines."""
    for path, content in result.files.items():
        write(path, content)
    named = (
        result.text
        if result.report_folder
        else "\n".join([result.text, *(f"written to {path}" for path in result.files if path not in result.text)])
    )
    print(to_json(dict(result.fields)) if request.json else named, flush=True)
    if result.failure:
        raise HeadroomError(result.failure)


def write(path: str, content: bytes) -> None:
    """Writes a file; HeadroomError says why it cannot be."""
    try:
        write_whole(Path(path), content)
    except OSError as error:
        raise HeadroomError(f"cannot write {path} ({error.strerror}); choose another file") from error


def report_to_terminal() -> Report:
    """What shows progress: in place on a terminal, else a line now and then."""
    return _report if sys.stderr.isatty() else _report_sparsely()


def _report(done: int, total: int, message: str, left_s: float | None) -> None:
    is_end = bool(total) and done >= total
    print(f"\r\033[K{_line(done, total, message, left_s)}", end="\n" if is_end else "", file=sys.stderr, flush=True)


def _report_sparsely() -> Report:
    last_s = time.monotonic()

    def report(done: int, total: int, message: str, left_s: float | None) -> None:
        nonlocal last_s
        if time.monotonic() - last_s > 5:
            last_s = time.monotonic()
            print(_line(done, total, message, left_s), file=sys.stderr, flush=True)

    return report


def _line(done: int, total: int, message: str, left_s: float | None) -> str:
    left = "" if left_s is None or done >= total else f", about {in_time(left_s)} left"
    return f"{done} of {total}  {message}{left}"

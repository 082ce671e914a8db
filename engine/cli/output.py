"""How results leave: one line or one JSON object on standard output, tables as files, progress on standard error."""

import io
import json
import math
import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from engine.errors import HeadroomError, UsageError
from engine.files import named, write_whole
from engine.progress import Progress, TimeLeft, in_time

T = TypeVar("T")
Report = Callable[[int, int, str, float | None], None]  # done, total, message, seconds left
ENDINGS = (".npz", ".csv", ".parquet")


def check_out(path: str, endings: tuple[str, ...] = ENDINGS) -> None:
    """Before any work: UsageError where the file to be written ends in none of these; else `check_writable`."""
    if Path(path).suffix not in endings:
        raise UsageError(f"--out {path!r} must end in {', '.join(endings[:-1])} or {endings[-1]}")
    check_writable(path)


def check_writable(path: str) -> None:
    """Before any work: HeadroomError where nothing can be written there."""
    file = named(path, "file")
    folder = file.parent
    if file.is_dir():
        why = "it is a folder"
    elif not folder.is_dir():
        why = f"there is no folder {folder}"
    elif not os.access(file if file.exists() else folder, os.W_OK):
        why = "no permission to write there"
    else:
        return
    raise HeadroomError(f"cannot write {path} ({why}); choose another file")


def scores_file(suffix: str, arrays: dict[str, Any], columns: dict[str, Any]) -> bytes:
    """The arrays as .npz, or the columns with layer (and head) in front as a table; None is left out."""
    if suffix == ".npz":
        buffer = io.BytesIO()
        np.savez(buffer, **{name: array for name, array in arrays.items() if array is not None})
        return buffer.getvalue()
    import pandas as pd

    shape = next(iter(columns.values())).shape
    index = dict(zip(("layer", "head"), np.indices(shape).reshape(len(shape), -1), strict=False))
    frame = pd.DataFrame(index | {name: column.ravel() for name, column in columns.items() if column is not None})
    return table_file(suffix, frame)


def table_file(suffix: str, frame: Any) -> bytes:
    """A DataFrame as .csv or .parquet."""
    if suffix == ".csv":
        return frame.to_csv(index=False, lineterminator="\n").encode()  # the same on every system
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    return buffer.getvalue()


def last(steps: Iterator[Progress[T]], report: Report) -> tuple[T, bool]:
    """What a measurement ends with, and whether all of it was stored already; how it goes is told to `report`."""
    time_left, value, cached = TimeLeft(time.monotonic()), None, True
    for step in steps:
        value, cached = step.value, step.cached
        time_left.told(now_s := time.monotonic(), step)
        if not cached:
            report(step.done, step.total, step.message, time_left.left_s(now_s))
    assert value is not None
    return value, cached


def write(path: str, content: bytes) -> None:
    """Writes a file; HeadroomError says why it cannot be."""
    try:
        write_whole(Path(path), content)
    except OSError as error:
        raise HeadroomError(f"cannot write {path} ({error.strerror}); choose another file") from error


def say(line: str) -> None:
    """One line for the user on standard error, in place of the progress that may stand there."""
    print(f"{chr(13) + chr(27) + '[K' if sys.stderr.isatty() else ''}headroom: {line}", file=sys.stderr, flush=True)


def to_json(value: Any) -> str:
    """JSON on one line; NaN and infinities, which JSON does not have, become null, and NumPy values plain ones."""
    return json.dumps(_plain(value), allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_result(options: Namespace, fields: dict[str, Any], text: str) -> None:
    """Writes the result to standard output: `fields` as one JSON object with --json, else `text`."""
    print(to_json(fields) if options.json else text, flush=True)


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

"""What commands share: their options as the engine wants them, and how results leave: one line or one JSON object on
standard output, tables as files.
"""

import io
import json
import os
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import HeadroomError, UsageError
from engine.jobs import Progress

Report = Callable[[int, int, str, float], None]
ENDINGS = (".npz", ".csv", ".parquet")


def check_ending(path: str, endings: tuple[str, ...] = ENDINGS) -> None:
    """UsageError where a file that is to be written ends in none of these."""
    if Path(path).suffix not in endings:
        raise UsageError(f"--out {path!r} must end in {', '.join(endings[:-1])} or {endings[-1]}")


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
        return frame.to_csv(index=False).encode()
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    return buffer.getvalue()


def names_of(text: str | None, default: Sequence[str]) -> list[str]:
    """The names in a list separated by commas; each once."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip())) if text else list(default)


def numbers_of(option: str, text: str) -> list[int]:
    """The whole numbers in a list separated by commas."""
    try:
        return [int(number) for number in names_of(text, ())]
    except ValueError as error:
        raise UsageError(f"{option} {text!r} is no list of whole numbers; write it like 0,1,5") from error


def spec_of(options: Namespace) -> Any:
    """Which model, as the options name it."""
    from engine.models.loading import LoadSpec

    return LoadSpec(options.model, options.precision, options.int8_threshold, options.revision)


def data_dir(options: Namespace) -> str | None:
    """The folder with task data, or None."""
    return options.task_data or os.environ.get("HEADROOM_TASK_DATA") or None


def last(steps: Iterator[Progress], report: Report) -> Progress:
    """The final Progress of a measurement; the others go to `report`."""
    started, final = time.monotonic(), None
    for final in steps:
        if not final.cached:
            report(final.done, final.total, final.message, started)
    assert final is not None and final.value is not None
    return final


def write(path: str, content: bytes) -> None:
    """Writes a file; HeadroomError says why it cannot be."""
    try:
        Path(path).write_bytes(content)
    except OSError as error:
        raise HeadroomError(f"cannot write {path} ({error.strerror}); choose another file") from error


def print_result(options: Namespace, fields: dict[str, Any], text: str) -> None:
    """The one thing on standard output: JSON `fields` where asked for, else `text`."""
    print(json.dumps(fields, allow_nan=False) if options.json else text, flush=True)

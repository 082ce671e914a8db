"""What results are written as: tables and arrays as the bytes of a file, and JSON on one line."""

import io
import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.errors import HeadroomError, UsageError
from engine.files import named, write_whole

if TYPE_CHECKING:
    import pandas as pd

_DRAW: list[Callable[[Any, str], None]] = []
TABLES, ARRAYS = (".csv", ".parquet"), (".npz", ".csv", ".parquet")


def check_out(path: str, endings: tuple[str, ...], option: str = "--out") -> None:
    """Before any work: UsageError if the file to be written ends in none of these (none: any do); HeadroomError if
    nothing can be written there."""
    if endings and Path(path).suffix not in endings:
        *first, last = endings
        raise UsageError(f"{option} {path!r} must end in {' or '.join([', '.join(first), last] if first else [last])}")
    file = named(path, "file")
    folder = file.parent
    if file.is_dir():
        why = "it is a folder"
    elif not folder.is_dir():
        why = f"the folder {folder} does not exist"
    elif not os.access(file if file.exists() else folder, os.W_OK):
        why = "no permission to write there"
    else:
        return
    raise HeadroomError(f"cannot write {path} ({why}); choose another file")


def file_of(path: str | None, make: Callable[[str], bytes]) -> dict[str, Callable[[], bytes]]:
    """The file to be written: what makes its content for its ending, by its path. Nothing without a path."""
    return {path: partial(make, Path(path).suffix)} if path else {}


def write_files(files: Mapping[str, Callable[[], bytes]]) -> None:
    """Writes files, each as its function makes it; HeadroomError says why one cannot be."""
    for path, make in files.items():
        content = make()
        try:
            write_whole(named(path, "file"), content)
        except OSError as error:
            raise HeadroomError(f"cannot write {path} ({error.strerror}); choose another file") from error


def draw_reports_with(draw: Callable[[Any, str], None]) -> None:
    """Sets how a paper study is drawn into a folder, as a front end does: the engine knows no charts."""
    _DRAW[:] = [draw]


def draw_report(study: Any, folder: str) -> None:
    """Draws a paper study into a folder."""
    for draw in _DRAW:
        draw(study, folder)


def scores_file(suffix: str, arrays: Mapping[str, Any], columns: Mapping[str, Any]) -> bytes:
    """The arrays as .npz, or the columns with layer (and head) in front as a table; None is left out."""
    if suffix == ".npz":
        buffer = io.BytesIO()
        np.savez(buffer, **{name: array for name, array in arrays.items() if array is not None})
        return buffer.getvalue()
    return table_file(suffix, scores_table(columns))


def scores_table(columns: Mapping[str, Any]) -> "pd.DataFrame":
    """The columns, with layer (and head) in front; None is left out."""
    import pandas as pd

    shape = next(iter(columns.values())).shape
    index = dict(zip(("layer", "head"), np.indices(shape).reshape(len(shape), -1), strict=False))
    return pd.DataFrame(index | {name: column.ravel() for name, column in columns.items() if column is not None})


def table_file(suffix: str, frame: Any) -> bytes:
    """A DataFrame as .csv or .parquet."""
    if suffix == ".csv":
        return frame.to_csv(index=False, lineterminator="\n").encode()  # the same on every system
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    return buffer.getvalue()


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

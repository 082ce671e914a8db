"""Files on disk: regular ones, read with a bound in bytes, and files and folders that are replaced whole."""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class InvalidFile(ValueError):
    """One line that says what is invalid in a file or a field of it."""


def read_bytes(path: str | os.PathLike[str], max_bytes: int, start: int = 0, n_bytes: int = -1) -> bytes:
    """Returns the content from byte `start` on, or `n_bytes` of it. OSError as of any read; InvalidFile if it is not a
    regular file, or if it is larger than `max_bytes`."""
    # opening a pipe without a writer would block
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            raise InvalidFile(f"{path} is not a regular file but a folder, a pipe or a device; give a file")
        if state.st_size > max_bytes:
            size = f"{state.st_size / 1e6:,.0f} MB, more than the {max_bytes / 1e6:,.0f} MB"
            raise InvalidFile(f"{path} has {size} that are read here; give a smaller file")
        with open(descriptor, "rb", closefd=False) as file:
            file.seek(start)
            return file.read(max_bytes if n_bytes < 0 else n_bytes)
    finally:
        os.close(descriptor)


@contextmanager
def replacing(path: str | os.PathLike[str], part: str | os.PathLike[str]) -> Iterator[None]:
    """Context in which the file or folder `part` is written; at its end `part` is renamed to `path`, so that readers
    find the whole of either. If anything fails `part` is removed and `path` stays as it was."""
    try:
        yield
        os.replace(part, path)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        with suppress(OSError):
            os.unlink(part)
        raise

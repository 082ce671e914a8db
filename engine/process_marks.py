"""Which process holds a folder: by a lock that the system frees when it ends, or as a small file in it says."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from filelock import lock_descriptor

from cache.typed_json import InvalidFile, read_json

MAX_BYTES = 1_000


@dataclass(frozen=True)
class ProcessMark:
    """A process: its number, and when it began, as another may get the number later."""

    pid: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    began: float

    @property
    def is_running(self) -> bool:
        """Whether that process still runs."""
        import psutil

        try:
            return psutil.Process(self.pid).create_time() == self.began
        except psutil.Error:
            return False


def lock_folder(folder: str | Path) -> int | None:
    """A descriptor that holds the folder's lock until it is closed or the process ends. None if another process holds
    the lock, or the system has no locks on folders."""
    if os.name == "nt":  # Windows opens no folders
        return None
    descriptor = os.open(folder, os.O_RDONLY)
    with suppress(OSError):
        if lock_descriptor(descriptor, blocking=False):
            return descriptor
    os.close(descriptor)
    return None


def this_process() -> ProcessMark:
    """The mark of this process."""
    import psutil

    return ProcessMark(os.getpid(), psutil.Process().create_time())


def running_process(file: Path) -> int | None:
    """The number of the process that a file names; None if it has ended, or the file names none."""
    try:
        mark = read_json(file, ProcessMark, MAX_BYTES)
    except (OSError, InvalidFile):
        return None
    return mark.pid if mark.is_running else None

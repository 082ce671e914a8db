"""Who trains in a folder: one process at a time, by a lock that the system frees when that process ends."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from filelock import lock_descriptor

from engine.errors import HeadroomError
from engine.files import running_process, this_process

LOCK = "lock"


@contextmanager
def sole_trainer(folder: Path) -> Iterator[None]:
    """Context that locks the folder against other trainers, and creates it. HeadroomError: another process does, or
    nothing can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("a+", encoding="utf-8")
    except OSError as error:
        raise HeadroomError(f"no run can be written into {folder} ({error.strerror}); give another folder") from error
    with file:
        busy = trainer(folder)
        if busy not in (None, os.getpid()) or not _is_free(file):
            raise HeadroomError(f"{folder} is being trained by another process ({busy or 'just begun'}); wait for it, "
                                f"or end it")  # fmt: skip
        try:
            file.truncate(0)
            with suppress(OSError):  # on a full disk the lock itself still holds
                file.write(json.dumps(asdict(this_process())))
                file.flush()
            yield
        finally:
            with suppress(OSError):
                file.truncate(0)
            if os.listdir(folder) == [LOCK]:  # nothing came of it
                with suppress(OSError):
                    (folder / LOCK).unlink()
                    folder.rmdir()


def trainer(folder: Path) -> int | None:
    """The process that trains in the folder now, None where none does."""
    return running_process(folder / LOCK)


def _is_free(file: TextIO) -> bool:
    """Whether no other process holds the lock, which is this process's then."""
    if os.name == "nt":  # a locked file is not readable there: only the process that it names is known
        return True
    try:
        return lock_descriptor(file.fileno(), blocking=False)
    except OSError as error:
        line = f"{file.name} cannot be locked ({error.strerror})"
        raise HeadroomError(f"{line}; give a folder on another disk") from error

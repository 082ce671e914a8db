"""Files that a user names: found and read with a bound, or refused in one line; written whole or not at all. Which
process holds a folder: by a lock that the system frees when it ends, or as a small file in it says.
"""

import errno
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from cache.files import InvalidFile, read_bytes, replacing
from cache.typed_json import read_json
from engine.errors import HeadroomError, UsageError

MOST_BYTES, MARK_BYTES = 2_000_000_000, 1_000  # of one file of rows; of one that names a process


def named(text: str, what: str) -> Path:
    """The path that a user means, `~` expanded; UsageError where no file can have that name. `what` it is of stands in
    front of the line."""
    try:
        path = Path(text).expanduser()
        os.stat(path)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            return path  # such as that there is none yet
        why = error.strerror
    except (RuntimeError, ValueError) as error:  # no such user; a NUL, or half a character
        why = str(error)
    else:
        return path
    raise UsageError(f"{what} {text!r} cannot be the name of a file ({why}); give another")


def is_file(path: Path) -> bool:
    """Whether there is such a regular file; a name that no file can have is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def read_regular(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """What the file holds; OSError as of any read, HeadroomError where it is not a regular file or too large."""
    try:
        return read_bytes(path, most_bytes)
    except InvalidFile as error:
        raise HeadroomError(str(error)) from error


def write_whole(path: Path, content: bytes, part_name: str | None = None) -> None:
    """Writes the file as `part_name`, a random name by default, and renames it, so that an older one stays whole if the
    disk is full; OSError as of any write. What is not a regular file (`/dev/null`, a pipe that somebody reads) is
    written to as it is."""
    path = Path(os.path.realpath(path))  # a link stays a link
    if path.exists() and not path.is_file():
        # opening a pipe without a reader would block; this raises "No such device or address"
        descriptor = os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0))
        with open(descriptor, "wb") as file:
            if hasattr(os, "set_blocking"):
                os.set_blocking(descriptor, True)
            file.write(content)
        return
    if not os.access(path.parent, os.W_OK):  # the file may be writable, but not its folder
        path.write_bytes(content)
        return
    part = path.with_name(part_name or f".headroom-{secrets.token_hex(8)}")
    with replacing(path, part):
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            part.chmod(stat.S_IMODE(path.stat().st_mode))


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
    from filelock import lock_descriptor  # 50 ms to import

    descriptor = os.open(folder, os.O_RDONLY)
    with suppress(OSError):
        if lock_descriptor(descriptor, blocking=False):
            return descriptor
    os.close(descriptor)
    return None


@contextmanager
def temporary_folder(prefix: str, within: Path) -> Iterator[Path]:
    """While open, a folder of this process, whose name begins with `prefix`. Removes those that killed processes have
    left, if the system has locks on folders."""
    for left in within.glob(f"{prefix}*"):
        with suppress(OSError):  # of another user
            if (lock := lock_folder(left)) is not None:
                _remove(left, lock)
    making = Path(tempfile.mkdtemp(prefix=f".{prefix}", dir=within))
    lock = lock_folder(making)
    folder = making.rename(within / making.name.removeprefix("."))  # which another process may find: it is locked
    try:
        yield folder
    finally:
        _remove(folder, lock)


def _remove(folder: Path, lock: int | None) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if lock is not None:
        os.close(lock)


def this_process() -> ProcessMark:
    """The mark of this process."""
    import psutil

    return ProcessMark(os.getpid(), psutil.Process().create_time())


def running_process(file: Path) -> int | None:
    """The number of the process that a file names; None if it has ended, or the file names none."""
    try:
        mark = read_json(file, ProcessMark, MARK_BYTES)
    except (OSError, InvalidFile):
        return None
    return mark.pid if mark.is_running else None


def free_on_disk(folder: Path) -> int:
    """Free bytes of the disk that `folder` is on, or would be on."""
    with suppress(OSError):
        return shutil.disk_usage(next(each for each in (folder, *folder.parents) if each.exists())).free
    return 0


def next_to_results(store: str | Path | None, name: str) -> Path:
    """The folder of that name next to the results in `store`, or below the system's temporary folder without one."""
    return (Path(tempfile.gettempdir()) / "headroom" if store is None else Path(store)) / name

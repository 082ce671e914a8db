"""Files that a user names: found and read with a bound, or refused in one line; written whole or not at all."""

import errno
import os
import secrets
import stat
from pathlib import Path

from cache.files import InvalidFile, read_bytes, replacing
from engine.errors import HeadroomError, UsageError

MOST_BYTES = 2_000_000_000  # of one file of rows


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

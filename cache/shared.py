"""`SharedFolder`: results that many machines share, a file each in a folder.

No database, no lock, no index: nothing that a network file system could break. The digest of a key names its file, in a
folder of its first two letters; the file holds the key, the result, and a digest of both, which every read checks. It
is written aside and renamed: there is the whole of it or nothing. If two write the same key, either result remains.
"""

import errno
import hashlib
import os
import re
import secrets
import stat
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from cache.disk import CorruptEntry
from cache.files import InvalidFile, read_bytes, replacing

FOLDER = "results"  # within the address, so that other files may be next to it
DATABASE = "cache.db"  # what a store has, and shared results have not
MAGIC = b"HS1\0"
DIGEST_BYTES, LENGTH_BYTES = 16, 4
HEADER_BYTES = len(MAGIC) + DIGEST_BYTES + LENGTH_BYTES
MOST_REASON = 200  # characters of an error: some packages list every place where they looked for a library
HEAD_BYTES = 1_000  # of a file, within which its key is
MAX_BYTES = 500_000_000  # of a result with questions or patterns
MAX_BYTES_OF_OTHERS = 100_000_000
LARGE_KINDS = {"requests", "attention", "attribution", "head in text", "head on probe", "tokenloss"}
PART_AGE_S = 86_400  # what a killed writer left is removed when older: clocks of two machines differ
NAME, FIRST_TWO, PART = re.compile(r"[0-9a-f]{40}"), re.compile(r"[0-9a-f]{2}"), ".part"
# Results alone, under keys that say all that changes them: not views and texts under a name, not what a path meant on
# one machine, and not how long that one took (these are overwritten, or are another machine's news).
TRAVELS = re.compile(r"\d+/(?!(?:rates|cost|speed)/)[^/]+/[0-9a-f]{40}")


OF_ONE_FILE = {errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE}  # what a place that works says of some files


class Unreadable(OSError):
    """A file that cannot be read, of another user's or on a bad block, in a place that is there."""


def travels(key: str) -> bool:
    """Whether what lies under this key holds on any machine, and forever."""
    return TRAVELS.fullmatch(key) is not None


def shown(address: str) -> str:
    """The address as it may be shown: without a password."""
    return re.sub(r"(://[^/:]*):.*@", r"\1:…@", address, flags=re.S)  # a password may hold "@" and "/" too


def reason(error: OSError) -> str:
    """What went wrong, as it may be shown: one line of a bounded length, without a password."""
    return shown(" ".join(str(error.strerror or error).split()))[:MOST_REASON]


def max_bytes(key: str) -> int:
    """Bytes of the largest result that is shared under a key of this kind; a larger file is damaged."""
    return MAX_BYTES if any(f"/{kind}/" in key for kind in LARGE_KINDS) else MAX_BYTES_OF_OTHERS


def name_of(key: str) -> str:
    """The name of a key's file: 40 letters."""
    return hashlib.blake2b(key.encode(), digest_size=20).hexdigest()


def framed(key: str, blob: bytes) -> bytes:
    """What its file holds."""
    name = key.encode()
    rest = len(name).to_bytes(LENGTH_BYTES, "little") + name + blob
    return MAGIC + _digest(rest) + rest


def unframed(name: str, frame: bytes) -> tuple[str, bytes]:
    """(key, blob) of the file of that name; CorruptEntry for anything that `framed` did not make for it."""
    start = len(MAGIC) + DIGEST_BYTES
    if len(frame) < HEADER_BYTES or frame[: len(MAGIC)] != MAGIC or frame[len(MAGIC) : start] != _digest(frame[start:]):
        raise CorruptEntry("the file does not match its digest")
    key, stop = _key_of(frame)
    if stop > len(frame) or name_of(key) != name:
        raise CorruptEntry("the file is another key's")
    return key, frame[stop:]


def _key_of(head: bytes) -> tuple[str, int]:
    """The key in the beginning of a file, and where its result starts; CorruptEntry if it is none of ours."""
    if head[: len(MAGIC)] != MAGIC:
        raise CorruptEntry("the file holds no result")
    stop = HEADER_BYTES + int.from_bytes(head[HEADER_BYTES - LENGTH_BYTES : HEADER_BYTES], "little")
    return head[HEADER_BYTES:stop].decode(errors="replace"), stop


def _digest(rest: bytes) -> bytes:
    return hashlib.blake2b(rest, digest_size=DIGEST_BYTES).digest()


class SharedStore(ABC):
    """Results under text keys in one place that many machines reach. Safe to use from many threads and processes.

    OSError wherever the place does not do what it is asked: it is gone, full, or not to be written to.
    """

    at_once = 8  # reads and writes that are worth having under way together

    def __init__(self, address: str) -> None:
        self.address = shown(address)

    def get(self, key: str) -> bytes | None:
        """The bytes put under `key`, exactly, or None: a damaged file is a miss like a missing one. Unreadable where
        only this one file cannot be read."""
        try:
            found = self.read(name_of(key))
        except CorruptEntry:
            return None
        return found[1] if found is not None and found[0] == key else None

    def put(self, key: str, blob: bytes) -> None:
        """Writes the result, in place of one that was there; when it returns every reader finds it. One that is too
        large to be read there is not shared."""
        if len(blob) > max_bytes(key):
            return
        try:
            self.write(name_of(key), framed(key, blob))
        except PermissionError:  # of another user, who has measured the same
            with suppress(Unreadable):
                if self.get(key) is not None:
                    return
            raise

    def read(self, name: str) -> tuple[str, bytes] | None:
        """(key, blob) of a file; None where there is none, CorruptEntry where it is damaged, Unreadable where it alone
        cannot be read."""
        frame = self.frame(name)
        return None if frame is None else unframed(name, frame)

    @abstractmethod
    def check(self) -> None:
        """OSError where the place itself is not there: a look-up could not tell that from a miss."""

    @abstractmethod
    def frame(self, name: str) -> bytes | None:
        """What the file holds, unchecked; None where there is none, Unreadable where it alone cannot be read."""

    @abstractmethod
    def write(self, name: str, frame: bytes) -> None:
        """Writes a file aside and renames it."""

    @abstractmethod
    def names(self) -> set[str]:
        """The names of all files that are listed: what was put a moment ago may not be among them."""

    @abstractmethod
    def sizes(self, names: Collection[str]) -> dict[str, int]:
        """Bytes of those files that are there."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Deletes a file; no error where it is not there."""

    @abstractmethod
    def remove_parts(self) -> int:
        """Removes what killed writers left more than a day ago; how many files that were."""


class SharedFolder(SharedStore):
    """In a folder of this computer's file system, which a network may hold."""

    def __init__(self, address: str, make: bool = False) -> None:
        super().__init__(address)
        self.base = Path(os.path.expanduser(address)).absolute()
        self.root = self.base / FOLDER
        if make:
            with suppress(FileExistsError):
                os.mkdir(self.base)
        if not self.base.is_dir():
            raise OSError(errno.ENOENT, "the folder does not exist")
        if any((folder / DATABASE).exists() for folder in (self.base, self.root)):
            raise OSError(errno.EEXIST, "it is the result store of one machine; `cache push` there brings it elsewhere")
        self._mode = stat.S_IMODE(self.base.stat().st_mode)  # who may use the folder may use all in it
        self._was_there = False
        self.check()

    def check(self) -> None:
        was_there = self._was_there  # asked first: another thread may make the folder after it is looked for
        if self.root.is_dir():
            self._was_there = True
        elif was_there or not self.base.is_dir():
            raise OSError(errno.ENOENT, "the folder is gone")

    def frame(self, name: str) -> bytes | None:
        for is_last in (False, True):
            try:
                return _read(self._path(name))
            except FileNotFoundError:
                return None
            except OSError as error:
                if error.errno == errno.ESTALE and not is_last:  # of NFS: another machine has just replaced it
                    continue
                if error.errno not in OF_ONE_FILE:
                    raise
                self.check()  # which raises where it is not this file alone
                raise Unreadable(error.errno, error.strerror) from error
        return None

    def write(self, name: str, frame: bytes) -> None:
        path = self._path(name)
        part = f"{path}.{secrets.token_hex(8)}{PART}"
        try:
            with replacing(path, part):
                try:
                    _write(part, frame)
                except FileNotFoundError:  # the first with these two letters
                    self._make(os.path.dirname(path))
                    _write(part, frame)
                with suppress(OSError):  # some disks have no modes
                    os.chmod(part, self._mode & 0o666)
        except FileNotFoundError:  # of NFS: the first answer to the rename was lost, and it was asked for twice
            if not os.path.exists(path):
                raise

    def names(self) -> set[str]:
        self.check()
        return {name for folder in self._folders() for name in _listed_within(folder) if NAME.fullmatch(name)}

    def sizes(self, names: Collection[str]) -> dict[str, int]:
        found = {}
        for name in names:
            try:
                found[name] = os.stat(self._path(name)).st_size
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.errno not in OF_ONE_FILE:
                    raise
                found[name] = 0  # reading it will tell
        return found

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._path(name))

    def remove_parts(self) -> int:
        n, before = 0, time.time() - PART_AGE_S
        for folder in self._folders():
            for name in _listed_within(folder):
                path = os.path.join(folder, name)
                with suppress(FileNotFoundError, PermissionError):
                    if name.endswith(PART) and NAME.match(name) and os.lstat(path).st_mtime < before:
                        os.unlink(path)
                        n += 1
        return n

    def _path(self, name: str) -> str:
        return f"{self.root}{os.sep}{name[:2]}{os.sep}{name}"

    def _folders(self) -> Iterator[str]:
        return (os.path.join(self.root, name) for name in _listed(str(self.root)) if FIRST_TWO.fullmatch(name))

    def _make(self, folder: str) -> None:
        """The two-letter folder. Never those above it once they were there: a disk that is not mounted any more would
        leave a folder of the same name, on the disk below."""
        self.check()
        for path in (str(self.root), folder):
            with suppress(FileExistsError):
                os.mkdir(path)
                with suppress(OSError):
                    os.chmod(path, self._mode)
        self._was_there = True


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _listed_within(folder: str) -> list[str]:
    """Names in a two-letter folder; empty if it is not readable, such as another user's."""
    with suppress(PermissionError):
        return _listed(folder)
    return []


def _read(path: str) -> bytes:
    try:
        key, start = _key_of(read_bytes(path, sys.maxsize, n_bytes=HEAD_BYTES))
        return read_bytes(path, start + max_bytes(key))
    except InvalidFile as error:
        raise CorruptEntry(str(error)) from error


def _write(path: str, content: bytes) -> None:
    with open(path, "xb") as file:  # NFS tells of a full disk when it is closed
        file.write(content)

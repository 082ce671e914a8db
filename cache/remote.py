"""Shared results at an address of fsspec: `s3://bucket/folder`, `ssh://host/folder`, whatever is installed for it; and
`shared_folder`, the results at any address.
"""

import errno
import os
import secrets
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from cache.disk import CorruptEntry
from cache.shared import FOLDER, HEAD_BYTES, MAX_BYTES, NAME, PART, PART_AGE_S, SharedFolder, SharedStore, Unreadable

# stores of objects, where a write is seen when it is whole, and a rename would be a copy
OF_OBJECTS = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci", "hf", "memory"}


class RemoteFolder(SharedStore):
    """Behind an address of fsspec, whose package is imported now."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        with _plain_errors():
            try:
                from fsspec.core import url_to_fs

                self._fs, base = url_to_fs(address, skip_instance_cache=True)  # of a lost connection
            except ImportError as error:
                raise OSError(f"it needs a package that is not installed: {error}") from error
            except ValueError as error:  # no such protocol
                raise OSError(str(error)) from error
        fs: Any = self._fs
        protocols = {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)
        self._is_of_objects = bool(protocols & OF_OBJECTS)
        self.at_once = 16 if fs.async_impl else 1  # other file systems may have one connection for all threads
        self._base, self._root = base.rstrip("/"), f"{base.rstrip('/')}/{FOLDER}"
        self._sizes: dict[str, int] = {}  # as they were last listed
        self.check()

    def check(self) -> None:
        with _plain_errors():
            if not self._is_of_objects and not self._fs.isdir(self._base or "/"):
                raise OSError("the folder does not exist")

    def frame(self, name: str) -> bytes | None:
        if self._sizes.get(name, 0) > HEAD_BYTES + MAX_BYTES:
            raise CorruptEntry("the file is larger than any result")
        with _plain_errors():
            try:
                return self._fs.cat_file(self._path(name))
            except FileNotFoundError:
                return None
            except PermissionError as error:  # listed but not readable; some servers report missing files like this
                raise Unreadable(error.errno, error.strerror or str(error)) from error

    def write(self, name: str, frame: bytes) -> None:
        path = self._path(name)
        with _plain_errors():
            if self._is_of_objects:
                self._fs.pipe_file(path, frame)
                return
            part = f"{path}.{secrets.token_hex(8)}{PART}"
            try:
                try:
                    self._fs.pipe_file(part, frame)
                except FileNotFoundError:  # the first with these two letters
                    self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
                    self._fs.pipe_file(part, frame)
                self._rename(name, part)
            except BaseException:
                with suppress(Exception):
                    self._fs.rm_file(part)
                raise

    def _rename(self, name: str, part: str) -> None:
        path = self._path(name)
        try:
            self._fs.mv(part, path)
        except FileExistsError:  # some do not replace
            self.remove(name)
            self._fs.mv(part, path)

    def names(self) -> set[str]:
        with _plain_errors():
            self._fs.invalidate_cache()  # it would give what it listed before
            found = self._files()
        named = {path.rpartition("/")[2]: info for path, info in found.items()}
        self._sizes = {name: int(info.get("size") or 0) for name, info in named.items() if NAME.fullmatch(name)}
        return set(self._sizes)

    def sizes(self, names: Collection[str]) -> dict[str, int]:
        if not self._sizes.keys() >= set(names):
            self.names()
        return {name: self._sizes[name] for name in names if name in self._sizes}

    def remove(self, name: str) -> None:
        with _plain_errors(), suppress(FileNotFoundError):
            self._fs.rm_file(self._path(name))

    def remove_parts(self) -> int:
        if self._is_of_objects:
            return 0
        n, before = 0, time.time() - PART_AGE_S
        with _plain_errors():
            for path, info in self._files().items():
                written = info.get("mtime")
                written_s = written.timestamp() if hasattr(written, "timestamp") else written
                if path.endswith(PART) and written_s is not None and written_s < before:
                    with suppress(FileNotFoundError):
                        self._fs.rm_file(path)
                        n += 1
        return n

    def _files(self) -> dict[str, Any]:
        try:
            return dict(self._fs.find(self._root, maxdepth=2, detail=True))
        except FileNotFoundError:
            return {}

    def _path(self, name: str) -> str:
        return f"{self._root}/{name[:2]}/{name}"


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Whatever a package for some protocol raises comes out as an OSError."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) from error


def shared_folder(address: str, make: bool = False) -> SharedStore:
    """The results in a folder, or with `://` in the address wherever fsspec and its packages reach; OSError says why
    not. `make` creates the folder if it is missing, and never the one above it."""
    _, is_remote, place = address.partition("://")
    if not (place.strip(" /") if is_remote else address.strip()):
        raise OSError(errno.EINVAL, "the address names no folder")
    if "::" in address and not os.path.isdir(address):
        raise OSError(errno.EINVAL, "addresses chained by :: are not supported")
    return RemoteFolder(address) if is_remote else SharedFolder(address, make)

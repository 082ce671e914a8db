"""`shared_folder`: the shared results at an address."""

import errno
import os

from cache.remote import RemoteFolder
from cache.shared import SharedFolder, SharedStore


def shared_folder(address: str, make: bool = False) -> SharedStore:
    """The results in a folder, or with `://` in the address wherever fsspec and its packages reach; OSError says why
    not. `make` creates the folder if it is missing, and never the one above it."""
    _, is_remote, place = address.partition("://")
    if not (place.strip(" /") if is_remote else address.strip()):
        raise OSError(errno.EINVAL, "the address names no folder")
    if "::" in address and not os.path.isdir(address):
        raise OSError(errno.EINVAL, "addresses chained by :: are not supported")
    return RemoteFolder(address) if is_remote else SharedFolder(address, make)

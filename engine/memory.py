"""What glibc is told about this process's memory; nothing is done under another system or C library."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # of glibc's malloc.h
SMALL, LARGE = 2**20, 2**25  # bytes; LARGE is where glibc's own limit ends up once blocks of that size were freed


def share_arenas() -> None:
    """Has all threads served from two arenas. Streamlit draws each page in a thread of its own, and every arena keeps
    what was freed in it for itself."""
    _call("mallopt", M_ARENA_MAX, 2)


@contextmanager
def freed_at_once() -> Iterator[None]:
    """Context in which every block of a megabyte or more goes back to the system as soon as it is freed. Otherwise a
    load leaves holes between the weights as large as the 16-bit tensors that they were made of. Afterwards blocks up to
    LARGE are kept and used again: passes ask for the same ones over and over."""
    _call("mallopt", M_MMAP_THRESHOLD, SMALL)
    try:
        yield
    finally:
        _call("mallopt", M_MMAP_THRESHOLD, LARGE)
        _call("mallopt", M_TRIM_THRESHOLD, 2 * LARGE)


def return_freed_memory() -> None:
    """Gives the system what glibc keeps of freed tensors: up to the size of the 16-bit weights after a load, and what
    the passes of a long job needed."""
    _call("malloc_trim", 0)


def _call(name: str, *arguments: int) -> None:
    if sys.platform == "linux":
        import ctypes

        libc = ctypes.CDLL(None)
        if hasattr(libc, name):  # not in musl
            getattr(libc, name)(*arguments)

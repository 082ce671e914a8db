"""What glibc is told about this process's memory; nothing is done under another system or C library."""

import sys

M_ARENA_MAX = -8  # of glibc's malloc.h


def share_arenas() -> None:
    """Has all threads served from two arenas. Streamlit draws each page in a thread of its own, and every arena keeps
    what was freed in it for itself."""
    _call("mallopt", M_ARENA_MAX, 2)


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

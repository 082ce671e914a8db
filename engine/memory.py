"""What this process holds, and how it is kept from growing with hours of use: what glibc and torch's kernel libraries
are told; glibc's part is not done under another system or C library."""

import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # of glibc's malloc.h
SMALL, LARGE = 2**18, 2**25  # bytes; LARGE is where glibc's own limit ends up once blocks of that size were freed
# oneDNN keeps compiled code for each shape of a 16-bit or int8 product, ideep (torch's way to oneDNN) what it needs
# in addition: 1,024 shapes each by their own defaults, 0.7 MB a shape in bf16. Under one mask 100 questions have 190
# (PIQA, 0 shots) to 320 (HellaSwag, 5 shots); a shape that is not kept costs a millisecond in the first of the layers.
SHAPES_KEPT = 256
CAPACITIES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
GROWN_BYTES = 200_000_000  # from which freed memory is given back in the middle of a long job


def bound_growth() -> None:
    """To be called before torch is imported: bounds what it keeps by shape, where the user's environment does not, and
    has all threads served from two arenas. Streamlit draws each page in a thread of its own, and every arena keeps what
    was freed in it for itself."""
    for name in CAPACITIES:
        os.environ.setdefault(name, str(SHAPES_KEPT))
    _call("mallopt", M_ARENA_MAX, 2)


@contextmanager
def freed_at_once() -> Iterator[None]:
    """Context in which every block of SMALL bytes or more goes back to the system as soon as it is freed. Otherwise a
    load leaves holes between the weights as large as the 16-bit tensors that they were made of. Afterwards blocks up to
    LARGE are kept and used again: passes ask for the same ones over and over."""
    _call("mallopt", M_MMAP_THRESHOLD, SMALL)
    try:
        yield
    finally:
        _call("mallopt", M_MMAP_THRESHOLD, LARGE)
        _call("mallopt", M_TRIM_THRESHOLD, 2 * LARGE)
        return_freed_memory()


def return_freed_memory() -> None:
    """Gives the system what glibc keeps of freed tensors: up to the size of the 16-bit weights after a load, and what
    the passes of a long job needed."""
    _call("malloc_trim", 0)


class Trimming:
    """Gives freed memory back in the middle of long work, each time that the process has grown by GROWN_BYTES since."""

    def __init__(
        self, held: Callable[[], int] | None = None, give_back: Callable[[], None] = return_freed_memory
    ) -> None:
        self._held, self._give_back = held or resident_bytes, give_back
        self._least: int | None = None

    def trim_if_grown(self) -> None:
        """Called by the measuring thread between two pieces; takes microseconds where there is nothing to do."""
        held = self._held()
        if self._least is not None and held >= self._least + GROWN_BYTES:
            self._give_back()
            held = self._least = self._held()
        self._least = held if self._least is None else min(self._least, held)


def resident_bytes() -> int:
    """Main memory that this process holds."""
    import psutil

    return psutil.Process().memory_info().rss


class Kept(Generic[T]):
    """Values by key, the last used, as long as their sizes sum to `limit` or there is only one. For any thread."""

    def __init__(self, limit: int) -> None:
        self.limit, self.size = limit, 0
        self._values: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._values

    def get(self, key: Hashable, make: Callable[[], T], size_of: Callable[[T], int]) -> T:
        """The value of a key, made where it is not kept."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key][0]
        value = make()  # without the lock: it may take seconds, and making it twice is harmless
        with self._lock:
            if key not in self._values:
                self._values[key] = value, size_of(value)
                self.size += self._values[key][1]
            while self.size > self.limit and len(self._values) > 1:
                self.size -= self._values.popitem(last=False)[1][1]
        return value


def _call(name: str, *arguments: int) -> None:
    if sys.platform == "linux":
        import ctypes

        libc = ctypes.CDLL(None)
        if hasattr(libc, name):  # not in musl
            getattr(libc, name)(*arguments)

"""`push`, `pull`: copies results to and from a shared store; and `verify_shared`.

Only missing results are copied, one at a time, so an interrupted copy resumes. Each is verified when it is read, and
read back after it was written.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from cache.checking import IsReadable, Verified, any_blob
from cache.disk import CorruptEntry
from cache.shared import SharedStore, Unreadable, max_bytes, name_of, travels
from cache.store import Store


@dataclass(frozen=True)
class Missing:
    """What one side has and the other lacks: keys to push, or names of files to pull, each with its bytes; and how many
    results both have."""

    sizes: dict[str, int]
    n_both: int

    @property
    def n_bytes(self) -> int:
        """Of all that is missing."""
        return sum(self.sizes.values())


@dataclass(frozen=True)
class Moved:
    """How far it is: results and bytes that were brought, and how many were left out: damaged, gone meanwhile, or not
    to be read or replaced by this user."""

    n: int = 0
    n_bytes: int = 0
    n_left_out: int = 0


def missing_there(store: Store, shared: SharedStore | None) -> Missing:
    """What a push would bring: the results of the store that are not in the shared place (None: which is yet to be
    made)."""
    ours = {key: n for key, n in store.sizes().items() if travels(key) and n <= max_bytes(key)}
    there = shared.names() if shared is not None else set()
    sizes = {key: n for key, n in ours.items() if name_of(key) not in there}
    return Missing(sizes, len(ours) - len(sizes))


def missing_here(store: Store, shared: SharedStore) -> Missing:
    """What a pull would bring."""
    there = shared.names()
    wanted = there - {name_of(key) for key in store.keys()}
    return Missing(shared.sizes(wanted), len(there) - len(wanted))


def push(store: Store, shared: SharedStore, missing: Missing) -> Iterator[Moved]:
    """How far it is, after each result; OSError where the place cannot be written to."""
    refused: list[OSError] = []

    def one(key: str) -> int | None:
        blob = store.get_here(key)
        if blob is None or not store.is_readable(key, blob):
            return None
        try:
            shared.put(key, blob)
        except PermissionError as error:  # of one folder of many, such as another user's
            refused.append(error)
            return None
        if shared.read(name_of(key)) is None:
            raise OSError("what was written is not there")
        return len(blob)

    moved = Moved()
    for moved in _moved(list(missing.sizes), one, shared.at_once):
        yield moved
    if refused and not moved.n:
        raise refused[0]


def pull(store: Store, shared: SharedStore, missing: Missing) -> Iterator[Moved]:
    """How far it is, after each result; OSError where the place cannot be read, or the store not written to."""

    def one(name: str) -> int | None:
        try:
            found = shared.read(name)
        except (CorruptEntry, Unreadable):
            return None
        if found is None or not travels(found[0]):  # a shared store must not change local views and texts
            return None
        key, blob = found
        if not store.is_readable(key, blob):
            return None
        if not store.put_here(key, blob) or store.get_here(key) != blob:
            raise OSError(store.notice or f"the store in {store.directory} did not keep what was written")
        return len(blob)

    return _moved(list(missing.sizes), one, shared.at_once)


def _moved(wanted: Sequence[str], one: Callable[[str], int | None], at_once: int) -> Iterator[Moved]:
    """Each wanted one brought by `one`, a few under way together; those begun are finished when it is left."""
    moved, under_way = Moved(), deque[Future[int | None]]()

    def ended() -> Moved:
        n_bytes = under_way.popleft().result()
        if n_bytes is None:
            return replace(moved, n_left_out=moved.n_left_out + 1)
        return replace(moved, n=moved.n + 1, n_bytes=moved.n_bytes + n_bytes)

    with ThreadPoolExecutor(at_once, thread_name_prefix="shared results") as pool:
        try:
            for each in wanted:
                under_way.append(pool.submit(one, each))
                if len(under_way) >= 2 * at_once:  # no more than these are in memory
                    moved = ended()
                    yield moved
            while under_way:
                moved = ended()
                yield moved
        finally:
            pool.shutdown(cancel_futures=True)


def verify_shared(shared: SharedStore, is_readable: IsReadable = any_blob) -> Iterator[Verified]:
    """How far it is: every file read, damaged ones removed, and at last what killed writers left."""
    found = Verified()
    for name in sorted(shared.names()):
        try:
            # twice: it may just have been replaced
            is_bad = _is_damaged(shared, name, is_readable) and _is_damaged(shared, name, is_readable)
        except Unreadable:
            found = replace(found, n_unreadable=found.n_unreadable + 1)
            continue
        if is_bad:
            shared.remove(name)
        bad_keys = (*found.bad_keys, *([name] if is_bad else []))
        found = replace(found, n_checked=found.n_checked + 1, bad_keys=bad_keys)
        yield found
    yield replace(found, n_orphans_removed=shared.remove_parts())


def _is_damaged(shared: SharedStore, name: str, is_readable: IsReadable) -> bool:
    try:
        found = shared.read(name)
    except CorruptEntry:
        return True
    return found is not None and not is_readable(*found)

"""What `cache equal` does: two places compared result by result, each the store of a machine or one that many share."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cache import CorruptEntry, Store
from cache.addresses import shared_folder
from cache.shared import DATABASE, Unreadable, name_of, reason, shown, travels
from engine.errors import HeadroomError, UsageError
from engine.files import named
from engine.progress import Progress
from engine.records import difference
from engine.requests.base import RequestRun, Result

OF_A_MACHINE = ("tuning",)  # kinds that travel and say how fast a machine is
MOST_LINES = 10  # of keys, told without --json
Blob = tuple[str, bytes]  # with its key


@dataclass(frozen=True)
class StoreSide:
    """One of two places: the `names` of its results, and what reads the key and bytes of one: None where it is damaged,
    gone, or not to be read."""

    where: str
    names: Mapping[str, str] | set[str]
    read: Callable[[str], Blob | None]


@dataclass(frozen=True)
class StoreComparison:
    """How two places compare so far: results that are equal, and keys of those that are not, with what is another;
    those that only one has."""

    n_equal: int = 0
    different: tuple[tuple[str, str], ...] = ()
    only_first: tuple[str, ...] = ()
    only_second: tuple[str, ...] = ()

    @property
    def are_equal(self) -> bool:
        return not (self.different or self.only_first or self.only_second)


def compare_places(run: RequestRun, where: str, other: str | None) -> Result:
    """How this store and `where` compare, or `where` and `other`; HeadroomError where one cannot be read."""
    if not where:
        raise UsageError("cache equal needs a place to compare with: give a store's folder or a shared place, or two")
    try:
        first = _opened(where) if other else _of_store(run.session.store)
        second = _opened(other or where)
        found = run.last(_steps(first, second))
    except OSError as error:  # of a place that is there
        raise HeadroomError(f"cannot compare all of it ({reason(error)}); try it once more") from error
    if found.are_equal and not found.n_equal:
        raise HeadroomError(f"there are no results in {first.where} and {second.where}; give places that have some")
    fields = {"first": first.where, "second": second.where, "are_equal": found.are_equal, "equal": found.n_equal,
              "different": dict(found.different), "only_first": list(found.only_first),
              "only_second": list(found.only_second)}  # fmt: skip
    return Result(found, fields, "\n".join(_lines(first, second, found)), agrees=found.are_equal)


def _lines(first: StoreSide, second: StoreSide, found: StoreComparison) -> Iterator[str]:
    told = [f"{key}: {what}" for key, what in found.different]
    told += [f"{key}: only in {side.where}" for side, keys in ((first, found.only_first), (second, found.only_second))
             for key in keys]  # fmt: skip
    yield from told[:MOST_LINES]
    if len(told) > MOST_LINES:
        yield f"... and {len(told) - MOST_LINES:,} more, which --json tells"
    yield (f"{found.n_equal:,} results are equal but for when and where they were measured, "
           f"{len(found.different):,} differ, {len(found.only_first):,} are only in {first.where}, "
           f"{len(found.only_second):,} only in {second.where}")  # fmt: skip


def _steps(first: StoreSide, second: StoreSide) -> Iterator[Progress[StoreComparison]]:
    """Yields Progress; both are read, and nothing is held of them."""
    n_equal, different, only = 0, list[tuple[str, str]](), (list[str](), list[str]())
    names = sorted({*first.names, *second.names})
    for number, name in enumerate(names):
        a, b = (side.read(name) if name in side.names else None for side in (first, second))
        key = (a or b or ("", b""))[0]
        if _counts(key):
            if a is None or b is None:
                only[a is None].append(key)
            elif what := difference(a[1], b[1]):
                different.append((key, what))
            else:
                n_equal += 1
        is_last = number + 1 == len(names)
        found = StoreComparison(n_equal, tuple(different), tuple(only[0]), tuple(only[1])) if is_last else None
        yield Progress(number + 1, len(names), found, "results compared")
    if not names:
        yield Progress(1, 1, StoreComparison())


def _counts(key: str) -> bool:
    """Whether it is a result: the same on any machine."""
    return travels(key) and key.split("/")[1] not in OF_A_MACHINE


def _opened(where: str) -> StoreSide:
    """The store of a machine where that folder is one, else what many share; HeadroomError where neither is there."""
    folder = Path(where) if "://" in where else named(where, "folder")
    if "://" not in where and (folder / DATABASE).exists():
        folder = folder.parent  # its results themselves were named
    if "://" not in where and (folder / "results" / DATABASE).exists():
        return _of_store(Store(folder))
    try:
        shared = shared_folder(where if "://" in where else str(folder))
    except OSError as error:
        why = f"cannot use {shown(where)} ({error.strerror or error})"
        raise HeadroomError(f"{why}; give a store's folder, or a place that machines share") from error

    def read(name: str) -> Blob | None:
        with suppress(CorruptEntry, Unreadable):
            return shared.read(name)
        return None

    return StoreSide(shared.address, shared.names(), read)


def _of_store(store: Store) -> StoreSide:
    keys = {name_of(key): key for key in store.keys() if _counts(key)}

    def read(name: str) -> Blob | None:
        blob = store.get_here(keys[name])
        return None if blob is None else (keys[name], blob)

    return StoreSide(str(store.directory), keys, read)

"""Results that many machines share: what `cache equal`, `cache push`, `cache pull` and `cache verify WHERE` do."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cache import CorruptEntry, Store, exchange
from cache.remote import shared_folder
from cache.shared import DATABASE, SharedStore, Unreadable, name_of, reason, shown, travels
from engine.errors import HeadroomError, UsageError
from engine.files import named
from engine.progress import Progress
from engine.records import difference
from engine.requests.base import RequestRun, Result

REFUSED = "give a folder that is there, or an address such as s3://BUCKET/FOLDER"


def exchanged(run: RequestRun, action: str, where: str, dry_run: bool) -> Result:
    """What pushing, pulling or verifying gives; HeadroomError or UsageError as one line."""
    if not where:
        raise UsageError(f"cache {action} needs a place that machines share: {REFUSED}, or set HEADROOM_SHARED")
    if "://" not in where:
        where = str(named(where, "folder"))
    try:
        if action == "verify":
            return _verified(run, where)
        return _pushed(run, where, dry_run) if action == "push" else _pulled(run, where, dry_run)
    except OSError as error:
        words = {"push": "push to", "pull": "pull from", "verify": "verify"}[action]
        what = f"cannot {words} {shown(where)} ({reason(error)})"
        raise HeadroomError(f"{what}; what was brought stays, the same command goes on from there") from error


def _pushed(run: RequestRun, where: str, dry_run: bool) -> Result:
    store, is_path = run.session.store, "://" not in where and "::" not in where
    is_to_be_made = is_path and not os.path.exists(where) and os.path.isdir(os.path.dirname(where) or ".")
    shared = None if dry_run and is_to_be_made else _opened(where, make=not dry_run)
    missing = exchange.missing_there(store, shared)
    moving = None if dry_run or shared is None else partial(exchange.push, store, shared, missing)
    return _brought(run, where, missing, moving, shown(where), (f"to {shown(where)}", "cache verify"))


def _pulled(run: RequestRun, where: str, dry_run: bool) -> Result:
    store, shared = run.session.store, _opened(where)
    missing = exchange.missing_here(store, shared)
    if not missing.sizes and not missing.n_both:
        raise HeadroomError(f"{shared.address} has no results; `headroom cache push` copies them there from "
                            "the machine that has them")  # fmt: skip
    moving = None if dry_run else partial(exchange.pull, store, shared, missing)
    words = f"from {shown(where)}", f"cache verify {shown(where)}"
    return _brought(run, where, missing, moving, "the store here", words)


def _brought(
    run: RequestRun, where: str, missing: exchange.Missing, moving: Any, lacks: str, words: tuple[str, str]
) -> Result:
    """Copies the missing results by `moving` (None: only reports them). `words`: the direction, and the command that
    removes damaged results."""
    n = len(missing.sizes)
    fields = {"dry_run": moving is None, "where": shown(where), "missing": n, "missing_bytes": missing.n_bytes,
              "in_both": missing.n_both}  # fmt: skip
    if moving is None:
        size = f"{missing.n_bytes / 1e6:,.1f} MB"
        line = f"{_results(n)} ({size}) missing in {lacks}, {missing.n_both:,} in both; nothing was brought"
        return Result(missing, fields, line)
    moved = run.last(_steps(moving(), missing)) if n else exchange.Moved()
    line = f"{_results(moved.n)} ({moved.n_bytes / 1e6:,.1f} MB) brought {words[0]}, {missing.n_both:,} in both before"
    if moved.n_left_out:
        line += f"; {moved.n_left_out:,} left out: gone, refused, or damaged, which `headroom {words[1]}` removes"
    counts = {"brought": moved.n, "brought_bytes": moved.n_bytes, "left_out": moved.n_left_out}
    return Result(moved, fields | counts, line)


def _results(n: int) -> str:
    return f"{n:,} result{'' if n == 1 else 's'}"


def _steps(moving: Iterator[exchange.Moved], missing: exchange.Missing) -> Iterator[Progress[exchange.Moved]]:
    total, n_bytes = len(missing.sizes), max(1, missing.n_bytes)
    for moved in moving:
        words = f"results, {moved.n_bytes / 1e6:,.1f} of {n_bytes / 1e6:,.1f} MB"
        yield Progress(moved.n + moved.n_left_out, total, moved, words)


def _verified(run: RequestRun, where: str) -> Result:
    shared = _opened(where)
    total = len(shared.names())
    found = run.last(Progress(each.n_checked, max(total, each.n_checked), each, "files checked")
                     for each in exchange.verify_shared(shared, run.session.store.is_readable))  # fmt: skip
    text = (f"{found.n_checked} files checked, {len(found.bad_keys)} damaged and deleted, "
            f"{found.n_orphans_removed} half-written ones removed")  # fmt: skip
    text += f", {found.n_unreadable} cannot be read by this user" if found.n_unreadable else ""
    fields = {"checked": found.n_checked, "damaged": list(found.bad_keys), "orphans_removed": found.n_orphans_removed,
              "unreadable": found.n_unreadable}  # fmt: skip
    return Result(found, fields, text)


def _opened(where: str, make: bool = False) -> SharedStore:
    try:
        return shared_folder(where, make)
    except OSError as error:
        raise HeadroomError(f"cannot use {shown(where)} ({reason(error)}); {REFUSED}") from error


OF_A_MACHINE = ("tuning",)  # kinds that travel and say how fast a machine is
MOST_LINES = 10  # of keys, printed without --json
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
    """How two places compare so far: results that are equal, and keys of those that are not, with the difference; those
    that only one has."""

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
        first = _side(where) if other else _of_store(run.session.store)
        second = _side(other or where)
        found = run.last(_comparison_steps(first, second))
    except OSError as error:  # of a place that is there
        raise HeadroomError(f"cannot compare all of it ({reason(error)}); try it once more") from error
    if found.are_equal and not found.n_equal:
        raise HeadroomError(f"{first.where} and {second.where} have no results; use places that have some")
    fields = {"first": first.where, "second": second.where, "are_equal": found.are_equal, "equal": found.n_equal,
              "different": dict(found.different), "only_first": list(found.only_first),
              "only_second": list(found.only_second)}  # fmt: skip
    return Result(found, fields, "\n".join(_comparison_lines(first, second, found)), agrees=found.are_equal)


def _comparison_lines(first: StoreSide, second: StoreSide, found: StoreComparison) -> Iterator[str]:
    lines = [f"{key}: {what}" for key, what in found.different]
    lines += [f"{key}: only in {side.where}" for side, keys in ((first, found.only_first), (second, found.only_second))
             for key in keys]  # fmt: skip
    yield from lines[:MOST_LINES]
    if len(lines) > MOST_LINES:
        yield f"... and {len(lines) - MOST_LINES:,} more, see --json"
    yield (f"{found.n_equal:,} results are equal but for when and where they were measured, "
           f"{len(found.different):,} differ, {len(found.only_first):,} are only in {first.where}, "
           f"{len(found.only_second):,} only in {second.where}")  # fmt: skip


def _comparison_steps(first: StoreSide, second: StoreSide) -> Iterator[Progress[StoreComparison]]:
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


def _side(where: str) -> StoreSide:
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

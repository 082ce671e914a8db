"""Results that many machines share: what `cache push`, `cache pull` and `cache verify WHERE` do."""

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

from cache import exchange
from cache.remote import shared_folder
from cache.shared import SharedStore, reason, shown
from engine.errors import HeadroomError, UsageError
from engine.files import named
from engine.progress import Progress
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

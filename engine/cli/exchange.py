"""What `cache push`, `cache pull` and `cache verify WHERE` do: the results that many machines share."""

import os
from argparse import Namespace
from collections.abc import Iterator
from functools import partial
from typing import Any

from cache import Store, Verified, exchange
from cache.addresses import shared_folder
from cache.shared import SharedStore, reason, shown
from engine.cli.output import Report, last, print_result
from engine.errors import HeadroomError, UsageError
from engine.files import named
from engine.progress import Progress

REFUSED = "give a folder that is there, or an address such as s3://BUCKET/FOLDER"


def run(options: Namespace, store: Store, report: Report) -> int:
    """Does it; HeadroomError or UsageError as one line."""
    where = options.where or os.environ.get("HEADROOM_SHARED", "")
    if not where:
        raise UsageError(f"cache {options.action} needs a place that machines share: {REFUSED}, or set HEADROOM_SHARED")
    if "://" not in where:
        where = str(named(where, "folder"))
    action, words = {"push": (_push, "push to"), "pull": (_pull, "pull from"), "verify": (_verify, "verify")}[
        options.action
    ]
    try:
        action(options, store, where, report)
    except OSError as error:
        what = f"cannot {words} {shown(where)} ({reason(error)})"
        raise HeadroomError(f"{what}; what was brought stays, the same command goes on from there") from error
    return 0


def _push(options: Namespace, store: Store, where: str, report: Report) -> None:
    is_path = "://" not in where and "::" not in where
    is_to_be_made = is_path and not os.path.exists(where) and os.path.isdir(os.path.dirname(where) or ".")
    shared = None if options.dry_run and is_to_be_made else _opened(where, make=not options.dry_run)
    missing = exchange.missing_there(store, shared)
    moving = None if shared is None else partial(exchange.push, store, shared, missing)
    _bring(options, where, missing, moving, report)


def _pull(options: Namespace, store: Store, where: str, report: Report) -> None:
    shared = _opened(where)
    missing = exchange.missing_here(store, shared)
    if not missing.sizes and not missing.n_both:
        raise HeadroomError(f"there are no results in {shared.address}; `headroom cache push` brings them there from "
                            "the machine that has them")  # fmt: skip
    _bring(options, where, missing, partial(exchange.pull, store, shared, missing), report)


def _bring(options: Namespace, where: str, missing: exchange.Missing, moving: Any, report: Report) -> None:
    """Brings what is missing, or says of a dry run what that would be."""
    n, pushed = len(missing.sizes), options.action == "push"
    fields = {"where": shown(where), "missing": n, "missing_bytes": missing.n_bytes, "in_both": missing.n_both}
    lacks = shown(where) if pushed else "the store here"
    state = f"{_results(n)} ({missing.n_bytes / 1e6:,.1f} MB) missing in {lacks}, {missing.n_both:,} in both"
    if options.dry_run:
        print_result(options, {"dry_run": True, **fields}, f"{state}; nothing was brought")
        return
    moved = exchange.Moved()
    if n:
        moved, _ = last(_steps(moving(), missing), report)
    done = f"{_results(moved.n)} ({moved.n_bytes / 1e6:,.1f} MB) brought {'to' if pushed else 'from'} {shown(where)}"
    words = f"{done}, {missing.n_both:,} in both before"
    if moved.n_left_out:
        verify = "cache verify" if pushed else f"cache verify {shown(where)}"
        words += f"; {moved.n_left_out:,} left out: gone, refused, or damaged, which `headroom {verify}` removes"
    counts = {"brought": moved.n, "brought_bytes": moved.n_bytes, "left_out": moved.n_left_out}
    print_result(options, {"dry_run": False, **fields, **counts}, words)


def _results(n: int) -> str:
    return f"{n:,} result{'' if n == 1 else 's'}"


def _steps(moving: Iterator[exchange.Moved], missing: exchange.Missing) -> Iterator[Progress[exchange.Moved]]:
    total, n_bytes = len(missing.sizes), max(1, missing.n_bytes)
    for moved in moving:
        words = f"results, {moved.n_bytes / 1e6:,.1f} of {n_bytes / 1e6:,.1f} MB"
        yield Progress(moved.n + moved.n_left_out, total, moved, words)


def _verify(options: Namespace, store: Store, where: str, report: Report) -> None:
    shared = _opened(where)
    total = len(shared.names())
    found, _ = last((Progress(each.n_checked, max(total, each.n_checked), each, "files checked")
                     for each in exchange.verify_shared(shared, store.is_readable)), report)  # fmt: skip
    _print_verified(options, found)


def _print_verified(options: Namespace, found: Verified) -> None:
    text = (f"{found.n_checked} files checked, {len(found.bad_keys)} damaged and deleted, "
            f"{found.n_orphans_removed} half-written ones removed")  # fmt: skip
    text += f", {found.n_unreadable} cannot be read by this user" if found.n_unreadable else ""
    fields = {"checked": found.n_checked, "damaged": list(found.bad_keys), "orphans_removed": found.n_orphans_removed,
              "unreadable": found.n_unreadable}  # fmt: skip
    print_result(options, fields, text)


def _opened(where: str, make: bool = False) -> SharedStore:
    try:
        return shared_folder(where, make)
    except OSError as error:
        raise HeadroomError(f"cannot use {shown(where)} ({reason(error)}); {REFUSED}") from error

"""Sharing of a worker's results: reports problems, and writes pending results at its end."""

import time
from collections.abc import Callable

from cache import Store
from engine.errors import HeadroomError

SHARES_S = 300.0  # that a worker waits at its end for a shared place to come back


def share(store: Store) -> None:
    """Waits until all results are shared, since this machine's disk may vanish with the job. HeadroomError if they
    cannot be."""
    end_s, pause_s = time.monotonic() + SHARES_S, 0.1
    while n := store.share():
        if time.monotonic() >= end_s:
            why = store.trouble or "writing them takes long"
            raise HeadroomError(f"{n:,} results of this worker are only in its own store: {why}; `cache push` "
                                "on this machine copies them")  # fmt: skip
        time.sleep(pause_s)
        pause_s = min(5.0, 2 * pause_s)


def trouble_teller(store: Store, say: Callable[[str], None]) -> Callable[[], None]:
    """Returns a function that reports once that results cannot be shared or stored, and again when that changes. The
    worker continues."""
    said: str | None = None

    def tell() -> None:
        nonlocal said
        if (trouble := store.trouble) != said:
            said = trouble
            say(store.notice or "results are stored and shared again")

    return tell

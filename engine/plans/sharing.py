"""What a worker owes those who wait elsewhere for its results: to say what is wrong, and to share all at its end."""

import time
from collections.abc import Callable

from cache import Store
from engine.errors import HeadroomError

SHARES_S = 300.0  # that a worker waits at its end for a shared place to come back


def share(store: Store) -> None:
    """Waits until all that was measured is shared: this machine's disk may be gone with the job. HeadroomError where
    it cannot be."""
    end_s, pause_s = time.monotonic() + SHARES_S, 0.1
    while n := store.share():
        if time.monotonic() >= end_s:
            why = store.trouble or "writing them takes long"
            raise HeadroomError(f"{n:,} results of this worker are in its own store alone: {why}; `cache push` "
                                "on this machine brings them there")  # fmt: skip
        time.sleep(pause_s)
        pause_s = min(5.0, 2 * pause_s)


def trouble_teller(store: Store, say: Callable[[str], None]) -> Callable[[], None]:
    """What says that results cannot be shared or kept, once and again where that changes: a worker goes on, and whoever
    waits for its results elsewhere should know."""
    said: str | None = None

    def tell() -> None:
        nonlocal said
        if (trouble := store.trouble) != said:
            said = trouble
            say(store.notice or "results are kept and shared again")

    return tell

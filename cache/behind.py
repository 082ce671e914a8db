"""`Behind`: the shared results of a store. Reads that miss in the store look there, and writes go to both.

The store never waits long for them and never fails with them. A place that cannot be reached is retried in the
background, and results that could not be written are written later. Misses, which a screen has by the thousand, may use
at most a tenth of the time; beyond that, a listing of the place decides which keys to look up.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from cache.patience import Patient
from cache.remote import shared_folder
from cache.shared import SharedStore, Unreadable, name_of, reason, shown, travels

RETRY_S = 30  # until a place that failed is tried again; longer if calls hang in it
CHECK_S = 5  # between checks that the place still exists, which a miss does not show
OPEN_S, READ_S, WRITE_S, LISTING_S = 15, 5, 30, 600  # timeouts of one call
SLOWEST = 100_000  # bytes a second that a write may come down to
MISSES_S, MISSES_SHARE = 0.2, 0.1  # seconds of misses at once, and for each second that passes
FIRST_LIST_S = 1  # wait for the first listing, once: results that exist must not be measured again
LIST_S, LIST_SHARE = 30, 0.05  # a list may be so old; and listing takes no more of the time than this
MOST_WANTED = 100_000  # names that were not asked for, remembered so that their coming is noticed


class Behind:
    """The shared results at an address, opened when they are first needed; nothing here raises.

    `held` gives what the store itself has under a key. `n_news` grows when something has come that was looked for in
    vain.
    """

    def __init__(self, address: str, held: Callable[[str], bytes | None]) -> None:
        self.address, self.n_news = address, 0
        self._held = held
        self._shared: SharedStore | None = None
        self._patient = Patient()
        self._reading, self._writing = _State(), _State()
        self._some_reads, self._some_writes = _State(), _State()  # of a place that works, and refuses a few
        self._unread: dict[str, None] = {}  # keys that could not be read
        self._refused: dict[str, None] = {}  # or written
        self._checked_s = float("-inf")
        self._owed: dict[str, None] = {}  # keys that were not written, oldest first
        self._chore: threading.Thread | None = None
        self._lock = threading.Lock()  # guards the fields below
        self._may_miss_s, self._since_s = float(MISSES_S), time.monotonic()
        self._names: set[str] | None = None  # as they were last listed
        self._list_at_s = float("-inf")
        self._is_listed = threading.Event()  # or has failed to be
        self._n_changes = 0  # from list to list
        self._wanted: dict[str, None] = {}  # not listed when they were wanted

    @property
    def notice(self) -> str | None:
        """One plain line; None when all is well."""
        owed = f"; not written yet: {self.n_owed:,} (`headroom cache push` does it too)" if self.n_owed else ""
        return f"{trouble}{owed}" if (trouble := self.trouble) is not None else None

    @property
    def trouble(self) -> str | None:
        """The notice without what grows: another where something has changed."""
        reasons = {"read": self._reading.reason, "written": self._writing.reason}
        some = "" if any(reasons.values()) else "some "
        if some:
            reasons = {"read": self._some_reads.reason, "written": self._some_writes.reason}
        done = [what for what, reason in reasons.items() if reason]
        if not done:
            return None
        why = f"{reasons['written'] or reasons['read']} ({shown(self.address)})"
        return f"{some}shared results cannot be {' or '.join(done)}: {why}; tried again every {RETRY_S} seconds"

    def get(self, key: str) -> bytes | None:
        """The bytes under `key`, or None: not there, damaged, not to be reached, or not worth a look now."""
        if not travels(key):
            return None
        if self._reading.reason is not None:
            if self._reading.is_due():
                self._begin(partial(self._look_again, key))
            return None
        if not self._worth_asking(name_of(key)):
            return None
        began_s = time.monotonic()
        try:
            found = self._call(READ_S, self._get, key)
        except Unreadable as error:  # a miss, and the others are read
            found = None
            if len(self._unread) < MOST_WANTED:
                self._unread[key] = None
            self._some_reads.failed(error, 0)
        except OSError as error:
            self._reading.failed(error, self._patient.n_late)
            return None
        if found is not None:
            self._unread.pop(key, None)
            self._some_reads.reason = self._some_reads.reason if self._unread else None
        else:
            with self._lock:
                self._may_miss_s = max(-MISSES_S, self._may_miss_s - (time.monotonic() - began_s))
        return found

    def put(self, key: str, blob: bytes) -> None:
        """Writes a result; if that fails, it is pending."""
        if not travels(key):
            return
        self._owed[key] = None
        if self._writing.reason is not None:
            if self._writing.is_due():
                self._begin(partial(self._pay, True))
            return
        is_due = bool(self._refused) and self._some_writes.is_due()
        if self._sent(key, blob) and (self._owed or is_due):
            self._begin(partial(self._pay, is_due))

    def stamp(self) -> str:
        """Changes with what anybody puts there, half a minute later; it is listed meanwhile, and not waited for."""
        with self._lock:
            is_old = time.monotonic() > self._list_at_s
        if is_old:
            self._begin(self._list)
        return str(self._n_changes)

    @property
    def n_owed(self) -> int:
        """Results that were put and are not written there yet."""
        return len(self._owed) + len(self._refused)

    def close(self) -> None:
        """Tries once more to write pending results."""
        self.pay()
        self._patient.close()

    def pay(self) -> int:
        """Writes pending results, unless that was tried a moment ago. Returns how many wait for a place that failed;
        rejected results are not counted, as waiting does not help."""
        if (self._owed or self._refused) and (self._writing.reason is None or self._writing.is_due()):
            with suppress(OSError):
                self._patient.call(WRITE_S, self._pay, True)
        return len(self._owed)

    def _call(self, patience_s: float, function: Callable[..., bytes | None], *arguments: object) -> bytes | None:
        """As `Patient.call`; the first call opens the place, and may take as long as that."""
        return self._patient.call(OPEN_S if self._shared is None else patience_s, function, *arguments)

    def _opened(self, failed: bool) -> SharedStore:
        """The place; after a failure only if it is there again."""
        if self._shared is None or (failed and "://" in self.address):  # with a new connection
            self._shared = shared_folder(self.address)
        if failed or time.monotonic() - self._checked_s > CHECK_S:
            self._shared.check()
            self._checked_s = time.monotonic()
        return self._shared

    def _get(self, key: str) -> bytes | None:
        return self._opened(self._reading.reason is not None).get(key)

    def _put(self, key: str, blob: bytes) -> None:
        self._opened(self._writing.reason is not None).put(key, blob)

    def _written(self, key: str) -> None:
        self._writing.reason = None
        self._owed.pop(key, None)
        self._refused.pop(key, None)
        self._some_writes.reason = self._some_writes.reason if self._refused else None
        with self._lock:
            if self._names is not None:
                self._names.add(name_of(key))

    def _worth_asking(self, name: str) -> bool:
        """Whether the next miss may take its time, or this will be none as far as is known."""
        with self._lock:
            now_s = time.monotonic()
            self._may_miss_s = min(MISSES_S, self._may_miss_s + (now_s - self._since_s) * MISSES_SHARE)
            self._since_s = now_s
            if self._may_miss_s > 0 or (self._names is not None and name in self._names):
                return True
            if len(self._wanted) < MOST_WANTED:
                self._wanted[name] = None
            is_old, is_first = now_s > self._list_at_s, self._list_at_s == float("-inf")
            if is_first:
                self._list_at_s = now_s + LIST_S  # other threads do not wait
        if is_old:
            self._begin(self._list)
        return is_first and self._is_listed.wait(FIRST_LIST_S) and name in (self._names or ())

    def _begin(self, chore: Callable[[], None]) -> None:
        """Starts a background task, unless one is running."""
        with self._lock:
            if self._chore is None or not self._chore.is_alive():
                self._chore = threading.Thread(target=chore, daemon=True, name="shared results, a chore")
                self._chore.start()

    def _list(self) -> None:
        began_s = time.monotonic()
        try:
            names = self._patient.call(LISTING_S, lambda: self._opened(self._reading.reason is not None).names())
            self._reading.reason = None
        except OSError as error:
            self._reading.failed(error, self._patient.n_late)
            names = None
        with self._lock:
            now_s = time.monotonic()
            self._list_at_s = now_s + max(LIST_S, (now_s - began_s) / LIST_SHARE)
            if names is not None:
                self._n_changes += names != self._names
                self._names = names
            came = [name for name in self._wanted if name in (names or ())]
            for name in came:
                del self._wanted[name]
        self._is_listed.set()
        self.n_news += bool(came)

    def _look_again(self, key: str) -> None:
        try:
            with suppress(Unreadable):  # the place is there
                self._call(READ_S, self._get, key)
        except OSError as error:
            self._reading.failed(error, self._patient.n_late)
            return
        self._reading.reason = None
        self.n_news += 1  # whatever was looked for meanwhile may be there

    def _pay(self, refused_too: bool) -> None:
        """Writes pending results, and retries rejected ones when they are due."""
        for key in [*self._owed, *(self._refused if refused_too else ())]:
            blob = self._held(key)
            if blob is None:  # deleted since
                self._owed.pop(key, None)
                self._refused.pop(key, None)
                continue
            if not self._sent(key, blob):
                return

    def _sent(self, key: str, blob: bytes) -> bool:
        """Whether the place works: the result was written, or only this one was rejected; otherwise it stays
        pending."""
        try:
            self._call(_patience_s(blob), self._put, key, blob)
        except PermissionError as error:  # of another user's folder, which must not keep the others back
            self._refused[key] = None
            self._owed.pop(key, None)
            self._some_writes.failed(error, 0)
            return True
        except OSError as error:
            self._writing.failed(error, self._patient.n_late)
            return False
        self._written(key)
        return True


def _patience_s(blob: bytes) -> float:
    return WRITE_S + len(blob) / SLOWEST


class _State:
    """How reading, or writing, goes: `reason` says why it does not."""

    reason: str | None = None

    def __init__(self) -> None:
        self._again_s = float("-inf")

    def is_due(self) -> bool:
        """Whether a place that failed has been left alone long enough; for the first who asks then, and no other."""
        now_s = time.monotonic()
        if now_s < self._again_s:
            return False
        self._again_s = now_s + RETRY_S
        return True

    def failed(self, error: OSError, n_late: int) -> None:
        """Has it left alone, and longer while calls hang in it."""
        self.reason = reason(error)
        self._again_s = time.monotonic() + RETRY_S * 2 ** min(n_late, 5)

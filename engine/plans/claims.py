"""Leases on cells, and finished cells, as files in a folder that all workers of a plan can access.

Only worker N writes `workers/N.jsonl`, a line for each finished cell. The file `claims/ab/ID.G` is a claim on cell ID,
held by the worker that created it first; the file system lets only one create it. While the cell is measured, the
worker renews the file's time, by the clock of the file system (which processes that only read get from the file
`clock`), not by the machines' clocks. A claim that was not renewed for a lease is taken over by creating the next one,
G + 1. Nothing is ever deleted, which avoids races. Two workers with the same cell (one was suspended for longer than
its lease) do no harm, because results are stored by content.
"""

import json
import os
import platform
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cache.files import InvalidFile, read_bytes
from cache.typed_json import Count, convert, decode_json
from engine.errors import HeadroomError

LEASE_S = 120.0  # a file system on the network may show a time a minute late
RENEWALS = 6  # in a lease
MAX_LOG_BYTES, MAX_CLAIM_BYTES = 100_000_000, 20
NUMBER = re.compile(r"[0-9]{1,9}")  # of a worker or of a claim, in the name of a file


@dataclass(frozen=True)
class Note:
    """A cell that is settled: by which worker, when, in how many seconds; `cached`: all of it was stored already;
    `failed`: why it cannot be measured, "" where it was."""

    cell: str
    worker: int
    at: float
    seconds: float = 0.0
    cached: bool = False
    failed: str = ""


@dataclass(frozen=True)
class Began:
    """What a worker says of itself first: its machine, its process, and when it began."""

    host: str
    pid: Count
    began: float = 0.0

    @property
    def process(self) -> tuple[str, int]:
        """Machine and process."""
        return self.host, self.pid


@dataclass(frozen=True)
class _Ended:
    """A cell of which a worker has ended, and the error."""

    ended: str
    why: str
    at: float


@dataclass(frozen=True)
class ClaimState:
    """A claim as it stands: of which worker, and whether it was renewed within its lease (`is_live`)."""

    cell: str
    worker: int
    is_live: bool


class Claims:
    """What one process knows of a folder of claims; `join` makes a worker of it."""

    def __init__(self, folder: str | Path, lease_s: float = LEASE_S, retry: bool | Mapping[int, int] = False) -> None:
        """`retry`: what has failed until now is free again, or what another's `retried` says."""
        self.folder, self.lease_s = Path(folder), lease_s
        self.notes: list[Note] = []  # every line that says a cell is settled, in no order over workers
        self.settled: dict[str, Note] = {}
        self.workers: dict[int, Began] = {}  # what each said of itself first
        self.left: set[int] = set()  # that have ended, and said so
        self.number: int | None = None  # of this worker
        self._retries = retry is True  # cells that failed before, which are read first, are free again
        self._before: Mapping[int, int] = {} if isinstance(retry, bool) else retry
        self._read: dict[int, int] = {}  # bytes of each worker's log
        self._seen: dict[int, float] = {}  # when each was written to or renewed
        self._ended: set[str] = set()  # cells of which a worker has ended
        self._ahead_s: float | None = None  # the file system's clock against this machine's
        self._held: Path | None = None

    def refresh(self) -> None:
        """Reads what all workers have written since. What cannot be read now, as on a network that stumbles, is read
        the next time."""
        if self.number is None and self._ahead_s is None:
            self._ahead_s = self._clock_s()
        with suppress(OSError):
            for number, found in self._logs():
                self._seen[number] = found.st_mtime
                with suppress(OSError, InvalidFile):
                    self._read_log(number, found.st_size)
            self._retries = False

    def _read_log(self, number: int, n_bytes: int) -> None:
        at = self._read.get(number, 0)
        if n_bytes <= at:
            return
        lines = read_bytes(self._log_of(number), MAX_LOG_BYTES, at)
        whole = lines.rfind(b"\n") + 1  # a last line may be half written
        self._read[number] = at + whole
        for line in lines[:whole].splitlines(keepends=True):
            at += len(line)
            with suppress(InvalidFile):  # half a line of a killed worker, or none of ours
                self._hear(number, line, self._retries or at <= self._before.get(number, 0))

    def retried(self) -> dict[int, int]:
        """The bytes of each worker's log whose failed cells are free again, so that other workers can retry the same.
        To be called first."""
        if not self._retries:
            return {}
        self.refresh()
        return dict(self._read)

    def join(self) -> int:
        """The number of this process among the workers; HeadroomError where nothing can be written."""
        try:
            (self.folder / "workers").mkdir(parents=True, exist_ok=True)
            number = sum(1 for _ in self._logs())
            while not _made(file := self._log_of(number)):
                number += 1
            self._ahead_s = file.stat().st_mtime - time.time()
        except OSError as error:
            raise self.refused(error) from error
        self.number = number
        if self._retries:
            self.refresh()
        self._tell({"host": platform.node(), "pid": os.getpid(), "began": time.time()})
        return number

    def take(self, cell: str) -> bool:
        """Claims a cell that was never claimed; False if it was."""
        return self._claim(cell, 1)

    def take_over(self, cell: str) -> bool:
        """Claims a cell whose last claim was not renewed for a lease; False where it was, or another one is faster."""
        hand = 0
        try:
            while (there := self._claim_of(cell, hand + 1)).exists():
                hand, last = hand + 1, there
            is_free = not hand or self._age_s(last.stat().st_mtime) > self.lease_s
        except OSError:  # not to be seen now: it is looked at again
            return False
        return is_free and self._claim(cell, hand + 1)

    def renew(self) -> None:
        """Says that this worker is there, and that the cell in hand is still being measured."""
        for file in (self._held, None if self.number is None else self._log_of(self.number)):
            if file is not None:
                with suppress(OSError):  # the folder was deleted: results are stored anyway
                    os.utime(file)

    def silent_s(self, number: int) -> float:
        """Seconds since a worker has said that it is there."""
        return self._age_s(self._seen[number])

    def settle(self, cell: str, seconds: float, cached: bool = False, failed: str = "") -> None:
        """Says what became of the cell in hand."""
        note = Note(cell, -1 if self.number is None else self.number, time.time(), round(seconds, 4), cached, failed)
        self._tell({name: value for name, value in asdict(note).items() if name != "worker"})
        self.settled[cell] = note
        if failed:
            self.let_go()  # a retry need not wait
        self._held = None

    def let_go(self, ended_by: str = "") -> None:
        """Leaves the cell in hand to others; `ended_by` is the error of which this worker ends."""
        held, self._held = self._held, None
        if held is None:
            return
        if ended_by:
            self._tell({"ended": held.name.split(".")[0], "why": ended_by, "at": time.time()})
        with suppress(OSError):
            os.utime(held, (0, 0))

    def leave(self) -> None:
        """Says that this worker takes no more."""
        with suppress(HeadroomError):
            self._tell({"left": time.time()})

    def release(self, number: int, ended_by: str = "") -> list[str]:
        """Releases the cells of worker `number` at once and notes that it takes no more; to be called once it has
        ended. Returns these cells. `ended_by`: the error, which these cells may have caused, as in `let_go`."""
        self.refresh()
        freed = []
        for cell, file in self._last_claims().items():
            with suppress(OSError, InvalidFile):
                if read_bytes(file, MAX_CLAIM_BYTES) == str(number).encode():
                    os.utime(file, (0, 0))
                    freed.append(cell)
        with suppress(HeadroomError):
            for cell in freed if ended_by else ():
                self._tell({"ended": cell, "why": ended_by, "at": time.time()}, number)
            self._tell({"left": time.time()}, number)
        return freed

    def refused(self, error: OSError) -> HeadroomError:
        """The error if the folder is not writable."""
        return HeadroomError(f"cannot write to {self.folder} ({error.strerror}); choose another folder with --claims")

    def hands(self) -> Iterator[ClaimState]:
        """The last claim on every cell that is not settled."""
        for cell, file in self._last_claims().items():
            with suppress(OSError, ValueError):
                is_live = self._age_s(file.stat().st_mtime) <= self.lease_s
                yield ClaimState(cell, int(read_bytes(file, MAX_CLAIM_BYTES) or b"-1"), is_live)

    def _last_claims(self) -> dict[str, Path]:
        """The file of the last claim on every cell that is not settled."""
        found: dict[str, tuple[int, Path]] = {}
        for file in (self.folder / "claims").glob("*/*"):
            cell, _, turn = file.name.partition(".")
            if cell not in self.settled and NUMBER.fullmatch(turn):
                found[cell] = max(found.get(cell, (0, file)), (int(turn), file))
        return {cell: file for cell, (_, file) in found.items()}

    def _hear(self, number: int, line: bytes, is_free: bool) -> None:
        """Reads one line of a worker's log; a failed cell `is_free` to be retried. InvalidFile: it is not such a
        line."""
        found = decode_json(line, dict[str, Any], number)
        if "host" in found:
            self.workers[number] = convert(found, Began, number)
        elif "left" in found:
            self.left.add(number)
        elif "ended" in found:
            ended = convert(found, _Ended, number)
            if not is_free:
                if ended.ended in self._ended:  # not the first that it has ended
                    failed = Note(ended.ended, number, ended.at, failed=ended.why)
                    self.settled.setdefault(ended.ended, failed)
                self._ended.add(ended.ended)
        else:
            note = convert(found | {"worker": number}, Note, number)
            if note.failed and is_free:
                return
            self.notes.append(note)
            if note.cell not in self.settled or self.settled[note.cell].failed:
                self.settled[note.cell] = note

    def _claim(self, cell: str, turn: int) -> bool:
        file = self._claim_of(cell, turn)
        try:
            if not _made(file, f"{self.number}".encode()):
                return False
        except OSError as error:
            raise self.refused(error) from error
        self._held = file
        return True

    def _age_s(self, at_s: float) -> float:
        return max(0.0, time.time() + (self._ahead_s or 0.0) - at_s)

    def _clock_s(self) -> float:
        """How far the file system's clock is ahead, for one who only looks on; 0 where it cannot be asked."""
        file = self.folder / "clock"
        try:
            # opening a pipe without a reader would block
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT | getattr(os, "O_NONBLOCK", 0), 0o666))
            os.utime(file)
            return file.stat().st_mtime - time.time()
        except OSError:
            return 0.0

    def _tell(self, fields: Mapping[str, Any], number: int | None = None) -> None:
        """Writes a line to this worker's log, or to that of a worker that has ended, maybe in the middle of a line."""
        before, number = (b"", self.number) if number is None else (b"\n", number)
        assert number is not None, "a worker joins first"
        try:
            with open(self._log_of(number), "ab") as log:
                log.write(before + json.dumps(fields).encode() + b"\n")
        except OSError as error:
            raise self.refused(error) from error

    def _logs(self) -> Iterator[tuple[int, os.stat_result]]:
        """Every worker's number, with the state of its log."""
        try:
            with os.scandir(self.folder / "workers") as found:
                for entry in found:
                    if entry.name.endswith(".jsonl") and NUMBER.fullmatch(entry.name[:-6]):
                        yield int(entry.name[:-6]), entry.stat()
        except FileNotFoundError:
            return  # no worker has started

    def _log_of(self, number: int) -> Path:
        return self.folder / "workers" / f"{number}.jsonl"

    def _claim_of(self, cell: str, turn: int) -> Path:
        return self.folder / "claims" / cell[:2] / f"{cell}.{turn}"


@contextmanager
def renewing(claims: Claims) -> Iterator[None]:
    """While open, whatever the worker has in hand is renewed."""
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(claims.lease_s / RENEWALS):
            claims.renew()

    threading.Thread(target=renew, name="headroom-lease", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _made(file: Path, content: bytes = b"") -> bool:
    """Makes a file that was not there; False where it was."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        descriptor = os.open(file, flags, 0o666)
    except FileExistsError:
        return False
    except FileNotFoundError:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(file, flags, 0o666)
        except FileExistsError:
            return False
    with open(descriptor, "wb") as opened:
        opened.write(content)
    return True

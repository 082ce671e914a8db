"""The worker as a Ray actor: the same as `headroom work`, started by a driver that may be on another machine.

Arguments and return values are plain values. Results go only into the store, and cells are claimed as by any worker.
"""

import hashlib
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cache.store import Store, default_directory
from engine.errors import HeadroomError, NotHere, one_line, unforeseen
from engine.files import read_regular
from engine.memory import bound_growth
from engine.models.session import Session
from engine.plans.cells import read_plan
from engine.plans.claims import Claims
from engine.plans.measuring import Here, in_line, measure_all, other_fields
from engine.progress import tell
from engine.questions.tasks import agree_to_fetch
from engine.receipts import is_readable


@dataclass(frozen=True)
class Errand:
    """The arguments of every actor: the driver's machine (`host`) and folder, the plan's file and the digest of what it
    holds, the folder of claims and in it a file that the driver has made (`mark`); the folder of the result store, the
    results that are shared, and the key of a record that the driver has put there (`meeting`)."""

    host: str
    folder: str
    plan: str
    digest: str
    claims: str
    mark: str
    lease_s: float
    retried: Mapping[int, int]
    cache: str
    has_cache: bool  # a folder that the user has named; else it is that of the driver's machine alone
    shared: str | None
    meeting: str
    model: str | None = None
    data_dir: str | None = None
    may_fetch: bool = False  # rows of tasks, from the hub

    @property
    def directory(self) -> str | Path:
        """Of the result store on this machine."""
        is_here = self.has_cache or self.host == platform.node()
        return self.cache if is_here else os.environ.get("HEADROOM_CACHE") or default_directory()


class Actor:
    """One worker: what it is at (`now`), and the lines that it has for the user (`lines`)."""

    def __init__(self, errand: Mapping[str, Any]) -> None:
        self.now = ""
        self.lines: list[str] = []
        self.errand = Errand(**errand)

    def join(self) -> dict[str, Any]:
        """Looks whether all is here that it takes, before anything is claimed: "differs" says what about the numbers
        is other here than where the plan was written, "refused" why this machine cannot help."""
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        bound_growth()
        agree_to_fetch(self.errand.may_fetch)
        try:
            self._look()
            return {"differs": self._open()}
        except Exception as error:
            return _refused(error)

    def work(self) -> dict[str, Any]:
        """Takes cells until none is left, and shares what it measured. "refused": this machine cannot, "ended": the
        error that has ended it, where another may do better; "lines" for the user."""
        tell.set(lambda done, total, message, left_s: self.hear(done, message))
        agree_to_fetch(self.errand.may_fetch)  # again: Ray may call each method in a thread of its own
        answer: dict[str, Any] = {}
        try:
            measure_all(self._session, self.plan, self.claims, self._here, self.hear, self.lines.append)
        except HeadroomError as error:
            answer = _refused(error)
        except BaseException as error:  # a panic in Rust code is a BaseException
            answer = {"ended": unforeseen(error)}
        self._session.store.close()
        return answer | {"lines": self.lines}

    def hear(self, done: int, message: str) -> None:
        """Keeps what it is at."""
        self.now = message

    def _look(self) -> None:
        """HeadroomError where the plan or the folder of claims is not the driver's."""
        errand = self.errand
        if os.path.isdir(errand.folder):
            os.chdir(errand.folder)  # paths in a plan are relative to where it is worked on
        if digest_of(errand.plan) != errand.digest:
            raise HeadroomError(f"{errand.plan} is another plan there; have it on a disk that all machines see")
        if not os.path.exists(errand.mark):
            line = f"the folder of claims {errand.claims} is not there, or is another"
            raise HeadroomError(f"{line}; choose one that all machines see with --claims")
        self.plan, self.claims = read_plan(errand.plan), Claims(errand.claims, errand.lease_s, errand.retried)

    def _open(self) -> str:
        """Differences between this machine and the one where the plan was written; HeadroomError if the store is not
        the driver's."""
        errand = self.errand
        store = Store(errand.directory, errand.shared, is_readable)
        _meet(store, errand)
        self._session, self._here = Session(store), Here(errand.model, errand.data_dir)
        return in_line(other_fields(self._session, self.plan, self._here))


def digest_of(plan: str) -> str:
    """Of what the file holds; HeadroomError where there is none."""
    try:
        return hashlib.blake2b(read_regular(Path(plan)), digest_size=16).hexdigest()
    except OSError as error:
        line = f"cannot read the plan {plan} ({error.strerror})"
        raise HeadroomError(f"{line}; have it on a disk that all machines see") from error


def _meet(store: Store, errand: Errand) -> None:
    """HeadroomError if the driver would not find the results stored here."""
    if store.get_here(errand.meeting) is not None:
        return
    if store.get(errand.meeting) is None:
        store.close()
        why = f" ({store.notice})" if store.notice else ""
        line = f"results that are stored there are not found here{why}"
        raise HeadroomError(f"{line}; set HEADROOM_SHARED to a folder or an address that all machines reach")
    store.delete(errand.meeting)  # the copy of this machine


def _refused(error: Exception) -> dict[str, Any]:
    line = one_line(error) if isinstance(error, HeadroomError) else unforeseen(error)
    return {"refused": line, "away": error.model if isinstance(error, NotHere) else None}

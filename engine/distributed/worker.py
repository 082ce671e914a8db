"""A worker: measures with one model and with records in memory, in a process that Ray has started."""

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

from cache import Store
from cache.store import default_directory
from engine.errors import HeadroomError, one_line, unforeseen
from engine.kernels.kernel_choice import PINNED, pinned_as
from engine.measurement import Call
from engine.memory import bound_growth
from engine.models.session import Session, Target
from engine.progress import returned
from engine.records import travels


class MemoryStore:
    """Records in memory, as a `Store` gives them. What is read of a store behind it is held too."""

    def __init__(self, directory: Path, behind: Store | None = None) -> None:
        self.directory, self._behind = directory, behind
        self.records, self.made = dict[str, bytes](), dict[str, bytes]()

    def get(self, key: str) -> bytes | None:
        """The bytes under `key`, or None."""
        found = self.records.get(key := str(key))
        if found is None and self._behind is not None and (found := self._behind.get(key)) is not None:
            self.records[key] = found
        return found

    def put(self, key: str, blob: bytes) -> bool:
        """Holds the bytes; True."""
        self.records[str(key)] = self.made[str(key)] = blob
        return True


class Refused(HeadroomError):
    """This machine cannot measure with a model; another may."""


class Worker:
    """One worker. `host` and `directory` are the driver's machine and the folder of its store, next to which converted
    models lie."""

    def __init__(self, host: str, directory: str) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        bound_growth()
        own = directory if host == platform.node() else os.environ.get("HEADROOM_CACHE") or default_directory()
        self._store = MemoryStore(Path(own))
        self._session = Session(cast(Store, self._store))

    def where(self) -> dict[str, Any]:
        """The process and its machine."""
        return {"worker": f"worker {os.getpid()} on {platform.node()}"}

    def measure(self, call: Call, key: Mapping[str, Any], records: Mapping[str, bytes]) -> dict[str, Any]:
        """Where it runs, and the records that it made of a call whose target is its first argument. "failed": why it
        cannot be measured; "refused": why not on this machine. `key` is the target's on the driver's machine, `records`
        what the call reads."""
        answer, before = self.where(), dict(self._store.records)
        self._store.records |= records
        try:
            target, *others = call.arguments
            here = replace(call, arguments=(self._here(target, key), *others))
            returned(here.measurement().steps(self._session, True))
        except Refused as error:
            answer["refused"] = one_line(error)
        except HeadroomError as error:
            answer["failed"] = one_line(error)
        except Exception as error:
            answer["failed"] = f"{answer['worker']}: {unforeseen(error)}"
        made, self._store.records, self._store.made = self._store.made, before, {}
        before |= {key: blob for key, blob in made.items() if not travels(key)}  # such as how fast this machine is
        return answer | {"records": {key: blob for key, blob in made.items() if travels(key)}}

    def _here(self, target: Target, key: Mapping[str, Any]) -> Target:
        """The target on this machine, loaded. Refused: it is not here, does not fit, or would give other numbers."""
        os.environ[PINNED] = pinned_as(asdict(target.products))
        mine = target.key(gradients=True)
        if others := [f"{name} {mine.get(name)}, not {key.get(name)}" for name in key if mine.get(name) != key[name]]:
            raise Refused(f"its results would be found under other keys ({'; '.join(others)})")
        try:
            return replace(target, identity=returned(self._session.loaded(target)).identity)
        except HeadroomError as error:
            raise Refused(str(error)) from error

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
    """Records in memory, as a `Store` gives them: `made` are written here, `read` are those read of the records
    `behind`."""

    def __init__(self, directory: Path, behind: Store | Mapping[str, bytes]) -> None:
        self.directory, self.behind = directory, behind
        self.made, self.read = dict[str, bytes](), dict[str, bytes]()

    def get(self, key: str) -> bytes | None:
        """The bytes under `key`, or None."""
        found = self.made.get(str(key))
        if found is None and (found := self.behind.get(str(key))) is not None:
            self.read[str(key)] = found
        return found

    def put(self, key: str, blob: bytes) -> bool:
        """Holds the bytes; True."""
        self.made[str(key)] = blob
        return True


class Worker:
    """One worker. `host` and `directory` are the driver's machine and the folder of its store, next to which converted
    models lie."""

    def __init__(self, host: str, directory: str) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        bound_growth()
        own = directory if host == platform.node() else os.environ.get("HEADROOM_CACHE") or default_directory()
        self._store = MemoryStore(Path(own), {})
        self._session = Session(cast(Store, self._store))

    def where(self) -> dict[str, Any]:
        """The process and its machine."""
        return {"worker": f"worker {os.getpid()} on {platform.node()}"}

    def measure(self, call: Call, key: Mapping[str, Any], records: Mapping[str, bytes]) -> dict[str, Any]:
        """Where it runs, and the records that it made of a call whose target is its first argument. "failed": why it
        cannot be measured; "refused": why not on this machine. `key` is the target's on the driver's machine, `records`
        what the call reads."""
        answer, step = self.where(), "refused"
        self._store.behind, self._store.read = records, {}
        try:
            target, *others = call.arguments
            here = replace(call, arguments=(self._here(target, key), *others))
            step = "failed"
            returned(here.measurement().steps(self._session, True))
        except HeadroomError as error:
            answer[step] = one_line(error)
        except Exception as error:
            answer[step] = f"{answer['worker']}: {unforeseen(error)}"
        made = self._store.made  # what stays there is of this machine, such as how fast it is
        return answer | {"records": {key: made.pop(key) for key in [*made] if travels(key)}}

    def _here(self, target: Target, key: Mapping[str, Any]) -> Target:
        """The target on this machine, loaded. HeadroomError: it is not here, does not fit, or gives other numbers."""
        os.environ[PINNED] = pinned_as(asdict(target.products))
        mine = target.key(gradients=True)
        if others := [f"{name} {mine.get(name)}, not {key.get(name)}" for name in key if mine.get(name) != key[name]]:
            raise HeadroomError(f"its results would be found under other keys ({'; '.join(others)})")
        return replace(target, identity=returned(self._session.loaded(target)).identity)

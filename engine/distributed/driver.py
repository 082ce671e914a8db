"""Has Ray's workers measure what is missing of a measurement, and stores what they measured.

A worker is given a part as soon as all that it depends on is stored. A part is a call: a function of the engine, and
its arguments with masks and questions as they are here, so that a worker reads the model alone from its own machine.
The measurement is run afterwards as without workers: it finds everything in the store, so its value is the one of a
single process.
"""

import os
import platform
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from cache import Store
from engine.distributed.clusters import LOCAL, RayOptions, opened, share_of
from engine.distributed.worker import MemoryStore, Worker
from engine.errors import HeadroomError, one_line
from engine.measurement import Call, Measurement, Missing, note_incomplete
from engine.models.session import Session, Target
from engine.placement.devices import device_class, free_bytes
from engine.placement.needs import load_needs
from engine.questions.rendering import Questions

TURN_S = 1.0  # between reports
RESTARTS = 10  # of a worker
LOSSES = 3  # workers that a part may end with
CODE = Path(__file__).resolve().parents[2]  # where `engine` lies
HANDED_ON = (  # variables of the environment that workers get: those that change numbers, places and speed
    "HEADROOM_DEVICE", "HEADROOM_PLACE", "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "MKL_CBWR", "ATEN_CPU_CAPABILITY",
)  # fmt: skip
Report = Callable[[int, int, str, float | None], None]  # done, total, message, seconds left


@dataclass(frozen=True)
class MissingPart:
    """A part that is missing: how it is made, and the keys of its missing records."""

    call: Call
    keys: tuple[str, ...]


class Workers:
    """The workers of one command, started when they are first needed; a context that ends them. `say` is given what a
    user ought to know."""

    def __init__(self, wanted: RayOptions, say: Callable[[str], None]) -> None:
        self._wanted, self._say, self._open = wanted, say, ExitStack()
        self._ray: Any = None
        self._n = 0  # workers that there are to be
        self._idle = list[Any]()  # actors
        self._busy: dict[Any, tuple[Any, MissingPart | None]] = {}  # by the reference of a call; None: its actor begins
        self._names = defaultdict[Any, str](lambda: "a worker")  # process and machine of the actors that have begun
        self._losses = Counter[str]()  # by the first key of a part
        self._why = "all workers were lost"  # the last worker could not help

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *ended_by: object) -> None:
        """Ends all workers at once."""
        for actor in [*self._idle, *(actor for actor, _ in self._busy.values())]:
            self._end(actor)
        self._open.close()

    def measure(self, measurement: Measurement[Any], session: Session, report: Report) -> bool:
        """Measures what is missing of it; whether that is anything. Reasons of failed parts are in the session's
        `failures`. HeadroomError: no worker could begin, or none is left."""
        rest = Remaining(measurement, session)
        if not rest.waiting:
            return False
        if self._ray is None:
            report(0, rest.n_left, "starting Ray", None)
            self._start(measurement.target, session)
        while rest.goes_on():
            while rest.waiting and self._idle:
                actor, (part, about) = self._idle.pop(), rest.give()
                self._busy[actor.measure.remote(*about)] = actor, part
            self._turn(rest)
            message = f"{len(self._idle) + len(rest.given)} of {self._n} workers"
            report(rest.n_done, rest.n_done + rest.n_left, message, rest.left_s)
        return True

    def _start(self, target: Target, session: Session) -> None:
        self._ray = self._open.enter_context(opened(self._wanted.address))
        most = sys.maxsize
        if self._wanted.address == LOCAL and device_class() != "cuda":  # what lies on GPUs Ray counts by itself
            most = free_bytes() // load_needs(target.identity.model_config, target.spec.precision).total
        self._n, each = share_of(self._ray, self._wanted, most)
        environment = {name: os.environ[name] for name in HANDED_ON if name in os.environ}
        if not each["GPU"]:
            environment["CUDA_VISIBLE_DEVICES"] = ""  # Ray hides none from those that asked for none
        if not __name__.startswith("headroom."):  # an installation is found by itself
            environment["PYTHONPATH"] = f"{CODE}{os.pathsep}${{PYTHONPATH}}"  # Ray puts the machine's own there
        kind = self._ray.remote(Worker).options(
            num_cpus=each["CPU"], num_gpus=each["GPU"], scheduling_strategy="SPREAD",
            runtime_env={"env_vars": environment}, max_restarts=RESTARTS,
        )  # fmt: skip
        for _ in range(self._n):
            self._begin(kind.remote(platform.node(), str(session.store.directory)))

    def _begin(self, actor: Any) -> None:
        """Waits for a worker, or for another in its place, which Ray starts where there is room."""
        self._busy[actor.where.options(max_task_retries=-1).remote()] = actor, None

    def _turn(self, rest: "Remaining") -> None:
        """Waits a moment, and sees to all that has come meanwhile."""
        if not self._busy:
            raise HeadroomError(self._why)
        self._ray.wait([*self._busy], num_returns=1, timeout=TURN_S)
        ready, _ = self._ray.wait([*self._busy], num_returns=len(self._busy), timeout=0)
        for ref in ready:
            actor, part = self._busy.pop(ref)
            try:
                answer = self._ray.get(ref)
            except self._ray.exceptions.RayError as error:
                self._lost(actor, part, rest, one_line(str(error).strip().splitlines()[-1]))
                continue
            self._names[actor] = answer["worker"]
            if part is not None:
                rest.take(part, answer)
            if "refused" in answer:
                self._drop(actor, answer["refused"])
            else:
                self._idle.append(actor)

    def _lost(self, actor: Any, part: MissingPart | None, rest: "Remaining", why: str) -> None:
        """Has another worker measure a part whose worker was lost, unless it has ended several."""
        if part is None:
            self._drop(actor, f"it cannot begin ({why}); is this version of Headroom on every machine?")
            return
        self._losses[part.keys[0]] += 1
        if self._losses[part.keys[0]] < LOSSES:
            rest.take_back(part)
            self._say(f"{self._names[actor]} was lost, and another takes its place: killed, crashed, or out of memory")
        else:
            rest.fail(part, f"{LOSSES} workers were lost with it: killed, crashed, or out of memory")
        self._begin(actor)

    def _drop(self, actor: Any, why: str) -> None:
        self._end(actor)
        self._why = f"{self._names[actor]} has ended: {why}"
        if self._busy or self._idle:
            self._say(f"{self._why}; others go on")

    def _end(self, actor: Any) -> None:
        with suppress(Exception):  # it may be out of reach, or the whole cluster
            self._ray.kill(actor)


class Remaining:
    """What is missing of a measurement, by the first key of each part: `waiting` can be measured now, `given` are with
    workers. `n_left` counts those that follow from others too."""

    def __init__(self, measurement: Measurement[Any], session: Session) -> None:
        self._measurement, self._session = measurement, session
        self.given = dict[str, MissingPart]()
        self.n_done, self._began_s = 0, 0.0
        self._look()

    def goes_on(self) -> bool:
        """Whether anything is left to measure. If nothing waits, it reads what has become possible meanwhile."""
        if not self.waiting and self._is_news and self._n_later:
            self._look()
        return bool(self.waiting or self.given)

    def give(self) -> tuple[MissingPart, tuple[Call, Mapping[str, Any], Mapping[str, bytes]]]:
        """A part that waits, and what a worker is given: the call, the key of its target, and the stored records that
        it reads."""
        self._began_s = self._began_s or time.monotonic()
        first = next(iter(self.waiting))
        part = self.given[first] = self.waiting.pop(first)
        store = MemoryStore(self._session.store.directory, self._session.store)
        part.call.measurement().stored_part(Session(cast(Store, store), self._session.models))
        asked = (each.asked() if isinstance(each, Questions) else each for each in part.call.arguments)
        call = Call(part.call.function, tuple(asked), part.call.named)
        return part, (call, call.arguments[0].key(gradients=True), store.read)

    def take(self, part: MissingPart, answer: Mapping[str, Any]) -> None:
        """Stores what was measured of a part, and notes why it could not be."""
        for key, blob in answer["records"].items():
            self._session.store.put(key, blob)
        self._is_news = True
        if "refused" in answer:
            self.take_back(part)
        elif "failed" in answer:
            self.fail(part, answer["failed"])
        elif self._session.store.get(part.keys[0]) is None:
            self.fail(part, f"{answer['worker']} measured it under another key")
        else:
            del self.given[part.keys[0]]
            self.n_done += 1

    def take_back(self, part: MissingPart) -> None:
        """Has another worker measure it."""
        self.waiting[part.keys[0]] = self.given.pop(part.keys[0])

    def fail(self, part: MissingPart, why: str) -> None:
        """Notes why it cannot be measured."""
        del self.given[part.keys[0]]
        self._session.failures |= dict.fromkeys(part.keys, why)

    @property
    def n_left(self) -> int:
        return len(self.waiting) + len(self.given) + self._n_later

    @property
    def left_s(self) -> float | None:
        """About how many seconds are left; None while that is not known."""
        return self.n_left * (time.monotonic() - self._began_s) / self.n_done if self.n_done else None

    def _look(self) -> None:
        """Reads what is missing, but for what is given and what has failed."""
        self._is_news = False
        parts = dict[str, MissingPart]()

        def note(call: Call, missing: Missing) -> None:
            parts[next(iter(missing))] = MissingPart(call, tuple(missing))  # a later note is of the larger part

        token = note_incomplete.set(note)
        try:
            missing = self._measurement.stored_part(self._session).missing
        finally:
            note_incomplete.reset(token)
        left_out = self.given.keys() | self._session.failures.keys()
        self.waiting = {first: part for first, part in parts.items() if first not in left_out}
        self._n_later = len(missing.keys() - {key for part in parts.values() for key in part.keys})

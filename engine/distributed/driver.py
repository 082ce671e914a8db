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
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from cache import Store
from engine.distributed.clusters import LOCAL, RayOptions, WorkerResources, opened, share_of
from engine.distributed.worker import MemoryStore, Worker
from engine.errors import HeadroomError, one_line
from engine.measurement import Call, Measurement, Missing, note_incomplete
from engine.models.session import Session, Target
from engine.placement.devices import device_class, free_bytes
from engine.placement.needs import load_needs
from engine.questions.requests import Questions

TURN_S = 1.0  # between reports
LOOK_SHARE = 0.3  # of the time, for reading what is missing while workers are busy
RESTARTS = 10  # of a worker
LOSSES = 3  # workers that a task may end with
CODE = Path(__file__).resolve().parents[2]  # where `engine` lies
HANDED_ON = ("HEADROOM_", "OMP_")  # begin the names of variables of the environment that workers get
NOT_HANDED_ON = ("HEADROOM_CACHE", "HEADROOM_PRODUCTS")  # a machine's own, and told with each model
Report = Callable[[int, int, str, float | None], None]  # done, total, message, seconds left


@dataclass(frozen=True)
class Task:
    """A part that is missing: how it is made, and the keys of its missing records."""

    call: Call
    keys: tuple[str, ...]


@dataclass(eq=False)
class Member:
    """One worker: its actor, and once it has begun, the process and machine."""

    actor: Any
    name: str = "a worker"


class Workers:
    """The workers of one command, started when they are first needed; a context that ends them. `say` is given what a
    user ought to know."""

    def __init__(self, wanted: RayOptions, say: Callable[[str], None]) -> None:
        self._wanted, self._say, self._open = wanted, say, ExitStack()
        self._ray: Any = None
        self._share = WorkerResources(0, 0, 0)
        self._idle: list[Member] = []
        self._busy: dict[Any, tuple[Member, Task | None]] = {}  # by the reference of a call; None: it begins
        self._losses = Counter[str]()  # by the first key of a task
        self._why = "all workers were lost"  # the last worker could not help

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *ended_by: object) -> None:
        """Ends all workers at once."""
        for member in [*self._idle, *(member for member, _ in self._busy.values())]:
            self._end(member)
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
        while rest.waiting or self._tasks or rest.is_due(True):
            if not rest.waiting and rest.is_due(not self._tasks):
                rest.look(self._tasks)
            while rest.waiting and self._idle:
                task = rest.waiting.pop(next(iter(rest.waiting)))
                if (about := rest.arguments(task)) is not None:
                    member = self._idle.pop()
                    self._busy[member.actor.measure.remote(*about)] = member, task
            self._turn(rest)
            n_left, n_at_work = rest.n_left + len(self._tasks), len(self._idle) + len(self._tasks)
            message = f"{n_at_work} of {self._share.workers} workers"
            report(rest.n_done, rest.n_done + n_left, message, rest.left_s(n_left))
        return True

    @property
    def _tasks(self) -> list[Task]:
        """The tasks that are being measured."""
        return [task for _, task in self._busy.values() if task is not None]

    def _start(self, target: Target, session: Session) -> None:
        self._ray, is_own = self._open.enter_context(opened(self._wanted.address)), self._wanted.address == LOCAL
        self._share = share_of(self._ray, self._wanted, _most_in_memory(target) if is_own else sys.maxsize)
        names = [name for name in os.environ if name.startswith(HANDED_ON) and name not in NOT_HANDED_ON]
        environment = {name: os.environ[name] for name in names}
        if not self._share.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ""  # Ray hides none from those that asked for none
        if not __name__.startswith("headroom."):  # an installation is found by itself
            environment["PYTHONPATH"] = f"{CODE}{os.pathsep}${{PYTHONPATH}}"  # Ray puts the machine's own there
        kind = self._ray.remote(Worker).options(
            num_cpus=self._share.cpus, num_gpus=self._share.gpus, scheduling_strategy="SPREAD",
            runtime_env={"env_vars": environment}, max_restarts=RESTARTS,
        )  # fmt: skip
        for _ in range(self._share.workers):
            self._begin(Member(kind.remote(platform.node(), str(session.store.directory))))

    def _begin(self, member: Member) -> None:
        """Waits for a worker, or for another in its place, which Ray starts where there is room."""
        self._busy[member.actor.where.options(max_task_retries=-1).remote()] = member, None

    def _turn(self, rest: "Remaining") -> None:
        """Waits a moment, and sees to what has come meanwhile."""
        if not self._busy and not self._idle:
            raise HeadroomError(self._why)
        ready, _ = self._ray.wait([*self._busy], num_returns=1, timeout=TURN_S)
        for ref in ready:
            member, task = self._busy.pop(ref)
            try:
                answer = self._ray.get(ref)
            except self._ray.exceptions.RayError as error:
                self._lost(member, task, rest, one_line(str(error).strip().splitlines()[-1]))
                continue
            member.name = answer["worker"]
            if task is not None:
                rest.take(task, answer)
            if "refused" in answer:
                self._drop(member, answer["refused"])
            else:
                self._idle.append(member)

    def _lost(self, member: Member, task: Task | None, rest: "Remaining", why: str) -> None:
        """Has another worker measure a task whose worker was lost, unless it has ended several."""
        if task is None:
            self._drop(member, f"it cannot begin ({why}); is this version of Headroom on every machine?")
            return
        self._losses[task.keys[0]] += 1
        if self._losses[task.keys[0]] < LOSSES:
            rest.waiting[task.keys[0]] = task
            self._say(f"{member.name} was lost, and another takes its place: killed, crashed, or out of memory")
        else:
            rest.fail(task, f"{LOSSES} workers were lost with it: killed, crashed, or out of memory")
        self._begin(member)

    def _drop(self, member: Member, why: str) -> None:
        self._end(member)
        self._why = f"{member.name} has ended: {why}"
        if self._busy or self._idle:
            self._say(f"{self._why}; others go on")

    def _end(self, member: Member) -> None:
        with suppress(Exception):  # it may be out of reach, or the whole cluster
            self._ray.kill(member.actor)


class Remaining:
    """What is missing of a measurement: `waiting` are the parts that can be measured now, by the first of their keys,
    `n_left` counts those that follow from others too."""

    def __init__(self, measurement: Measurement[Any], session: Session) -> None:
        self._measurement, self._session = measurement, session
        self.n_done, self._is_news, self._began_s = 0, False, 0.0
        self.look(())
        self._look_at_s = 0.0  # the first may have rendered questions, which the next one does not

    def is_due(self, is_idle: bool) -> bool:
        """Whether to look for what has become possible since."""
        return self._is_news and self._n_later > 0 and (is_idle or time.monotonic() > self._look_at_s)

    def look(self, busy: Iterable[Task]) -> None:
        """Reads what is missing but for these tasks and what has failed."""
        began_s, self._is_news = time.monotonic(), False
        calls, missing_of = dict[str, Call](), dict[str, Missing]()

        def note(call: Call, missing: Missing) -> None:
            first = next(iter(missing))
            calls[first], missing_of[first] = call, missing  # a later note is of the larger part

        token = note_incomplete.set(note)
        try:
            missing = self._measurement.look(self._session).missing
        finally:
            note_incomplete.reset(token)
        left_out = {task.keys[0] for task in busy} | self._session.failures.keys()
        tasks = {first: Task(call, tuple(missing_of[first])) for first, call in calls.items()}
        self.waiting = {first: task for first, task in tasks.items() if first not in left_out}
        self._n_later = len(missing.keys() - {key for task in tasks.values() for key in task.keys})
        self._look_at_s = time.monotonic() + (time.monotonic() - began_s) / LOOK_SHARE

    @property
    def n_left(self) -> int:
        return len(self.waiting) + self._n_later

    def arguments(self, task: Task) -> tuple[Call, Mapping[str, Any], Mapping[str, bytes]] | None:
        """What a worker is given: the call, the key of its target, and the stored records that it reads; None if
        nothing of it is missing any more."""
        self._began_s = self._began_s or time.monotonic()
        store = MemoryStore(self._session.store.directory, self._session.store)
        if task.call.measurement().look(Session(cast(Store, store), self._session.models)).is_complete:
            return None
        asked = (each.asked() if isinstance(each, Questions) else each for each in task.call.arguments)
        call = Call(task.call.function, tuple(asked), task.call.named)
        return call, call.arguments[0].key(gradients=True), store.records

    def take(self, task: Task, answer: Mapping[str, Any]) -> None:
        """Stores what was measured of a task, and notes why it could not be."""
        for key, blob in answer["records"].items():
            self._session.store.put(key, blob)
        self._is_news = True
        if "failed" in answer:
            self.fail(task, answer["failed"])
        elif "refused" in answer:
            self.waiting[task.keys[0]] = task
        elif self._session.store.get(task.keys[0]) is None:
            self.fail(task, f"{answer['worker']} measured it under another key")
        else:
            self.n_done += 1

    def fail(self, task: Task, why: str) -> None:
        """Notes why it cannot be measured."""
        self._session.failures |= dict.fromkeys(task.keys, why)

    def left_s(self, n_left: int) -> float | None:
        """About how many seconds are left; None while that is not known."""
        return n_left * (time.monotonic() - self._began_s) / self.n_done if self.n_done else None


def _most_in_memory(target: Target) -> int:
    """How many workers this computer's main memory holds, one at least; what lies on GPUs Ray counts by itself."""
    if device_class() == "cuda":
        return sys.maxsize
    needed = load_needs(target.identity.model_config, target.spec.precision).total
    return max(1, free_bytes() // max(1, needed))

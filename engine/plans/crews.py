"""Actors of Ray at work on one plan: started, listened to, and where one is lost another in its place."""

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.errors import HeadroomError, NotHere
from engine.plans.actors import Errand
from engine.plans.cells import Plan
from engine.plans.claims import Claims
from engine.plans.clusters import WorkerResources, free
from engine.plans.ray_internals import loss
from engine.plans.status import left_s
from engine.plans.worker import Tally
from engine.progress import tell

START_S = 120.0  # without anybody at work: others have the cluster's CPUs and GPUs
TURN_S = 1.0  # how often it is looked how they stand
RESTARTS = 3  # of each worker
DEATH_S = 10.0  # for stopped processes to end
CODE = Path(__file__).resolve().parents[2]  # where `engine` lies
HANDED_ON = (  # and HEADROOM_*
    "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "TOKENIZERS_PARALLELISM"
)  # fmt: skip
OF_THE_STORE = ("HEADROOM_CACHE", "HEADROOM_SHARED")  # passed to the actor only: Ray writes environments into its logs


@dataclass
class Member:
    """One actor, its pending call, and, once it has joined, where it runs."""

    actor: Any
    ref: Any
    restarts: int
    host: str = ""
    pid: int = 0
    n_lines: int = 0  # that it had for the user, and are said

    def __str__(self) -> str:
        return f"worker {self.pid} on {self.host}" if self.pid else "a worker"


class Crew:
    """All actors of one driver; `n_restarts` of them took the place of a lost one. `module` has the `Actor`."""

    module = Errand.__module__

    def __init__(
        self, ray: Any, share: WorkerResources, errand: Errand, plan: Plan, claims: Claims, say: Callable[[str], None]
    ) -> None:
        self.n_restarts = 0
        self._ray, self._kind, self._share, self._errand, self._plan = ray, _actor_class(ray), share, errand, plan
        self._claims, self._say = claims, say
        self._members: list[Member] = []
        self._joined: set[tuple[str, int]] = set()  # host and process of all that ever have
        self._said: set[str] = set()
        self._is_over = False  # one of them has found no cell that is left
        self._ended: HeadroomError | None = None  # why the last one that ended before did so
        self._at, self._n_turns, self._at_work_s = "", 0, time.monotonic()

    def work(self) -> None:
        """Returns when no cell is left. HeadroomError if all actors end before, or none can start; NotHere if that is
        for what has to be fetched first."""
        try:
            for _ in range(self._share.workers):
                self._start()
            while self._members and not (self._is_over and not self._at_work()):
                self._turn()
                if time.monotonic() - self._at_work_s > START_S:
                    line = f"no worker of {self._share} could begin in {START_S:.0f} seconds"
                    line = f"{line}: {free(self._ray)} are free; try again later, or ask for less"
                    raise self._ended or HeadroomError(line)
        finally:
            self._end()
        if not self._is_over and self._ended is not None:
            raise self._ended

    def tally(self) -> Tally:
        """What they have done, the lost ones too."""
        self._claims.refresh()
        mine = {number for number, began in self._claims.workers.items() if began.process in self._joined}
        notes = [note for note in self._claims.notes if note.worker in mine]
        cached, failed = sum(note.cached for note in notes), sum(bool(note.failed) for note in notes)
        return Tally(len(notes) - cached - failed, cached, failed)

    def _at_work(self) -> list[Member]:
        return [member for member in self._members if member.pid]

    def _start(self, restarts: int = 0) -> None:
        names = [*HANDED_ON, *(name for name in os.environ if name.startswith("HEADROOM_"))]
        environment = {name: os.environ[name] for name in names if name in os.environ and name not in OF_THE_STORE}
        if not self._share.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ""  # Ray hides none from those that asked for none
        needs: dict[str, Any] = {"num_cpus": self._share.cpus, "num_gpus": self._share.gpus}
        more: dict[str, Any] = {"runtime_env": {"env_vars": environment}, "scheduling_strategy": "SPREAD"}
        actor = self._kind.options(max_concurrency=2, **needs, **more).remote()  # `now` while `work` runs
        self._members.append(Member(actor, actor.join.remote(str(CODE), self.module, asdict(self._errand)), restarts))

    def _turn(self) -> None:
        """Waits a moment, sees to what has come meanwhile, and tells how all stand."""
        waited, at_work = {member.ref: member for member in self._members}, self._at_work()
        other = at_work[self._n_turns % len(at_work)] if at_work else None
        asked = [other.actor.now.remote()] if other is not None else []
        ready, _ = self._ray.wait([*waited, *asked], num_returns=len(waited) + len(asked), timeout=TURN_S)
        self._n_turns += 1
        for ref in ready:
            member = waited.get(ref)
            try:
                answer = self._ray.get(ref)
            except self._ray.exceptions.RayError as error:
                if member is not None:
                    self._lost(member, error)
                continue
            if member is None and other is not None:
                self._at = answer[0] or self._at
                self._pass_on(other, answer[1])
            elif member is not None and member.pid:
                self._has_ended(member, answer)
            elif member is not None:
                self._has_joined(member, answer)
        self._claims.refresh()
        n_at_work, settled = len(self._at_work()), self._claims.settled
        if n_at_work:
            self._at_work_s = time.monotonic()
        who = f"{n_at_work} of {self._share.workers} workers"
        message = f"{who}: {self._at}" if n_at_work else f"waiting for {self._share.workers} workers of {self._share}"
        left = left_s(self._plan, settled, n_at_work)
        tell.get()(len(settled), len(self._plan.cells), message, left)

    def _pass_on(self, member: Member, lines: Sequence[str]) -> None:
        for line in lines[member.n_lines :]:
            self._say(f"{member}: {line}")
        member.n_lines = len(lines)

    def _has_joined(self, member: Member, answer: Mapping[str, Any]) -> None:
        process = str(answer.get("host")), int(answer.get("pid", 0))
        where = "" if answer["host"] == platform.node() else f"on {answer['host']} "
        if "refused" in answer:
            self._has_ended(member, {**answer, "refused": where + answer["refused"]})
            return
        if answer["differs"] and (line := where + answer["differs"]) not in self._said:
            self._said.add(line)
            self._say(line)
        self._joined.add(process)
        member.host, member.pid, member.ref = *process, member.actor.work.remote()

    def _has_ended(self, member: Member, answer: Mapping[str, Any]) -> None:
        """One has returned: nothing is left, it cannot go on there, or an error has ended it."""
        self._kill(member)
        self._members.remove(member)
        self._pass_on(member, answer.get("lines", ()))
        if "ended" in answer:
            self._restart(member, answer["ended"])
        elif "refused" in answer:
            away, line = answer["away"], answer["refused"]
            self._ended = HeadroomError(line) if away is None else NotHere(away, line)
            if self._members:
                self._say(f"{member} has ended, others go on: {line}")
        else:
            self._is_over = True

    def _lost(self, member: Member, error: Exception) -> None:
        """Releases the cells of an actor that has ended, and starts another in its place."""
        self._kill(member)
        self._members.remove(member)
        is_of_machine, why = loss(self._ray, error)
        self._release(member, "" if is_of_machine else f"its worker was lost: {why}")
        self._restart(member, why)

    def _restart(self, member: Member, why: str) -> None:
        if member.restarts == RESTARTS:
            self._ended = HeadroomError(f"{member} was lost, as {RESTARTS} before it in its place: {why}")
            return
        self._say(f"{member} was lost, and another takes its place: {why}")
        self.n_restarts += 1
        self._start(member.restarts + 1)

    def _kill(self, member: Member) -> None:
        with suppress(Exception):  # it may be out of reach, or the whole cluster
            self._ray.kill(member.actor)

    def _release(self, member: Member, ended_by: str = "") -> None:
        self._claims.refresh()
        process = member.host, member.pid
        if mine := [number for number, began in self._claims.workers.items() if began.process == process]:
            self._claims.release(max(mine), ended_by)  # an earlier one's process may have had the same number

    def _end(self) -> None:
        """Ends those that are still there, and leaves what they have in hand to others."""
        for member in self._members:
            self._kill(member)
        if at_work := self._at_work():
            self._ray.wait([member.ref for member in at_work], num_returns=len(at_work), timeout=DEATH_S)
        for member in at_work:
            self._release(member)
        self._members = []


def _actor_class(ray: Any) -> Any:
    """The class of the actors, which travels as it stands here: where it lands Headroom has yet to be found."""

    class HeadroomWorker:
        def join(self, code: str, module: str, answer: dict[str, Any]) -> dict[str, Any]:
            import importlib.util
            import os
            import platform
            import sys

            me = {"host": platform.node(), "pid": os.getpid()}
            package = "headroom."
            found = importlib.util.find_spec("headroom")
            if not module.startswith(package) and os.path.isfile(os.path.join(code, "engine", "plans", "actors.py")):
                sys.path.insert(0, code)  # the driver's clone, on a disk that this machine sees
            elif found is not None and found.submodule_search_locations:
                module = package + module.removeprefix(package)  # installed here
            else:
                module = module.removeprefix(package)  # a clone of this machine, on PYTHONPATH
            try:
                self.actor = importlib.import_module(module).Actor(answer)
            except (ImportError, TypeError) as error:
                why = f"this version of Headroom is not there for {sys.executable} ({error})"
                return me | {"refused": f"{why}; install it on every machine", "away": None}
            return me | self.actor.join()

        def work(self) -> dict[str, Any]:
            return self.actor.work()

        def now(self) -> tuple[str, list[str]]:
            return self.actor.now, self.actor.lines

    return ray.remote(HeadroomWorker)

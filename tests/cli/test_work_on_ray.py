"""`work --executor ray`: actors of Ray measure what the same sweep measures, byte for byte, lost ones or not.

One cluster for the module, that listens to this computer alone; each driver is a process that joins it, as Ray would
change this one's signals and settings.
"""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from cache.remote import shared_folder
from engine.__main__ import main
from engine.errors import HeadroomError, NotHere
from engine.files import lock_folder
from engine.plans import crews
from engine.plans.actors import Actor, Errand, digest_of
from engine.plans.cells import read_plan, written
from engine.plans.claims import Claims
from engine.plans.clusters import (
    FOLDER,
    LOOPBACK,
    OWN,
    PACKAGE,
    WorkerResources,
    address_of,
    remove_left_folders,
    share_of,
)
from engine.plans.crews import Crew, _actor_class
from engine.plans.status import standing
from tests.cli.conftest import refused
from tests.cli.test_work_command import values
from tests.conftest import HANG_S, IS_THOROUGH, REPOSITORY
from tests.engine.fixtures import write_questions
from tests.engine.test_plans_are_shared_by_workers import plan_of

with_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install -r requirements-ray.txt"
)
N_QUESTIONS = 4  # a chunk that is never parted, however busy the machine
CLUSTER = """
import os, sys
from engine.plans.clusters import opened
with opened("") as ray:
    print(ray.get_runtime_context().gcs_address, os.environ["RAY_AUTH_TOKEN"], file=sys.__stdout__, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def head():
    """The process that opens a Ray cluster."""
    process = subprocess.Popen(
        [sys.executable, "-c", CLUSTER], cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield process
    below = psutil.Process(process.pid).children(recursive=True)
    process.stdin.close()
    process.stdout.close()
    assert process.wait(HANG_S) == 0
    assert not psutil.wait_procs(below, HANG_S)[1], "nothing is left of the cluster"


@pytest.fixture(scope="module")
def cluster(head):
    """(address, environment of those who join) of that cluster."""
    address, token = head.stdout.readline().split()
    return address, {**os.environ, **OWN, "RAY_AUTH_TOKEN": token}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("ray")


@pytest.fixture(scope="module")
def a_sweep(place, tiny_opt):
    """The arguments of a sweep, without where it writes."""
    task = write_questions(place / "a.jsonl", N_QUESTIONS)
    # else what is judged is stored under the keys of what ranks, with either's receipt
    write_questions(place / "b.jsonl", N_QUESTIONS, seed=1).rename(task.with_suffix(".train.jsonl"))
    base = ["sweep", "--model", str(tiny_opt), "--precision", "fp32", "--tasks", str(task), "--shots", "0"]
    return [*base, "--head-levels", "0,30,60,100", "--ffn-levels", "0,50"]


@pytest.fixture(scope="module")
def plan(place, a_sweep):
    assert main([*a_sweep, "--plan", str(place / "plan.json"), "--cache", str(place / "planned")]) == 0
    return place / "plan.json"


def listening(processes):
    """The addresses at which any of the processes listens."""
    found = set()
    for each in processes:
        with suppress(psutil.Error):
            connections = each.net_connections("inet")
            found |= {one.laddr.ip.removeprefix("::ffff:") for one in connections if one.status == psutil.CONN_LISTEN}
    return found


@contextmanager
def driver(plan, name, executor, environment, *more):
    """A driver at work: (the process, its claims). Store and claims are called `name`."""
    claims = plan.with_name(f"{name}.claims")
    where = ["--claims", str(claims), "--cache", str(plan.with_name(name)), "--executor", executor, *more]
    process = subprocess.Popen(
        [sys.executable, "-m", "engine", "work", str(plan), *where, "--json"], cwd=REPOSITORY, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process, Claims(claims)
    finally:
        process.kill()
        process.communicate()


def until(condition, process):
    """What the condition gives once that is something; a driver that has ended fails."""
    end = time.monotonic() + HANG_S
    while time.monotonic() < end:
        if found := condition():
            return found
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    raise AssertionError("it took too long")


def in_hand(claims):
    """The number of a worker with a cell in hand, stopped so that the cell stays there; empty where there is none."""
    claims.refresh()
    for hand in claims.hands():
        if hand.worker not in claims.workers:  # its file is there, and not yet written
            continue
        pid = claims.workers[hand.worker].pid
        os.kill(pid, signal.SIGSTOP)
        claims.refresh()
        if hand.cell not in claims.settled:
            return [hand.worker]
        os.kill(pid, signal.SIGCONT)
    return []


@with_ray
def test_two_actors_of_which_one_is_killed_measure_what_a_sweep_does(head, cluster, plan, place, a_sweep, capsys):
    address, environment = cluster
    shared = {"HEADROOM_SHARED": str(place / "shared")}
    (place / "shared").mkdir()
    more = ("--workers", "2", "--cpus", "0.5", "--lease", "3600")
    with driver(plan, "actors", f"ray:{address}", {**environment, **shared}, *more) as (process, claims):
        [victim] = until(lambda: in_hand(claims), process)
        assert listening(psutil.Process(head.pid).children(recursive=True)) == {LOOPBACK}
        [lost] = [hand.cell for hand in claims.hands() if hand.worker == victim]
        os.kill(claims.workers[victim].pid, signal.SIGKILL)
        out, err = process.communicate(timeout=HANG_S)
    told = json.loads(out)
    assert process.returncode == 0 and "Traceback" not in err, err
    assert told["measured"] + told["cached"] == told["done"] == told["cells"] and told["measured"] > told["cached"]
    assert (told["workers"], told["restarts"]) == (2, 1) and "was lost, and another takes its place" in err
    stands = standing(read_plan(plan), claims)
    assert stands.is_over and stands.twice == 0 and [worker.state for worker in stands.workers] == ["ended"] * 3
    again = [file.name for file in (claims.folder / "claims").glob("*/*") if file.suffix != ".1"]
    assert again == [f"{lost}.2"], "freed at once, not when its lease had run out; no other cell was taken twice"
    assert {file.name for file in claims.folder.iterdir()} <= {"claims", "workers", "clock"}
    assert main([*a_sweep, "--out", str(place / "local.csv"), "--cache", str(place / "local")]) == 0
    assert values(place / "actors") == values(place / "local")
    capsys.readouterr()
    assert main([*a_sweep, "--out", str(place / "actors.csv"), "--cache", str(place / "actors"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cached"]
    assert (place / "actors.csv").read_bytes() == (place / "local.csv").read_bytes()
    shared = shared_folder(str(place / "shared"))
    keys = {shared.read(name)[0] for name in shared.names()}
    assert {key for key in values(place / "local") if key.split("/")[1] in ("answers", "importance")} <= keys
    assert not any("meeting" in key for key in keys)


@with_ray
def test_ctrl_c_ends_the_actors_and_leaves_their_cells_to_others(cluster, plan):
    address, environment = cluster
    with driver(plan, "stopped", f"ray:{address}", environment, "--workers", "1") as (process, claims):
        until(lambda: [*claims.hands()], process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 130 and out == "" and "resumes from there" in err.splitlines()[-1]
    claims.refresh()
    with suppress(psutil.NoSuchProcess):
        psutil.Process(claims.workers[0].pid).wait(HANG_S)  # Ray ends it, on a busy machine a moment later
    stands = standing(read_plan(plan), claims)
    assert stands.in_hand == 0 and [worker.state for worker in stands.workers] == ["ended"]


@with_ray
@pytest.mark.thorough
@pytest.mark.skipif(not IS_THOROUGH, reason="a second cluster; where the first one listens is seen above")
def test_a_cluster_of_its_own_listens_to_this_computer_alone_and_leaves_nothing_behind(plan, place):
    """What is measured already is found by its actor, too."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment["HOME"] = str(place)
    with driver(plan, "actors", "ray", environment, "--workers", "1", "--cpus", "0.5", "--retry") as (process, claims):
        (me, below), listened = (psutil.Process(process.pid), {}), set()

        def is_at_work():
            below.update({each.pid: each for each in me.children(recursive=True)})
            listened.update(listening((me, *below.values())))
            return process.poll() is not None

        folders = {*Path("/tmp").glob("ray-*")}
        while not is_at_work():
            time.sleep(0.2)
        out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0 and len(below) > 3, err
    told = json.loads(out)
    assert told["done"] == told["cells"] and told["workers"] == 1
    assert listened == {LOOPBACK}
    assert not psutil.wait_procs([*below.values()], HANG_S)[1]
    assert not {*Path("/tmp").glob("ray-*")} - folders and not (place / ".ray").exists()


@with_ray
def test_what_a_cluster_has_not_is_said_in_one_line(cluster, plan):
    address, environment = cluster
    with driver(plan, "none", f"ray:{address}", environment, "--cpus", "100000") as (process, claims):
        out, err = process.communicate(timeout=HANG_S)
    last = err.splitlines()[-1]
    assert process.returncode == 1 and out == "" and "no machine of the cluster has 100000 CPUs for a worker" in last
    assert not claims.workers and "Traceback" not in err


def test_an_executor_that_cannot_be_meant_is_refused(cli, plan, monkeypatch):
    refused(cli("work", plan, "--executor", "slurm"), 2, "--executor 'slurm'", "ray:auto")
    for address in ("ray:", "ray:host", "ray:host:many", "ray::6379", "ray:host:99999"):
        refused(cli("work", plan, "--executor", address), 2, f"--executor {address!r}")
    refused(cli("work", plan, "--workers", "2"), 2, "--workers", "--executor ray")
    refused(cli("work", plan, "--executor", "ray", "--cpus", "1.5"), 2, "--cpus is 1.5", "choose 1 or 2")
    monkeypatch.setitem(sys.modules, "ray", None)
    before = dict(os.environ)
    code, out, lines = cli("work", plan, "--executor", "ray")
    assert (code, out) == (1, "") and "needs Ray" in lines[-1] and f"-m pip install {PACKAGE}" in lines[-1]
    assert dict(os.environ) == before
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(shutdown=lambda: None))
    refused(cli("work", plan, "--executor", "ray:127.0.0.1:1"), 1, "no Ray cluster answers at 127.0.0.1:1", "ray start")
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer():
            with other.accept()[0] as one:
                assert one.recv(1000).startswith(b"PRI * HTTP/2.0")
                one.sendall(b"SSH-2.0 hello\r\n")

        there, port = threading.Thread(target=answer), other.getsockname()[1]
        there.start()
        refused(cli("work", plan, "--executor", f"ray:127.0.0.1:{port}"), 1, f"127.0.0.1:{port} is not a Ray cluster")
        there.join(HANG_S)
    assert address_of("ray") == "" and address_of("ray:auto") == "auto" and address_of("ray:[::1]:6379") == "[::1]:6379"
    assert (REPOSITORY / "requirements-ray.txt").read_text() == f"{PACKAGE}\n"


def cluster_of(*machines):
    """What `ray.nodes` says of a cluster of machines with so many CPUs and GPUs."""
    named = [{"CPU": cpus, "GPU": gpus} if gpus else {"CPU": cpus} for cpus, gpus in machines]
    return SimpleNamespace(nodes=lambda: [{"Alive": True, "Resources": each} for each in named])


def test_a_gpu_each_where_there_are_any_and_as_many_as_there_is_room_for():
    boxes = cluster_of((8.0, 4.0), (8.0, 4.0), (64.0, 0.0))
    assert share_of(boxes, None, None, None, 1000) == WorkerResources(8, 1.0, 1.0)
    assert share_of(boxes, 3, 4.0, None, 1000) == WorkerResources(3, 4.0, 1.0)
    assert share_of(boxes, None, 2.0, 0.5, 1000) == WorkerResources(8, 2.0, 0.5)
    assert share_of(boxes, None, None, 0.0, 1000) == WorkerResources(80, 1.0, 0.0)
    assert share_of(boxes, None, None, 0.0, 5) == WorkerResources(5, 1.0, 0.0), "what memory there is"
    assert share_of(cluster_of((2.0, 0.0)), 20, 0.1, None, 1) == WorkerResources(20, 0.1, 0.0), "asked for is asked for"
    with pytest.raises(HeadroomError, match="room for 4 workers of 4 CPUs and 1 GPU, not for 5; choose --workers 4"):
        share_of(boxes, 5, 4.0, 1.0, 1000)
    with pytest.raises(HeadroomError, match="no machine of the cluster has 1 CPU and 8 GPUs for a worker"):
        share_of(boxes, None, None, 8.0, 1000)


@pytest.fixture
def errand(tmp_path):
    """What an actor is told, all of it true but that there is no model."""
    file = tmp_path / "plan.json"
    file.write_bytes(written(plan_of(2)))
    (tmp_path / "mark").touch()
    return Errand(
        "another-machine", os.getcwd(), str(file), digest_of(str(file)), str(tmp_path), str(tmp_path / "mark"), 120.0,
        {}, str(tmp_path / "results"), True, None, f"3/meeting/{0:040x}")  # fmt: skip


def test_an_actor_that_sees_another_plan_folder_or_store_says_so_before_it_takes_a_cell(errand, store, tmp_path):
    def answer(errand):
        told = Actor(asdict(errand)).join()
        assert "\n" not in told["refused"]
        return told["refused"]

    assert "is another plan there" in answer(replace(errand, digest="0"))
    assert "cannot read the plan" in answer(replace(errand, plan=str(tmp_path / "none.json")))
    assert "--claims" in answer(replace(errand, mark=str(tmp_path / "none")))
    assert "results that are stored there are not found here" in answer(errand)
    lost = answer(replace(errand, shared=str(tmp_path / "gone")))
    assert "shared results cannot be read" in lost and "set HEADROOM_SHARED" in lost
    assert not (tmp_path / "workers").exists()


class Lost(Exception):
    """What Ray raises of a lost actor."""

    actor_init_failed = False


class Unavailable(Lost):
    """What it raises while the actor's machine does not answer."""


class FakeRay:
    """As much of Ray as a crew needs: actors that answer at once what `answers` gives of their number and method, an
    exception of an actor that is lost, nothing where that is None."""

    exceptions = SimpleNamespace(
        RayError=Lost, ActorDiedError=Lost, ActorUnavailableError=Unavailable, OutOfMemoryError=MemoryError
    )

    def __init__(self, answers):
        self.answers, self.n_started, self.killed = cache(answers), 0, 0

    def remote(self, kind):
        return SimpleNamespace(options=lambda **more: SimpleNamespace(remote=self._started))

    def _started(self):
        number, self.n_started = self.n_started, self.n_started + 1
        methods = {
            name: SimpleNamespace(remote=lambda *_, name=name: (number, name)) for name in ("join", "work", "now")
        }
        return SimpleNamespace(number=number, **methods)

    def wait(self, refs, num_returns, timeout):
        return [ref for ref in refs if self.answers(*ref) is not None], []

    def get(self, ref):
        answer = ("", []) if ref[1] == "now" else self.answers(*ref)
        if isinstance(answer, Exception):
            raise answer
        return {"host": "h", "pid": 1 + ref[0], "differs": ""} | answer if ref[1] == "join" else answer

    def kill(self, actor):
        self.killed += 1

    def cluster_resources(self):
        return {"CPU": 2.0}

    def available_resources(self):
        return {}


def crew_of(answers, errand, n=2, claims=None):
    said, ray = [], FakeRay(answers)
    plan = read_plan(errand.plan)
    return (
        Crew(ray, WorkerResources(n, 1.0, 0.0), errand, plan, claims or Claims(errand.claims), said.append),
        ray,
        said,
    )


def test_a_lost_actor_is_started_anew_so_often_and_no_oftener(errand):
    crew, ray, said = crew_of(
        lambda number, method: {"join": {}, "work": Lost("gone"), "now": ("", [])}[method], errand
    )
    with pytest.raises(HeadroomError, match="was lost, as 3 before it in its place: its process was killed"):
        crew.work()
    assert ray.n_started == 2 * (1 + crews.RESTARTS) and crew.n_restarts == len(said) == 2 * crews.RESTARTS


def test_a_machine_that_cannot_help_leaves_the_rest_to_others(errand):
    def answers(number, method):
        return {"refused": "no rows here", "away": None} if (number, method) == (0, "join") else {}

    crew, ray, said = crew_of(answers, errand)
    crew.work()
    assert said == ["a worker has ended, others go on: on h no rows here"] and ray.n_started == 2
    crew, _, said = crew_of(lambda number, method: {"refused": "none of it is here", "away": "a/b"}, errand)
    with pytest.raises(NotHere, match="none of it is here"):
        crew.work()


@pytest.mark.parametrize("told", ["engine.plans.actors", "headroom.engine.plans.actors"])
@pytest.mark.parametrize("code", [str(REPOSITORY), "/a/clone/of/another/machine"])
def test_an_actor_is_found_in_a_clone_whether_the_driver_runs_in_a_clone_or_is_installed(code, told, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    actor = _actor_class(SimpleNamespace(remote=lambda kind: kind))()
    refused_by = actor.join(code, told, {})["refused"]
    assert "Errand.__init__() missing" in refused_by, "the module was imported, and wants to know its errand"


def test_nobody_waits_forever_for_what_others_use(errand, monkeypatch):
    monkeypatch.setattr(crews, "START_S", -1.0)
    crew, ray, _ = crew_of(lambda number, method: None, errand)
    with pytest.raises(HeadroomError, match="no worker of 1 CPU could begin .*: 0 of 2 CPUs are free"):
        crew.work()
    assert ray.killed == 2


def test_a_cell_that_two_processes_end_with_is_set_aside_and_one_of_a_lost_machine_is_not(errand):
    """Each actor joins and claims the first cell before it is lost."""
    cases = (Lost("because its node has died"), False), (Unavailable("Socket closed"), False), (Lost("killed"), True)
    for number, (error, is_failed) in enumerate(cases):
        folder = Path(errand.claims) / str(number)

        def answers(number, method, folder=folder, error=error):
            if method == "work":
                claims = Claims(folder)
                claims.join()
                claims._tell({"host": "h", "pid": 1 + number, "began": 0.0})
                claims.refresh()
                assert "0000000000000000" in claims.settled or claims.take_over("0000000000000000")
                return error
            return {}

        crew, _, _ = crew_of(answers, errand, n=1, claims=Claims(folder))
        with pytest.raises(HeadroomError):
            crew.work()
        assert bool(standing(read_plan(errand.plan), Claims(folder)).failed) is is_failed


def test_a_worker_that_is_known_to_be_dead_is_released_from_what_it_had_in_hand(tmp_path):
    dead, other = Claims(tmp_path), Claims(tmp_path)
    dead.join()
    other.join()
    assert dead.take("0000000000000001") and not other.take_over("0000000000000001")
    with open(tmp_path / "workers" / "0.jsonl", "ab") as log:
        log.write(b'{"cell": "00')  # half a line
    assert other.release(0) == ["0000000000000001"] and other.take_over("0000000000000001")
    other.refresh()
    assert 0 in other.left and other.release(0) == [], "what another has taken is that one's"


def test_what_has_failed_before_is_tried_again_by_all_actors_and_what_fails_then_is_not(tmp_path):
    one = Claims(tmp_path)
    one.join()
    for cell in ("0000000000000001", "0000000000000002"):
        assert one.take(cell)
        one.settle(cell, 1.0, failed="no rows")
    before = Claims(tmp_path, retry=True).retried()
    assert Claims(tmp_path).retried() == {}
    assert one.take_over("0000000000000001")
    one.settle("0000000000000001", 1.0, failed="no rows")
    actor = Claims(tmp_path, retry=before)
    actor.refresh()
    assert set(actor.settled) == {"0000000000000001"}


def test_folders_of_killed_drivers_are_removed_at_the_next_start(tmp_path):
    names = ("killed", "running", "starting")
    killed, running, starting = (tmp_path / f"{FOLDER}{name}" for name in names)
    other = tmp_path / "ray-other"
    for folder in (killed, running, starting, other):
        (folder / "session").mkdir(parents=True)
        if folder is not starting:
            os.utime(folder, (0, 0))
    lock = lock_folder(running)
    remove_left_folders(str(tmp_path))
    assert sorted(tmp_path.iterdir()) == sorted([running, starting, other])
    os.close(lock)
    remove_left_folders(str(tmp_path))
    assert sorted(tmp_path.iterdir()) == sorted([starting, other])

"""`--ray`: workers of Ray measure what one process does, byte for byte, lost workers or not.

Most tests have actors in this process, whose arguments and answers are pickled as Ray does. The last ones start Ray:
each driver is a process, as Ray would change this one's signals and settings.
"""

import importlib.util
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from cache import Store
from cache.store import is_store
from engine.distributed import driver
from engine.distributed.clusters import LOCAL, OWN, PACKAGE, RayOptions, opened, share_of
from engine.distributed.worker import MemoryStore
from engine.errors import HeadroomError, UsageError
from engine.files import temporary_folder
from engine.models.session import Session
from engine.requests import CompareCriteria, CompareMechanisms, Correlate, Evaluate, ScoreImportance, Sweep
from engine.requests.output import to_json
from tests.cli.conftest import refused
from tests.conftest import HANG_S, IS_THOROUGH, LOOPBACK, REPOSITORY
from tests.engine.fixtures import refused_by, write_questions
from tests.same_results import differences, results

N_QUESTIONS, N_LONG = 4, 60
with_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install -r requirements-ray.txt"
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with three files of questions."""
    folder = tmp_path_factory.mktemp("ray")
    for seed, (name, n) in enumerate({"a": N_QUESTIONS, "b": N_QUESTIONS, "long": N_LONG}.items()):
        write_questions(folder / f"{name}.jsonl", n, seed)
        # else what is judged is stored under the keys of what ranks, with either's receipt
        write_questions(folder / "other.jsonl", n, 10 + seed).rename(folder / f"{name}.train.jsonl")
    return folder


def several(place, tiny_opt, **more):
    """The fields of a request of both files."""
    tasks = ",".join(str(place / f"{name}.jsonl") for name in "ab")
    return {"model": str(tiny_opt), "precision": "fp32", "tasks": tasks, **more}


class Lost(Exception):
    """What Ray raises of a lost actor."""


class Ref:
    """A call under way; `get` gives its answer."""

    def __init__(self, get):
        self.get = get


class Actor:
    """A worker's handle."""

    def __init__(self, where, measure):
        self.where, self.measure = where, measure


class Ray:
    """As much of Ray as a driver needs. `events` are called before each measurement and may raise Lost."""

    exceptions = SimpleNamespace(RayError=Lost)

    def __init__(self, n_cpus=2, events=()):
        self.n_cpus, self.events, self.killed, self.n_measured = n_cpus, [*events], 0, 0

    def nodes(self):
        return [{"Alive": True, "Resources": {"CPU": self.n_cpus}}]

    def remote(self, kind):
        def options(**more):
            self.environment = more["runtime_env"]["env_vars"]
            return SimpleNamespace(remote=lambda *given: self._actor(kind(*given)))

        return SimpleNamespace(options=options)

    def _actor(self, worker):
        where = SimpleNamespace(options=lambda **more: SimpleNamespace(remote=lambda: Ref(worker.where)))
        return Actor(where, SimpleNamespace(remote=lambda *given: self._call(worker, given)))

    def _call(self, worker, given):
        sent = pickle.dumps(given)

        def get():
            self.n_measured += 1
            if self.events and (event := self.events.pop(0)) is not None:
                raise event
            return pickle.loads(pickle.dumps(worker.measure(*pickle.loads(sent))))

        return Ref(get)

    def wait(self, refs, num_returns, timeout):
        return refs[-1:], refs[:-1]  # the last first, as they may end in any order

    def get(self, ref):
        return ref.get()

    def kill(self, actor):
        self.killed += 1


@pytest.fixture
def on_ray(monkeypatch):
    """Runs a request with such a Ray and gives the result, which its own process has not measured."""
    monkeypatch.setenv("HEADROOM_PRODUCTS", "")

    def run(request, folder, ray):
        @contextmanager
        def opened(address):
            yield ray

        monkeypatch.setattr(driver, "opened", opened)
        with closing(Store(folder)) as store:
            session = Session(store)
            try:
                return request.run(session, ray="local")
            finally:
                assert session.models.held == (), "the driver measures nothing"

    return run


def alone(request, folder):
    with closing(Store(folder)) as store:
        return request.run(Session(store))


def told(result):
    return to_json({
        name: value for name, value in result.fields.items() if name not in ("seconds", "examples_per_second", "out")
    })  # fmt: skip


REQUESTS = {
    "sweep": lambda of, out: Sweep(**of, shots="0,1", head_levels="0,60", ffn_levels="0,50", out=out),
    "sweep, one after the other": lambda of, out: Sweep(**of, shots="0", order="rescored", out=out),
    "sweep, by others": lambda of, out: Sweep(**of, shots="0", order="others", head_levels="0,50", out=out),
    "correlate": lambda of, out: Correlate(**of, shots="0,1", out=out),
    "compare": lambda of, out: CompareCriteria(
        task=of.pop("tasks").split(",")[0], **of, criteria="importance,oracle,wanda", levels="0,50", out=out
    ),
    "mechanisms": lambda of, out: CompareMechanisms(**of, shots=1, kinds="induction,importance", fill="mean", out=out),
    "importance": lambda of, out: ScoreImportance(
        task=of.pop("tasks").split(",")[0], **of, score="heads-oracle", out=out
    ),
}


@pytest.mark.slow("measures everything twice, with models that are loaded again")
@pytest.mark.parametrize("name", REQUESTS)
def test_workers_measure_what_one_process_does(name, place, tiny_opt, tmp_path, on_ray, monkeypatch):
    monkeypatch.setattr("engine.accuracy.restarts.APART", 2)
    made = {
        who: REQUESTS[name](several(place, tiny_opt, order_questions=N_QUESTIONS) if name != "importance"
                            else several(place, tiny_opt), str(tmp_path / f"{who}.csv"))
        for who in ("one", "many")
    }  # fmt: skip
    one, many, ray = alone(made["one"], tmp_path / "one"), Ray(), None
    found = on_ray(made["many"], tmp_path / "many", many)
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "many.csv").read_bytes()
    assert told(found) == told(one) and not found.fields["cached"]
    assert differences(tmp_path / "one", tmp_path / "many") == {}
    assert many.n_measured > 1 and many.killed == 2
    ray = Ray()
    assert on_ray(made["many"], tmp_path / "many", ray).fields["cached"] and ray.n_measured == 0


def small_sweep(place, tiny_opt, tmp_path, **more):
    return Sweep(**several(place, tiny_opt), shots="0", head_levels="0,50", out=str(tmp_path / "out.csv"), **more)


def test_a_lost_worker_is_replaced_and_its_part_is_measured_by_another(place, tiny_opt, tmp_path, on_ray, capsys):
    request, ray = small_sweep(place, tiny_opt, tmp_path), Ray(events=[None, Lost("killed"), None, Lost("killed")])
    found = on_ray(request, tmp_path / "many", ray)
    assert not found.fields["not_measured"] and len(found.fields["rows"]) == 4
    assert capsys.readouterr().err.count("was lost, and another takes its place") == 2


def test_a_part_that_ends_three_workers_is_told_and_the_others_go_on(place, tiny_opt, tmp_path, on_ray, capsys):
    request, ray = small_sweep(place, tiny_opt, tmp_path), Ray(n_cpus=1, events=[])
    real, ends = driver.Remaining.give, "a.jsonl"

    def give(rest):
        task, about = real(rest)
        questions = next((each for each in task.call.arguments if hasattr(each, "task")), None)
        ray.events = [Lost("killed")] if questions is not None and questions.task.name.endswith(ends) else []
        return task, about

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver.Remaining, "give", give)
        found = on_ray(request, tmp_path / "many", ray)
    (reason,) = set(found.fields["not_measured"].values())
    assert reason == "3 workers were lost with it: killed, crashed, or out of memory"
    assert len(found.fields["rows"]) == 2 and f"not measured: {place / ends}" in found.text.replace(", 0 shots", "")


def test_what_a_worker_cannot_measure_is_told_once_and_the_others_go_on(place, tiny_opt, tmp_path, on_ray, monkeypatch):
    def fails(loaded, *arguments, **named):
        if named["questions"].task.name.endswith("a.jsonl"):
            raise HeadroomError("its numbers are odd")
        return (yield from real(loaded, *arguments, **named))

    from engine.importance import scores

    real = scores._measured
    monkeypatch.setattr(scores, "_measured", fails)
    found = on_ray(small_sweep(place, tiny_opt, tmp_path), tmp_path / "many", Ray())
    monkeypatch.setattr(scores, "_measured", real)
    assert [*found.fields["not_measured"].values()] == ["its numbers are odd"] and found.text.count("are odd") == 1
    assert len([row for row in found.fields["rows"] if row["task"].endswith("b.jsonl")]) == 2
    again = on_ray(small_sweep(place, tiny_opt, tmp_path), tmp_path / "many", Ray())
    assert len(again.fields["rows"]) == 4 and not again.fields["not_measured"]


def test_a_machine_that_would_give_other_numbers_says_so(place, tiny_opt, tmp_path, on_ray, monkeypatch):
    real = driver.Remaining.give

    def give(rest):
        task, (call, key, records) = real(rest)
        return task, (call, key | {"device": "cuda"}, records)

    monkeypatch.setattr(driver.Remaining, "give", give)
    request = small_sweep(place, tiny_opt, tmp_path)
    line = refused_by(HeadroomError, "other keys", lambda: on_ray(request, tmp_path / "many", Ray()))
    assert f"on {os.uname().nodename} has ended: " in line and "device cpu, not cuda" in line


def test_a_machine_without_the_model_is_named_with_its_path(place, tiny_opt, tmp_path, on_ray, monkeypatch):
    real = Session.loaded
    monkeypatch.setattr(Session, "loaded", lambda *given: real(*given))
    gone = str(tmp_path / "gone")
    Path(gone).symlink_to(tiny_opt)
    request = Sweep(**several(place, gone), shots="0", head_levels="0,50", out=str(tmp_path / "out.csv"))

    def give(rest, real=driver.Remaining.give):
        found = real(rest)
        Path(gone).unlink(missing_ok=True)
        return found

    monkeypatch.setattr(driver.Remaining, "give", give)
    monkeypatch.setattr("engine.distributed.driver.share_of", lambda *_: (1, {"CPU": 1.0, "GPU": 0.0}))
    line = refused_by(HeadroomError, gone, lambda: on_ray(request, tmp_path / "many", Ray()))
    assert f"on {os.uname().nodename} has ended: " in line


def test_workers_get_the_variables_that_change_numbers(place, tiny_opt, tmp_path, on_ray, monkeypatch):
    given = {"MKL_CBWR": "AVX2,STRICT", "ATEN_CPU_CAPABILITY": "avx2", "OMP_NUM_THREADS": "1"}
    for name, value in (given | {"HEADROOM_CACHE": "/of the driver", "HOME": str(tmp_path)}).items():
        monkeypatch.setenv(name, value)
    on_ray(small_sweep(place, tiny_opt, tmp_path), tmp_path / "many", ray := Ray())
    assert ray.environment.items() >= given.items() and not {"HEADROOM_CACHE", "HOME"} & ray.environment.keys()
    assert ray.environment["PYTHONPATH"] == f"{REPOSITORY}:${{PYTHONPATH}}"


def test_records_in_memory_are_those_of_a_store(tmp_path):
    with closing(Store(tmp_path)) as store:
        store.put("a", b"1")
        memory = MemoryStore(tmp_path, store)
        assert memory.get("a") == b"1" and memory.get("b") is None and memory.read == {"a": b"1"}
        assert memory.put("b", b"2") and memory.get("b") == b"2" and memory.made == {"b": b"2"}
        assert store.get("b") is None


def test_options_that_cannot_be_meant_are_refused(cli, place, tiny_opt, tmp_path, monkeypatch):
    sweep = ("sweep", "--model", tiny_opt, "--precision", "fp32", "--tasks", place / "a.jsonl", "--shots", "0")
    sweep = (*sweep, "--out", tmp_path / "out.csv")
    for address in ("host", "host:many", ":6379", "host:99999"):
        refused(cli(*sweep, "--ray", address), 2, f"--ray {address!r}", "local, auto, or one like HOST:6379")
    refused(cli(*sweep, "--workers", "2"), 2, "--workers", "add --ray")
    refused(cli(*sweep, "--ray", "--cpus", "1.5"), 2, "--cpus is 1.5", "choose 1 or 2")
    monkeypatch.setitem(sys.modules, "ray", None)
    before = dict(os.environ)
    code, out, lines = cli(*sweep, "--ray")
    assert (code, out) == (1, "") and "--ray needs Ray" in lines[-1] and f"-m pip install {PACKAGE}" in lines[-1]
    assert dict(os.environ) == before
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(shutdown=lambda: None))
    code, out, lines = cli(*sweep, "--ray", "127.0.0.1:1")
    assert code == 1 and "cannot join the Ray cluster at 127.0.0.1:1" in lines[-1] and "ray start" in lines[-1]
    assert (REPOSITORY / "requirements-ray.txt").read_text() == f"{PACKAGE}\n"


def test_a_request_without_workers_names_those_that_have_them():
    line = refused_by(UsageError, "Evaluate is not measured by workers", lambda: Evaluate(task="a").run(ray="local"))
    assert line.endswith("choose from CompareCriteria, CompareMechanisms, Correlate, ScoreImportance, Sweep")


def test_ray_sets_no_signals_and_is_started_in_any_thread(monkeypatch):
    def init(*given, **options):
        with suppress(ValueError):  # in another thread Ray sets none
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def handler():
        with opened(LOCAL):
            return signal.getsignal(signal.SIGTERM)

    constants = SimpleNamespace(ENABLE_RAY_CLUSTER=False)
    private = SimpleNamespace(ray_constants=constants)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init, shutdown=lambda: None, _private=private))
    before = signal.getsignal(signal.SIGTERM)
    with ThreadPoolExecutor() as threads:
        assert handler() == threads.submit(handler).result() == signal.getsignal(signal.SIGTERM) == before
    constants.ENABLE_RAY_CLUSTER = True
    refused_by(HeadroomError, "imported before, with other settings; start this in a new process", handler)


def test_folders_of_killed_drivers_are_removed_and_those_of_others_are_not(tmp_path):
    left = tmp_path / "ray-left"
    left.mkdir()
    with temporary_folder("ray-", tmp_path) as one, temporary_folder("ray-", tmp_path) as other:
        assert {*tmp_path.iterdir()} == {one, other}
    assert not [*tmp_path.iterdir()]


def test_a_gpu_each_where_there_are_any_and_as_many_as_there_is_room_for():
    def cluster(*machines):
        named = [{"CPU": cpus, "GPU": gpus} if gpus else {"CPU": cpus} for cpus, gpus in machines]
        return SimpleNamespace(nodes=lambda: [{"Alive": True, "Resources": each} for each in named])

    boxes = cluster((8.0, 4.0), (8.0, 4.0), (64.0, 0.0))

    def share(workers=None, cpus=None, gpus=None, most=1000, of=boxes):
        return share_of(of, RayOptions("auto", workers, cpus, gpus), most)

    assert share() == (8, {"CPU": 1.0, "GPU": 1.0})
    assert share(3, 4.0) == (3, {"CPU": 4.0, "GPU": 1.0})
    assert share(None, 2.0, 0.5) == (8, {"CPU": 2.0, "GPU": 0.5})
    assert share(gpus=0.0) == (80, {"CPU": 1.0, "GPU": 0.0})
    assert share(gpus=0.0, most=5) == (5, {"CPU": 1.0, "GPU": 0.0}), "as the memory has room for"
    assert share(20, 0.1, most=1, of=cluster((2.0, 0.0))) == (20, {"CPU": 0.1, "GPU": 0.0}), "asked for is asked for"
    with pytest.raises(HeadroomError, match="room for 4 workers of 4 CPUs and 1 GPU each, not for 5"):
        share(5, 4.0, 1.0)
    with pytest.raises(HeadroomError, match="room for 0 workers of 1 CPU and 8 GPUs each, not for 1; ask for less"):
        share(gpus=8.0)


NODES = """
import sys
import ray, ray._private.node
from ray.cluster_utils import Cluster
cluster = Cluster()
for folder in sys.argv[2:]:
    cluster.add_node(temp_dir=sys.argv[1], num_cpus=1, object_store_memory=80_000_000, include_dashboard=False,
                     no_monitor=True, include_log_monitor=False, env_vars={"HEADROOM_CACHE": folder})
print(cluster.address, flush=True)
sys.stdin.read()
"""


def below(process):
    """The processes that it has started, and those that these have."""
    with suppress(psutil.Error):
        return psutil.Process(process.pid).children(recursive=True)
    return []


def workers_of(process):
    """The workers of Headroom among them."""
    found = []
    for each in below(process):
        with suppress(psutil.Error):
            found += [each] if "ray::Worker" in " ".join(each.cmdline()) else []
    return found


@contextmanager
def driving(arguments, folder, environment, warm):
    """A driver at work in a folder of its own."""
    folder.mkdir()
    words = ["-m", "engine", *arguments, "--cache", folder / "store", "--json"]
    process = warm.start(words, {**environment, "PYTHONPATH": str(REPOSITORY)}, folder)
    try:
        yield process
    finally:
        process.kill()
        if not process.stdout.closed:
            process.communicate()


def until(condition, process):
    """What the condition gives once that is something; a driver that has ended fails."""
    end_s = time.monotonic() + HANG_S
    while time.monotonic() < end_s:
        if found := condition():
            return found
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    raise AssertionError("it took too long")


def counts(folder):
    """How many results of workers a store has."""
    if not is_store(folder):
        return 0
    with closing(Store(folder)) as store:
        return sum("/answers/" in key or "/importance/" in key for key in store.keys())


def command(place, tiny_opt, out):
    """A sweep of parts that take a moment each."""
    base = ["sweep", "--model", tiny_opt, "--precision", "fp32", "--tasks", place / "long.jsonl", "--shots", "0,1"]
    base += ["--limit", str(N_LONG), "--order-questions", "4", "--out", out, "--threads", "1"]
    return [*base, "--head-levels", "0,40,80", "--ffn-levels", "0,50"]


@with_ray
@pytest.mark.thorough
@pytest.mark.skipif(not IS_THOROUGH, reason="the short form is the test of the own cluster")
@pytest.mark.slow("starts two nodes of Ray, a driver, and two workers that import torch")
def test_two_nodes_without_a_common_folder_of_which_one_worker_is_killed(place, tiny_opt, tmp_path, cli, warm):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "HEADROOM_"))}
    environment |= {name: value for name, value in OWN.items() if name != "RAY_AUTH_MODE"}
    sockets = tempfile.mkdtemp(dir="/tmp")  # whose whole paths have 107 characters at most
    environment |= {"RAY_TMPDIR": sockets, "PYTHONPATH": "of the nodes"}
    Path(sockets, "ray").mkdir()  # where Ray notes the address, which it does not make
    started = [sys.executable, "-c", NODES, sockets, str(tmp_path / "a"), str(tmp_path / "b")]
    nodes = subprocess.Popen(
        started, cwd=tmp_path, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        # while they start
        assert cli(*command(place, tiny_opt, tmp_path / "one.csv"), "--cache", tmp_path / "one")[0] == 0
        address = nodes.stdout.readline().strip()
        arguments = [*command(place, tiny_opt, tmp_path / "many.csv"), "--ray", address, "--workers", "2"]
        with driving(arguments, tmp_path / "driver", environment, warm) as process:
            until(lambda: counts(tmp_path / "driver" / "store"), process)
            both = workers_of(nodes)
            assert len(both) == 2 and len({each.ppid() for each in both}) == 2, "one on each node"
            assert {each.environ()["PYTHONPATH"] for each in both} == {f"{REPOSITORY}:of the nodes"}
            both[0].suspend()  # while it measures a part, if any is left
            seen = counts(tmp_path / "driver" / "store")
            until(lambda: counts(tmp_path / "driver" / "store") > seen + 2, process)
            both[0].kill()
            out, err = process.communicate(timeout=HANG_S)
        assert process.returncode == 0 and "Traceback" not in err, err
        assert err.count("was lost, and another takes its place") == 1
        assert not json.loads(out)["not_measured"]
    finally:
        for each in [*below(nodes), nodes]:  # Ray's own way takes long
            with suppress(psutil.NoSuchProcess):
                each.kill()
        nodes.communicate()
        shutil.rmtree(sockets, ignore_errors=True)
    assert (tmp_path / "many.csv").read_bytes() == (tmp_path / "one.csv").read_bytes()
    assert differences(tmp_path / "driver" / "store", tmp_path / "one") == {}
    assert not (tmp_path / "a").exists() and not (tmp_path / "b").exists(), "workers keep nothing on their disks"


def listening(processes):
    """The addresses at which any of the processes listens."""
    found = set()
    for each in processes:
        with suppress(psutil.Error):
            connections = each.net_connections("inet")
            found |= {one.laddr.ip.removeprefix("::ffff:") for one in connections if one.status == psutil.CONN_LISTEN}
    return found


@with_ray
@pytest.mark.slow("starts Ray, and two workers that import torch")
def test_a_killed_worker_is_replaced_and_ctrl_c_ends_the_own_cluster_which_listens_to_this_computer_alone(
    place, tiny_opt, tmp_path, cli, warm
):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment["HOME"] = str(tmp_path)
    left = Path(tempfile.mkdtemp(prefix="headroom-ray-", dir="/tmp"))  # by a driver that was killed
    folders = {*Path("/tmp").glob("headroom-ray-*")} - {left}
    arguments = [*command(place, tiny_opt, tmp_path / "many.csv"), "--ray", "--workers", "1", "--cpus", "0.5"]
    store = tmp_path / "driver" / "store"
    with driving(arguments, tmp_path / "driver", environment, warm) as process:
        until(lambda: counts(store), process)
        [first] = workers_of(process)
        first.kill()
        until(lambda: {*workers_of(process)} - {first}, process)
        seen = counts(store)
        until(lambda: counts(store) > seen, process)
        started = below(process)
        assert listening([psutil.Process(process.pid), *started]) == {LOOPBACK[0]}
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 130 and out == "" and "resumes from there" in err.splitlines()[-1], err
    assert err.count("was lost, and another takes its place") == 1
    assert not psutil.wait_procs(started, HANG_S)[1], "no process is left"
    assert {*Path("/tmp").glob("headroom-ray-*")} <= folders and not (tmp_path / ".ray").exists()
    assert cli(*command(place, tiny_opt, tmp_path / "one.csv"), "--cache", tmp_path / "one")[0] == 0
    assert not differences(store, tmp_path / "one").keys() & results(store).keys()

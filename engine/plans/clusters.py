"""Ray's side of the work: a cluster of this computer's own or one that is there, and how many workers it has room for.

Ray is imported here and nowhere else, and only once it is asked for.
"""

import io
import logging
import os
import secrets
import shutil
import signal
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import Cancelled, HeadroomError, UsageError, one_line
from engine.files import lock_folder
from engine.plans.ray_internals import OWN, start

PACKAGE = "ray==2.60.0"  # as requirements-ray.txt has it
FOLDER = "headroom-ray-"  # begins the name of the folder of a cluster of this computer's own
STARTS_S = 60.0  # a folder so young may belong to a driver that has not locked it yet
OBJECTS_BYTES = 100 * 2**20  # of Ray's object store, which carries a line now and then; it takes no less than 75 MiB
REACHED_S = 10.0  # for an address to answer at all
LOOPBACK = "127.0.0.1"
# HTTP/2's, with which gRPC begins, and a frame of no settings: what Ray answers is such a frame of its own
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


@dataclass(frozen=True)
class WorkerResources:
    """How many workers there are to be, and the CPUs and GPUs that each has for itself."""

    workers: int
    cpus: float
    gpus: float

    def __str__(self) -> str:
        """What one worker needs: such as "1 CPU and 1 GPU"."""
        needs = {"CPU": self.cpus, "GPU": self.gpus}
        return " and ".join(f"{n:g} {name}{'s' * (n > 1)}" for name, n in needs.items() if n)


def address_of(executor: str) -> str:
    """The address in `ray:ADDRESS`, "" where it is `ray` alone; UsageError for anything else."""
    name, colon, address = executor.partition(":")
    host, _, port = address.rpartition(":")
    if name != "ray" or bool(colon) != bool(address):
        raise UsageError(f"--executor {executor!r} is none; choose ray, ray:auto, or ray:HOST:PORT")
    if address and address != "auto" and not (host and port.isdecimal() and int(port) < 2**16):
        raise UsageError(f"--executor {executor!r} has no address; write it like ray:auto or ray:HOST:6379")
    return address


@contextmanager
def opened(address: str) -> Iterator[Any]:
    """Context in which Ray is connected to the cluster at an address, or where that is "" to one of this computer's own
    that ends with it; gives the module. HeadroomError where Ray is not installed, or nothing is there."""
    own = {} if address else {**OWN, "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    handler, folder, lock = signal.getsignal(signal.SIGTERM), "", None
    try:
        ray = _imported()
        if not address:
            remove_left_folders(_short_folder())
            folder = tempfile.mkdtemp(prefix=FOLDER, dir=_short_folder())
            lock = lock_folder(folder)
        with redirect_stdout(io.StringIO()):  # Ray prints there what it thinks of a lost actor
            try:
                _connect(ray, address, folder)
                signal.signal(signal.SIGTERM, handler)  # Ray has set its own
                yield ray
            finally:
                ray.shutdown()
    finally:
        signal.signal(signal.SIGTERM, handler)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def remove_left_folders(parent: str) -> None:
    """Removes the folders in `parent` of killed drivers: their locks are free."""
    for folder in Path(parent).glob(f"{FOLDER}*"):
        with suppress(OSError):
            about = folder.lstat()
            is_old = stat.S_ISDIR(about.st_mode) and time.time() - about.st_mtime > STARTS_S
            if is_old and (lock := lock_folder(folder)) is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)


def share_of(ray: Any, workers: int | None, cpus: float | None, gpus: float | None, most: int) -> WorkerResources:
    """What was asked for, and for what was not: a CPU each, a GPU each where there are any, and as many workers as
    there is room for, `most` at most. HeadroomError where the machines of the cluster do not have that."""
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if gpus is None:
        gpus = float(any(has.get("GPU", 0) >= 1 for has in machines))
    share = WorkerResources(workers or 1, 1.0 if cpus is None else cpus, gpus)
    room = sum(_room(has, share) for has in machines)
    if not room:
        there = "; ".join(f"{has.get('CPU', 0):g} CPUs and {has.get('GPU', 0):g} GPUs" for has in machines[:3])
        there += f", and {len(machines) - 3} more machines" if len(machines) > 3 else ""
        line = f"no machine of the cluster has {share} for a worker ({there})"
        raise HeadroomError(f"{line}; ask for less with --cpus and --gpus")
    if workers and workers > room:
        line = f"the cluster has room for {room:,} workers of {share}, not for {workers:,}"
        raise HeadroomError(f"{line}; choose --workers {room}, or less for each with --cpus and --gpus")
    return WorkerResources(workers or max(1, min(room, most)), share.cpus, share.gpus)


def free(ray: Any) -> str:
    """The unused resources, as text."""
    there, left = ray.cluster_resources(), ray.available_resources()
    return " and ".join(f"{left.get(name, 0):g} of {there[name]:g} {name}s" for name in ("CPU", "GPU") if name in there)


def _room(has: Mapping[str, float], share: WorkerResources) -> int:
    """How many workers one machine has room for."""
    wanted = {"CPU": share.cpus, "GPU": share.gpus}
    return min(int(has.get(name, 0) / n + 1e-9) for name, n in wanted.items() if n)


def _imported() -> Any:
    try:
        import ray
    except ImportError as error:
        how = f"`{sys.executable} -m pip install {PACKAGE}` installs it"
        raise HeadroomError(f"--executor ray needs Ray ({one_line(error)}); {how}") from error
    return ray


def _connect(ray: Any, address: str, folder: str) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    if address and address != "auto":
        _reach(address)
    try:
        if address:
            ray.init(address=address, **quiet)
            return
        start(ray, folder, object_store_memory=OBJECTS_BYTES, **quiet)
    except SystemExit as error:  # Ray's answer to SIGTERM
        raise Cancelled("cancelled") from error
    except Exception as error:
        if address:
            what, then = f"cannot join the Ray cluster at {address}", "`ray start` makes a machine part of one"
        else:
            what, then = "Ray cannot be started on this computer", "`headroom work PLAN` needs no Ray"
        raise HeadroomError(f"{what} ({one_line(error)}); {then}") from error
    if any(node["NodeManagerAddress"] != LOOPBACK for node in ray.nodes()):  # imported before by somebody else
        raise HeadroomError("Ray accepts connections from other computers; end this process and start it again")


def _reach(address: str) -> None:
    """HeadroomError where nothing answers, or not as Ray does. Ray's own client says the same of both, after 40 s."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), REACHED_S) as there:
            there.sendall(HELLO)
            there.settimeout(REACHED_S)
            answer = there.recv(9)
    except OSError as error:
        line = f"no Ray cluster answers at {address} ({error.strerror or error})"
        raise HeadroomError(f"{line}; `ray start --head` starts one, and says where") from error
    if answer[3:4] != HELLO[-6:-5] and not os.environ.get("RAY_USE_TLS"):
        raise HeadroomError(f"{address} is not a Ray cluster; `ray start --head` starts one and prints its address")


def _short_folder() -> str:
    """Where Ray's sockets may lie: their whole path has 107 characters at most."""
    return "/tmp" if os.access("/tmp", os.W_OK) else tempfile.gettempdir()

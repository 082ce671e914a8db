"""A cluster of Ray, of this computer's own or one that is there, and how many workers it has room for.

Ray is imported here and nowhere else, and only once it is asked for.
"""

import io
import logging
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.distributed.ray_internals import OWN, start
from engine.errors import Canceled, HeadroomError, UsageError, one_line
from engine.files import temporary_folder

PACKAGE = "ray==2.60.0"  # as requirements-ray.txt has it
OBJECTS_BYTES = 200 * 2**20  # of Ray's object store, which carries tasks and their records
REACHED_S = 10.0  # for an address to answer
LOCAL = "local"
TOKEN = secrets.token_hex(32)  # of this process, as Ray reads it once


@dataclass(frozen=True)
class RayOptions:
    """What a user wants of Ray: at which address (LOCAL: a cluster of this computer's own), how many workers, and CPUs
    and GPUs for each (None: what fits)."""

    address: str = LOCAL
    workers: int | None = None
    cpus: float | None = None
    gpus: float | None = None

    def __post_init__(self) -> None:
        host, _, port = self.address.rpartition(":")
        if self.address not in (LOCAL, "auto") and not (host and port.isdecimal() and int(port) < 2**16):
            raise UsageError(f"--ray {self.address!r} is not an address; choose {LOCAL}, auto, or one like HOST:6379")
        for name, n in (("cpus", self.cpus or 0), ("gpus", self.gpus or 0)):
            if n > 1 and n != int(n):
                whole = f"choose {int(n)} or {int(n) + 1}"
                raise UsageError(f"--{name} is {n:g}; beyond 1 Ray gives whole ones, so {whole}")


@contextmanager
def opened(address: str) -> Iterator[Any]:
    """Context in which Ray is connected to the cluster at an address, or where that is LOCAL to one of this computer's
    own that ends with it; gives the module. HeadroomError where Ray is not installed, or nothing is there."""
    own = {**OWN, "RAY_AUTH_TOKEN": TOKEN} if address == LOCAL else {}
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    try:
        try:
            import ray
        except ImportError as error:
            how = f"`{sys.executable} -m pip install {PACKAGE}` installs it"
            raise HeadroomError(f"--ray needs Ray ({one_line(error)}); {how}") from error
        within = Path("/tmp" if os.access("/tmp", os.W_OK) else tempfile.gettempdir())  # a path has 107 characters
        # Ray prints there what it thinks of a lost actor
        with redirect_stdout(io.StringIO()), temporary_folder("headroom-ray-", within) as folder:
            try:
                _connect(ray, address, str(folder))
                yield ray
            finally:
                ray.shutdown()
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def share_of(ray: Any, wanted: RayOptions, most: int) -> tuple[int, dict[str, float]]:
    """How many workers there are to be, and the CPUs and GPUs of each: as asked for, or else a CPU each, a GPU each if
    there are any, and as many workers as there is room for, `most` at most. HeadroomError if the machines of the
    cluster do not have that."""
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    gpus = float(any(has.get("GPU", 0) >= 1 for has in machines)) if wanted.gpus is None else wanted.gpus
    each, least = {"CPU": wanted.cpus or 1.0, "GPU": gpus}, wanted.workers or 1
    needs = {name: n for name, n in each.items() if n}
    room = sum(min(int(has.get(name, 0) / n + 1e-9) for name, n in needs.items()) for has in machines)
    if room < least:
        one = " and ".join(f"{n:g} {name}{'s' * (n > 1)}" for name, n in needs.items())
        line = f"the cluster has room for {room:,} workers of {one} each, not for {least:,}"
        raise HeadroomError(f"{line}; ask for less with --workers, --cpus and --gpus")
    return wanted.workers or max(1, min(room, most)), each


def _connect(ray: Any, address: str, folder: str) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    what, then = f"cannot join the Ray cluster at {address}", "`ray start --head` starts one, and says where"
    handler = signal.getsignal(signal.SIGTERM)
    try:
        if address == LOCAL:
            what, then = "Ray cannot be started on this computer", "without --ray the command needs no Ray"
            start(ray, folder, object_store_memory=OBJECTS_BYTES, **quiet)
        else:
            host, _, port = address.rpartition(":")
            if host:  # Ray itself waits for 40 seconds
                socket.create_connection((host.strip("[]"), int(port)), REACHED_S).close()
            ray.init(address=address, **quiet)
    except SystemExit as error:  # Ray's answer to SIGTERM
        raise Canceled("canceled") from error
    except Exception as error:
        raise HeadroomError(f"{what} ({one_line(error)}); {then}") from error
    finally:
        if threading.current_thread() is threading.main_thread():  # where Ray has set its own
            signal.signal(signal.SIGTERM, handler)

"""The app in a process of its own that says how much memory it holds, and in what, whenever it is sent a signal."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.conftest import HANG_S, REPOSITORY
from tests.warm import WarmInterpreter, WarmProcess

# SIGUSR1: weighs the process. SIGUSR2: cancels all work.
SERVE = """
import os, signal, sys, threading
log = os.open(sys.argv.pop(1), os.O_WRONLY | os.O_CREAT)
os.dup2(log, 1)
os.dup2(log, 2)
from tests.browser.weighed import say, cancel_all, count_loads
count_loads()
signal.signal(signal.SIGUSR1, lambda *_: threading.Thread(target=say).start())
signal.signal(signal.SIGUSR2, lambda *_: threading.Thread(target=cancel_all).start())
from streamlit.web.cli import main
main()
"""


LOADS: list[Any] = []  # in the server: what it has loaded


class Server:
    """The app with an empty store, and what it says; `warm` starts it with the libraries in memory."""

    def __init__(self, folder: Path, warm: WarmInterpreter | None = None, **environment: str):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address, self.said = f"http://127.0.0.1:{port}", folder / "server.log"
        known = {**os.environ, "PYTHONPATH": str(REPOSITORY), "HEADROOM_CACHE": str(folder / "results")}
        self.said.touch()
        words = ["-c", SERVE, str(self.said), "run", "app.py", f"--server.port={port}", "--server.headless=true"]
        self.process: subprocess.Popen[bytes] | WarmProcess
        if warm is not None:
            self.process = warm.start(words, known | environment)
        else:
            self.process = subprocess.Popen([sys.executable, *words], cwd=REPOSITORY, env=known | environment)
        self.wait_for(f":{port}", 1)

    def wait_for(self, words: str, times: int) -> str:
        """The line in which the server says these words for that many times."""
        for _ in range(10 * HANG_S):
            if (lines := [line for line in self.said.read_text().splitlines() if words in line])[times - 1 :]:
                return lines[-1]
            time.sleep(0.1)
        raise AssertionError(f"the server never said {words!r}: {self.said.read_text()}")

    def weigh(self) -> dict[str, Any]:
        """What it holds, in MB (see `held`)."""
        before = self.said.read_text().count("holds {")
        self.process.send_signal(signal.SIGUSR1)
        return json.loads(self.wait_for("holds {", before + 1).split("holds ", 1)[1])

    def megabytes(self) -> float:
        """Its resident memory."""
        return self.weigh()["resident"]

    def cancel_all(self) -> None:
        """Has all its work canceled."""
        self.process.send_signal(signal.SIGUSR2)

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=HANG_S)  # which closes its pipes


def say() -> None:
    """In the server: prints what it holds."""
    import gc

    gc.collect()
    print("holds", json.dumps(held()), flush=True)


def count_loads() -> None:
    """In the server: has it count the models that it loads."""
    from engine.models import loading

    load = loading.load
    loading.load = lambda *about: LOADS.append(about[0]) or load(*about)


def cancel_all() -> None:
    """In the server: cancels all work."""
    from pages.ui.page.runtime import jobs

    for job in list(jobs()._slots.held.values()):
        with jobs()._changed:
            jobs()._abandon(job)


def held() -> dict[str, Any]:
    """Resident and proportional memory of this process in MB, what glibc has handed out and keeps, and the parts whose
    size is known."""
    import ctypes

    import psutil

    found = psutil.Process().memory_full_info()
    kept = {"resident": found.rss / 1e6, "proportional": getattr(found, "pss", 0) / 1e6}
    info = _MallInfo2.of(ctypes.CDLL(None)) if sys.platform == "linux" else None
    if info is not None:
        kept |= {"malloc in use": (info.uordblks + info.hblkhd) / 1e6, "malloc free": info.fordblks / 1e6}
    if (arrow := sys.modules.get("pyarrow")) is not None:
        kept["arrow"] = arrow.total_allocated_bytes() / 1e6
    return kept | _parts()


def _parts() -> dict[str, Any]:
    """Which model is loaded, MB of its weights, and how many of what else the app and Streamlit hold."""
    from streamlit.runtime import get_instance

    from pages.ui.page.runtime import jobs, session

    sessions = get_instance()._session_mgr
    found: dict[str, Any] = {
        "sessions": len(sessions.list_sessions()),
        "active": len(sessions.list_active_sessions()),
        "slots": len(jobs()._slots.held),
        "models": len(session().models.held),
        "loads": len(LOADS),
    }
    loaded = session().models.loaded
    if loaded is not None:
        found["loaded"] = f"{loaded.spec.model} {loaded.spec.precision}"
        found["weights"] = sum(each.nbytes for each in [*loaded.model.parameters(), *loaded.model.buffers()]) / 1e6
        found["encoded chunks"] = len(loaded.encoded)
    return found


class _MallInfo2:
    @staticmethod
    def of(libc):
        import ctypes

        class Info(ctypes.Structure):
            _fields_ = [
                (name, ctypes.c_size_t)
                for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
            ]

        if not hasattr(libc, "mallinfo2"):
            return None
        libc.mallinfo2.restype = Info
        return libc.mallinfo2()

"""Processes that start warm: one process imports the heavy libraries and forks a new one for each call.

Importing torch and transformers takes three seconds of processor time. A test that needs a process of its own (to kill
it, to interrupt it, or to read what it prints) pays for that once a session. Variables that a library reads while it is
imported (OMP_NUM_THREADS, MKL_CBWR, HF_HUB_OFFLINE) are those of the session: a test of other values starts a process
with `subprocess`.
"""

import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PRELOAD = (
    "torch",
    "transformers.models.opt.modeling_opt",
    "transformers.models.llama.modeling_llama",
    "tokenizers",
    "safetensors.torch",
    "numpy",
    "scipy.stats",
    "pandas",
    "datasets",
    "lm_eval.tasks",
    "engine.cli",
)
POLL_S = 0.01


class WarmProcess:
    """A forked process, with the parts of `subprocess.Popen` that tests use; its output is text."""

    def __init__(self, pid: int, stdin: int, stdout: int, stderr: int, status: int) -> None:
        self.pid, self.returncode, self._status = pid, None, status
        self.stdin, self.stdout, self.stderr = os.fdopen(stdin, "w"), os.fdopen(stdout), os.fdopen(stderr)

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs."""
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self.returncode = int(os.read(self._status, 20))
            os.close(self._status)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """The exit code. Raises TimeoutExpired."""
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(POLL_S)
        return code

    def communicate(self, timeout: float = 600) -> tuple[str, str]:
        """(standard output, standard error), once the process has ended; afterwards its pipes are closed."""
        said = {}
        readers = [
            threading.Thread(target=lambda name=name: said.update({name: getattr(self, name).read()}), daemon=True)
            for name in ("stdout", "stderr")
        ]
        self.stdin.close()
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join(timeout)
        self.stdout.close()
        self.stderr.close()
        return said["stdout"], said["stderr"]

    def send_signal(self, number: int) -> None:
        """Sends a signal to the process if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.send_signal(signal.SIGKILL)


class WarmInterpreter:
    """The process that has imported the modules `preload`, started with `flags` of Python; it ends with `close`."""

    def __init__(
        self, preload: Sequence[str] = PRELOAD, flags: Sequence[str] = (), env: Mapping[str, str] = os.environ
    ) -> None:
        self._socket, theirs = socket.socketpair()
        command = [sys.executable, *flags, __file__, str(theirs.fileno()), *preload]
        self._process = subprocess.Popen(command, cwd=REPOSITORY, env=dict(env), pass_fds=[theirs.fileno()])
        theirs.close()

    def start(
        self, words: Sequence[object], env: Mapping[str, str] = os.environ, cwd: Path = REPOSITORY
    ) -> WarmProcess:
        """A process that runs `python WORDS`, where the words begin with -m MODULE or -c CODE."""
        pipes = [os.pipe() for _ in range(4)]  # standard input, output and error, and the exit code
        (stdin, to_stdin), (from_stdout, stdout), (from_stderr, stderr), (from_status, status) = pipes
        request = json.dumps({"words": [str(word) for word in words], "env": dict(env), "cwd": str(cwd)}).encode()
        socket.send_fds(self._socket, [len(request).to_bytes(8, "big")], [stdin, stdout, stderr, status])
        self._socket.sendall(request)
        for handle in (stdin, stdout, stderr, status):
            os.close(handle)
        pid = int.from_bytes(self._socket.recv(8), "big")
        return WarmProcess(pid, to_stdin, from_stdout, from_stderr, from_status)

    def run(self, words: Sequence[object], **where: object) -> subprocess.CompletedProcess[str]:
        """What `subprocess.run` gives for `python WORDS`."""
        process = self.start(words, **where)
        out, err = process.communicate()
        return subprocess.CompletedProcess([str(word) for word in words], process.returncode, out, err)

    def close(self) -> None:
        """Ends the process that forks; those that it has started go on."""
        self._socket.close()
        self._process.wait(60)


def next_request(connection: socket.socket) -> dict | None:
    """Forks a process for each request: in the forked process, the request; None once the connection is closed."""
    running: dict[int, int] = {}  # by process: where its exit code is written
    while True:
        ready = select.select([connection], [], [], POLL_S if running else None)[0]
        for pid in list(running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                os.write(running[pid], str(os.waitstatus_to_exitcode(status)).encode())
                os.close(running.pop(pid))
        if not ready:
            continue
        head, handles, _, _ = socket.recv_fds(connection, 8, 4)
        if not head:
            return None
        n_bytes, body = int.from_bytes(head, "big"), b""
        while len(body) < n_bytes:
            body += connection.recv(n_bytes - len(body))
        pid = os.fork()
        if pid == 0:
            for number, handle in enumerate(handles[:3]):
                os.dup2(handle, number)
            connection.close()
            for handle in (*handles, *running.values()):  # a reader of a pipe waits until its last writer is gone
                os.close(handle)
            return json.loads(body)
        running[pid] = handles.pop()
        for handle in handles:
            os.close(handle)
        connection.sendall(pid.to_bytes(8, "big"))


def run_as_main(words: Sequence[str]) -> None:
    """Runs -m MODULE or -c CODE with its arguments, as the interpreter does."""
    (kind, what), sys.argv = words[:2], [words[0], *words[2:]]
    if kind == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    if not sys.flags.isolated:
        sys.path[0] = os.getcwd()  # as for -m and -c
    for name in sys.argv[2:]:
        __import__(name)
    request = next_request(socket.socket(fileno=int(sys.argv[1])))
    if request is not None:
        os.environ.clear()
        os.environ.update(request["env"])
        time.tzset()
        os.chdir(request["cwd"])
        # the streams that the interpreter began with may have been of another kind
        sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)
        sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)
        sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
        run_as_main(request["words"])

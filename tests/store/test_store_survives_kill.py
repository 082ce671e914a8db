"""P2: kill -9 loses at most the result that was being written; what a put has returned for is there, whole."""

import random
import signal
import subprocess
import sys
import threading

import pytest

from cache import open_store
from tests.conftest import IS_THOROUGH, REPOSITORY
from tests.store.blobs import blob

WRITER = """
import sys
from cache import open_store
from tests.store.blobs import blob
store = open_store(sys.argv[1])
start = int(sys.argv[2])
for i in range(start, start + 100_000):
    assert store.put(str(i % 500), blob(i)), store.notice
    print(i, flush=True)
"""


def lines_until_killed(command: list[str], n_lines: int, delay_s: float) -> list[str]:
    """Returns all lines that a process prints when it is killed `delay_s` seconds after its first `n_lines`."""
    writer = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert writer.stdout is not None and writer.stderr is not None
    lines = [writer.stdout.readline() for _ in range(n_lines)]
    assert lines[-1], writer.stderr.read()
    timer = threading.Timer(delay_s, writer.kill)
    timer.start()
    lines += writer.stdout.readlines()
    errors = writer.stderr.read()
    writer.stdout.close()
    writer.stderr.close()
    timer.join()
    assert writer.wait() == -signal.SIGKILL, errors
    return lines


@pytest.mark.thorough
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system cannot kill a process that way")
def test_kill_loses_nothing_that_was_put(tmp_path):
    rng, acknowledged, last = random.Random(2), {}, -1
    for _ in range(100 if IS_THOROUGH else 8):
        command = [sys.executable, "-c", WRITER, str(tmp_path), str(last + 1)]
        for i in map(int, lines_until_killed(command, rng.randint(1, 40), rng.uniform(0.0, 0.01))):
            acknowledged[str(i % 500)] = last = i
        store = open_store(tmp_path)
        found = store.verify()
        assert found.bad_keys == () and store.notice is None
        assert found.n_checked - len(acknowledged) in (0, 1)  # the put in hand may have been finished, unannounced
        for key, i in acknowledged.items():
            assert store.get(key) in (blob(i), blob(last + 1))
        store.close()
    assert last > 20


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system cannot kill a process that way")
def test_kill_while_the_store_is_being_made(tmp_path):
    code = (
        "import sys\nfrom cache import open_store\nprint('ready', flush=True)\nopen_store(sys.argv[1])\nprint('open')\n"
    )
    for i in range(6):
        folder = tmp_path / str(i)
        maker = subprocess.Popen([sys.executable, "-c", code, str(folder)], cwd=REPOSITORY, stdout=subprocess.PIPE)
        assert maker.stdout is not None and maker.stdout.readline()
        threading.Event().wait(0.0015 * i)  # making a store takes about 9 ms
        maker.kill()
        maker.stdout.close()
        maker.wait()
        store = open_store(folder)
        assert store.put("k", b"blob") is True and store.get("k") == b"blob" and store.notice is None
        store.close()

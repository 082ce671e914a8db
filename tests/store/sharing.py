"""What the tests of shared results have in common: keys that travel, blobs that show whether they are whole, files of
another user, and a writer that is killed."""

import errno
import hashlib
import os
import random
import signal
import subprocess
import threading

from cache import shared
from tests.conftest import REPOSITORY

N_BYTES = (300, 300, 40_000)


def key(number: int | str) -> str:
    """A key of the form that results have, of a version whose results nobody decodes here."""
    return f"0/answers/{hashlib.blake2b(str(number).encode(), digest_size=20).hexdigest()}"


def blob(number: int, of: int = 0) -> bytes:
    """A blob of that number's own; `of` whom, so that two may write different ones."""
    rng = random.Random(1000 * of + number)
    return number.to_bytes(4, "big") + of.to_bytes(4, "big") + rng.randbytes(rng.choice(N_BYTES))


def is_whole(found: bytes | None) -> bool:
    """Whether that is one of those blobs."""
    return found is not None and found == blob(int.from_bytes(found[:4], "big"), int.from_bytes(found[4:8], "big"))


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


def refuses(monkeypatch, does, odd=lambda name: int(name[:2], 16) % 2, number=errno.EACCES):
    """Lets half of the files be another user's: `does` is what cannot be done with them."""
    real = getattr(shared, does)

    def refused(path, *content):
        if odd(os.path.basename(path)):
            raise OSError(number, os.strerror(number), path)
        return real(path, *content)

    monkeypatch.setattr(shared, does, refused)


def odd_and_even(n: int = 40) -> tuple[list[int], list[int]]:
    """Numbers of keys whose files are in the half that is refused, and in the other."""
    odd = [number for number in range(n) if int(shared.name_of(key(number))[:2], 16) % 2]
    return odd, [number for number in range(n) if number not in odd]

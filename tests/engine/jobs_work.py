"""Work for the tests of jobs: it goes on only when a test lets it, and records what happened to it."""

import threading

from engine.progress import Progress, may_stop
from tests.conftest import HANG_S


class Work:
    """What a job runs: so many chunks, and an error at the end. With `stops` it may be left in the middle of one."""

    def __init__(self, chunks=1, error=None, stops=False):
        self.chunks, self.error, self.stops = chunks, error, stops
        self.started, self.go_on = threading.Semaphore(0), threading.Semaphore(0)
        self.starts = self.closes = 0
        self.left = []  # in which chunk, or after which

    def __call__(self):
        self.starts += 1
        number = 0
        try:
            for number in range(self.chunks):
                self.started.release()
                assert self.go_on.acquire(timeout=HANG_S)
                if self.stops:
                    may_stop()
                yield Progress(number + 1, self.chunks, number)
            if self.error:
                raise self.error
        except GeneratorExit:
            self.left.append(f"after {number + 1}")
            raise
        except BaseException:
            self.left.append(f"in {number + 1}")
            raise
        finally:
            self.closes += 1

    def wait_started(self):
        assert self.started.acquire(timeout=HANG_S)

    def release(self, n=1):
        for _ in range(n):
            self.go_on.release()


def done_at_once(n=1, **of):
    """Work whose n chunks are let go from the beginning."""
    work = Work(n, **of)
    work.release(n)
    return work

"""`Patient`: calls that a disk which is gone would let hang forever, each waited for so long and then left behind."""

import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any


class Patient:
    """Calls in threads of their own. A hung network disk takes its thread with it and nothing else: they are daemons,
    which no exit waits for, and are used again otherwise."""

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[Any]] = []
        self._late: set[int] = set()
        self._pid = os.getpid()

    @property
    def n_late(self) -> int:
        """Calls that were left behind and have not come back."""
        return len(self._late)

    def call(self, patience_s: float, function: Callable[..., Any], *arguments: Any) -> Any:
        """What the function gives or raises; TimeoutError, an OSError, after so many seconds."""
        if self._pid != os.getpid():  # threads do not go along into a fork
            self._idle, self._late, self._pid = [], set(), os.getpid()
        answer: SimpleQueue[Any] = SimpleQueue()
        try:
            thread = self._idle.pop()
        except IndexError:
            thread = SimpleQueue()
            threading.Thread(target=self._serve, args=(thread,), daemon=True, name="shared results").start()
        thread.put((function, arguments, answer))
        try:
            found, error = answer.get(timeout=patience_s)
        except Empty:
            self._late.add(id(answer))
            if not answer.empty():  # it came just now
                self._late.discard(id(answer))
            raise TimeoutError(f"no answer within {patience_s:.0f} seconds") from None
        if error is not None:
            raise error
        return found

    def close(self) -> None:
        """Lets the threads that wait for a call go."""
        while self._idle:
            self._idle.pop().put(None)

    def _serve(self, thread: "SimpleQueue[Any]") -> None:
        while (call := thread.get()) is not None:
            function, arguments, answer = call
            try:
                given = function(*arguments), None
            except BaseException as error:
                given = None, error
            self._idle.append(thread)
            answer.put(given)
            call = arguments = given = None  # a large result must not stay until the next call
            self._late.discard(id(answer))

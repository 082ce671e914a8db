"""A worker that sleeps for what a cell costs, and at its end writes what lay between its cells: in a process of its
own, or as an actor of Ray.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

from engine.plans import actors
from engine.plans.cells import Cell
from engine.plans.worker import Outcome


class Sleeper:
    """`measure` as `engine.plans.worker.work` calls it."""

    def __init__(self) -> None:
        self.gaps: list[float] = []
        self.ended_s, self.before_s = time.perf_counter(), time.process_time()

    def measure(self, cell: Cell, n_settled: int) -> Outcome:
        self.gaps.append(time.perf_counter() - self.ended_s)
        time.sleep(cell.cost_s)
        self.ended_s = time.perf_counter()
        return Outcome()

    def write(self, folder: Path) -> None:
        """The file of this process in the folder."""
        told = {"gaps": self.gaps, "busy_s": time.process_time() - self.before_s}
        (folder / f"gaps{os.getpid()}.json").write_text(json.dumps(told))


class Actor(actors.Actor):
    """The same as an actor; it needs neither a store nor a model."""

    def _open(self) -> str:
        return ""

    def work(self) -> dict[str, Any]:
        self.sleeper = Sleeper()
        return super().work()

    def measure(self, cell: Cell, n_settled: int) -> Outcome:
        self.hear(str(cell))
        return self.sleeper.measure(cell, n_settled)

    def _share(self) -> None:
        pass

    def _close(self) -> None:
        self.sleeper.write(Path(self.errand.claims))

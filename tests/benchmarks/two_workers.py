"""Two workers of Ray against one process, one thread each, on a sweep of the embedded model; and what a part costs.

    python -m tests.benchmarks.two_workers [--questions 200] [--shots 5] [--precision fp32] [--rounds 2]

The sweep is timed once the models are loaded, each time with an empty store: a sweep of other tasks comes before it.
What a part costs is the time that a worker waits between two parts, of 200 that sleep for 0.2 s, on eight workers.
Nothing else should run meanwhile.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from typing import Any

from cache import Store
from engine.composed import Gathered
from engine.distributed.clusters import RayOptions
from engine.distributed.driver import Workers
from engine.measurement import Measurement
from engine.models.loading import LoadSpec
from engine.models.session import Session
from engine.requests import Sweep
from engine.requests.running import silent
from engine.studies.sweeps import Swept
from tests.benchmarks.measure import Comparison, options
from tests.benchmarks.sleeping import all_asleep

TASKS, BEFORE = "demo_outfit,demo_copy,demo_translation,demo_lookup", "demo_price,demo_cloze"
LEVELS = ",".join(str(7 * n) for n in range(14))  # with the scores 15 parts a task
BAR = 1.7
N_PARTS, N_WORKERS, BAR_MS = 200, 8, 20


def main() -> None:
    given = options(__doc__, questions=200, shots="5", precision="fp32", rounds=2)
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported
    of = {"shots": given.shots, "limit": given.questions, "precision": given.precision, "out": "unused.csv"}
    two, one = list[float](), list[float]()
    for _ in range(given.rounds):
        two.append(by_workers(2, of))
        one.append(by_one(of))
    print(Comparison("Workers", "two against one", "s", tuple(two), tuple(one), "rounds", BAR).line(), flush=True)
    print(f"a worker waits {wait_ms():.1f} ms between two of {N_PARTS} parts on {N_WORKERS} workers, asked {BAR_MS}")


def by_one(of: dict[str, Any]) -> float:
    """Seconds of the sweep in this process."""
    with tempfile.TemporaryDirectory() as folder, closing(Store(folder)) as store:
        before, wanted = sweeps(of, session := Session(store))
        seconds(lambda: [*before.run(session)])
        return seconds(lambda: [*wanted.run(session)])


def by_workers(n: int, of: dict[str, Any]) -> float:
    """Seconds of the sweep by so many workers."""
    with tempfile.TemporaryDirectory() as folder, closing(Store(folder)) as store:
        before, wanted = sweeps(of, session := Session(store))
        with Workers(RayOptions(workers=n), print) as workers:
            workers.measure(before, session, silent)
            return seconds(lambda: workers.measure(wanted, session, silent) and [*wanted.run(session)])


def wait_ms() -> float:
    """The median time that a worker waits between two parts."""
    with tempfile.TemporaryDirectory() as folder, closing(Store(folder)) as store:
        session = Session(store)
        parts = all_asleep(session.target(LoadSpec("demo", "fp32")), N_PARTS)
        with Workers(RayOptions(workers=N_WORKERS, cpus=0.01), print) as workers:
            workers.measure(parts, session, silent)
        by_process = dict[float, list[tuple[float, float]]]()
        for process, began_s, ended_s in (parts.stored(session) or Gathered()).values.values():
            by_process.setdefault(process, []).append((began_s, ended_s))
    waits = [after[0] - before[1] for each in map(sorted, by_process.values()) for before, after in pairwise(each)]
    return 1000 * statistics.median(waits)


def sweeps(of: dict[str, Any], session: Session) -> "list[Measurement[Swept]]":
    """The sweep that has the models loaded, and the one that is timed."""
    wanted = ((BEFORE, "0,50"), (TASKS, LEVELS))
    return [Sweep(tasks=tasks, head_levels=levels, **of).measurement(session) for tasks, levels in wanted]


def seconds(run: Callable[[], Any]) -> float:
    began_s = time.perf_counter()
    run()
    return time.perf_counter() - began_s


if __name__ == "__main__":
    main()

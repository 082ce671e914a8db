"""What claims cost at scale: workers that only sleep for a cell's cost, on one folder.

    python -m tests.benchmarks.many_workers [--workers 200] [--cells 20000] [--seconds 5] [--folder DIR] [--killed 5]
    python -m tests.benchmarks.many_workers --ray 20

Each worker is a process of its own, or with `--ray` an actor on a cluster of this computer's own, with cells of half a
second: as many end in a second as those of 5 seconds with 200 workers. Overhead of a cell is what passes between the
end of one cell and the beginning of the next: saying that it is done, hearing of others, and claiming. A worker's first
cell, before which it joins, stands apart. A tenth of the cells needs one of 200 others. Some workers are killed on the
way (`kill -9`); their cells are taken over after a lease (an actor's at once), which is not overhead but waiting: the
line of percentiles holds it all the same. Then it is counted whether each cell was measured, and how often.
"""

import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np

from engine.models.loading import LoadSpec
from engine.plans.actors import Errand, digest_of
from engine.plans.cells import Cell, Group, Plan, written
from engine.plans.claims import Claims
from engine.plans.clusters import WorkerResources, opened
from engine.plans.crews import Crew
from engine.plans.status import standing
from engine.plans.worker import work
from engine.questions.requests import TaskSpec
from engine.studies.surveys import StudySettings
from engine.studies.sweeps import Point
from tests.benchmarks.measure import options
from tests.benchmarks.sleeping import Sleeper

BAR_MS, N_NEEDED, LEASE_S = 20, 200, 20


def main() -> None:
    given = options(__doc__, workers=200, ray=0, cells=0, seconds=0.0, folder=None, killed=5)
    n = given.ray or given.workers
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        plan = plan_of(given.cells or 100 * n, given.seconds or (0.5 if given.ray else 5.0))
        ideal_s = sum(cell.cost_s for cell in plan.cells) / n
        began_s = time.monotonic()
        if given.ray:
            on_ray(plan, folder, n, min(given.killed, n), ideal_s)
            report(plan, folder, time.monotonic() - began_s, ideal_s)
            return
        children = [forked(plan, folder) for _ in range(n)]
        for child in children[: given.killed]:
            time.sleep(0.5 * ideal_s / given.killed)
            os.kill(child, signal.SIGKILL)
        codes = Counter(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
        report(plan, folder, time.monotonic() - began_s, ideal_s)
        print(f"exit codes of the workers: {dict(codes)}")


def plan_of(n: int, seconds: float) -> Plan:
    """A plan of n cells that cost half to one and a half times so many seconds."""
    draw, cells = random.Random(0), []
    for number in range(n):
        needs = (f"{draw.randrange(N_NEEDED):08x}",) if number >= N_NEEDED and not number % 10 else ()
        task = TaskSpec(f"task{number * 48 // n}")
        cost_s = seconds * draw.uniform(0.5, 1.5)
        cells.append(Cell(f"{number:08x}", 0, task, points=(Point(task, 0, 0),), needs=needs, cost_s=cost_s))
    return Plan((Group(StudySettings(LoadSpec()), ()),), tuple(cells))


def forked(plan: Plan, folder: Path) -> int:
    """A process that works, and at its end writes what lay between its cells; its id."""
    child = os.fork()
    if child:
        return child
    sleeper = Sleeper()
    try:
        work(plan, Claims(folder, LEASE_S), sleeper.measure)
        sleeper.write(folder)
        os._exit(0)
    except BaseException as error:
        print(f"{os.getpid()}: {type(error).__name__}: {error}", flush=True)
        os._exit(1)


class Sleepers(Crew):
    """Actors that sleep."""

    module = "tests.benchmarks.sleeping"


def on_ray(plan: Plan, folder: Path, n: int, n_killed: int, ideal_s: float) -> None:
    """Has so many actors work, and kills some on the way."""
    file = folder / "plan.json"
    file.write_bytes(written(plan))
    errand = Errand(
        host="", folder=os.getcwd(), plan=str(file), digest=digest_of(str(file)), claims=str(folder), mark=str(file),
        lease_s=LEASE_S, retried={}, cache="", has_cache=True, shared=None, meeting="",
    )  # fmt: skip
    with opened("") as ray:
        crew = Sleepers(ray, WorkerResources(n, 0.01, 0.0), errand, plan, Claims(folder, LEASE_S), print_aside)
        threading.Thread(target=kill, args=(folder, n_killed, 0.5 * ideal_s), daemon=True).start()
        crew.work()
    print(f"{n} actors, {crew.n_restarts} of them started anew")


def kill(folder: Path, n: int, within_s: float) -> None:
    """Ends so many workers, once there are any."""
    claims = Claims(folder, LEASE_S)
    for number in range(n):
        while number not in claims.workers:
            time.sleep(0.1)
            claims.refresh()
        time.sleep(within_s / n)
        os.kill(claims.workers[number].pid, signal.SIGKILL)


def print_aside(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def report(plan: Plan, folder: Path, took_s: float, ideal_s: float) -> None:
    """Prints the figures."""
    claims = Claims(folder, LEASE_S)
    stands = standing(plan, claims)
    told = [json.loads(file.read_text()) for file in folder.glob("gaps*.json")]
    gaps = 1000 * np.array([gap for each in told for gap in each["gaps"][1:]])
    first = 1000 * np.array([each["gaps"][0] for each in told if each["gaps"]])
    busy_ms = 1000 * sum(each["busy_s"] for each in told) / (len(gaps) + len(first))
    p50, p95, p99 = np.percentile(gaps, [50, 95, 99])
    taken_over = sum(file.suffix != ".1" for file in (folder / "claims").glob("*/*"))
    print(
        f"{stands.cells:,} cells, {len(claims.workers):,} workers, {took_s:,.0f} s (sleeping alone: {ideal_s:,.0f} s)\n"
        f"overhead of a cell: median {p50:.2f} ms, p95 {p95:.2f} (bar {BAR_MS}), p99 {p99:.2f}, most {gaps.max():.0f}\n"
        f"processor time a cell: {busy_ms:.2f} ms; joining: median {np.median(first):.0f}, most {first.max():.0f}\n"
        f"cells lost: {stands.cells - stands.done:,}; measured twice: {stands.twice:,}; taken over: {taken_over:,}"
    )


if __name__ == "__main__":
    main()

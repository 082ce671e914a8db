"""What claims cost at scale: workers that only sleep for a cell's cost, on one folder.

    python -m tests.benchmarks.many_workers [--workers 200] [--cells 20000] [--seconds 5] [--folder DIR] [--killed 5]

Each worker is a process of its own. Overhead of a cell is what passes between the end of one cell and the beginning of
the next: saying that it is done, hearing of others, and claiming. A worker's first cell, before which it joins, stands
apart. A tenth of the cells needs one of 200 others. Some
workers are killed on the way (`kill -9`); their cells are taken over after a lease, which is not overhead but waiting:
the line of percentiles holds it all the same. Then it is counted whether each cell was measured, and how often.
"""

import argparse
import json
import os
import random
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

from engine.models.loading import LoadSpec
from engine.plans.cells import Cell, Group, Plan
from engine.plans.claims import Claims
from engine.plans.status import standing
from engine.plans.worker import Outcome, work
from engine.questions.requests import TaskSpec
from engine.studies.surveys import Setting
from engine.studies.sweeps import Point

BAR_MS, N_NEEDED, LEASE_S = 20, 200, 20


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.many_workers", description=__doc__)
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--cells", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=5.0, help="mean of what a cell sleeps")
    parser.add_argument("--folder", type=Path, help="where the claims are made (default: a temporary folder)")
    parser.add_argument("--killed", type=int, default=5, help="workers that are killed on the way")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder, plan = Path(name), plan_of(options.cells, options.seconds)
        began_s = time.monotonic()
        children = [forked(plan, folder, number) for number in range(options.workers)]
        ideal_s = sum(cell.cost_s for cell in plan.cells) / options.workers
        for child in children[: options.killed]:
            time.sleep(0.5 * ideal_s / options.killed)
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
    return Plan((Group(Setting(LoadSpec()), ()),), tuple(cells))


def forked(plan: Plan, folder: Path, number: int) -> int:
    """A process that works, and at its end writes what lay between its cells; its id."""
    child = os.fork()
    if child:
        return child
    gaps, ended_s = [], time.perf_counter()
    before_s = time.process_time()

    def measure(cell: Cell, n_settled: int) -> Outcome:
        nonlocal ended_s
        gaps.append(time.perf_counter() - ended_s)
        time.sleep(cell.cost_s)
        ended_s = time.perf_counter()
        return Outcome()

    try:
        work(plan, Claims(folder, LEASE_S), measure)
        busy_s = time.process_time() - before_s
        (folder / f"gaps{number}.json").write_text(json.dumps({"gaps": gaps, "busy_s": busy_s}))
        os._exit(0)
    except BaseException as error:
        print(f"{number}: {type(error).__name__}: {error}", flush=True)
        os._exit(1)


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

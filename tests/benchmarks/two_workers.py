"""Two workers on two cores against one, one thread each, on a plan of 60 cells of the embedded model.

    python -m tests.benchmarks.two_workers [--questions 200] [--shots 5] [--precision fp32] [--rounds 2]

Each run starts from the store as the plan's writing left it: questions rendered, nothing measured. What counts is the
time from the start of the first process to the end of the last, imports and loading included; beside it stands the same
from the first claim to the last cell. Nothing else should run meanwhile.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from engine.plans.cells import read_plan
from engine.plans.claims import Claims
from tests.benchmarks.measure import REPOSITORY, Comparison

TASKS = "demo_outfit,demo_copy,demo_translation,demo_lookup"
LEVELS = ",".join(str(7 * n) for n in range(14))  # with the scores 15 cells a task
N_CELLS, BAR = 60, 1.7


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.two_workers", description=__doc__)
    parser.add_argument("--questions", default="200", help="that judge a task")
    parser.add_argument("--shots", default="5")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plan, planned = folder / "plan.json", folder / "planned"
        words = ["--tasks", TASKS, "--shots", options.shots, "--heads", LEVELS, "--limit", options.questions]
        run("sweep", *words, "--precision", options.precision, "--plan", str(plan), "--cache", str(planned))
        n = len(read_plan(plan).cells)
        assert n == N_CELLS, f"{n} cells are planned, not {N_CELLS}"
        taken: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
        for turn in range(options.rounds):
            for n_workers, times in taken.items():
                at = folder / f"{turn}-{n_workers}"
                shutil.copytree(planned, at / "store")
                times.append(timed(plan, at, n_workers))
                print(f"{n_workers} at work: {times[-1][0]:.1f} s, {times[-1][1]:.1f} s of them on cells", flush=True)
    for place, what in enumerate(("start to end", "first claim to last cell")):
        two, one = (tuple(times[place] for times in taken[n]) for n in (2, 1))
        print(Comparison("Workers", f"two against one, {what}", "s", two, one, "rounds", None if place else BAR).line())


def timed(plan: Path, at: Path, n_workers: int) -> tuple[float, float]:
    """(seconds from start to end, from the first worker's joining to the last cell) of so many workers."""
    began_s = time.perf_counter()
    where = ["--cache", str(at / "store"), "--claims", str(at / "claims"), "--threads", "1", "--json"]
    workers = [started("work", str(plan), *where) for _ in range(n_workers)]
    if any([worker.wait() for worker in workers]):
        raise SystemExit("a worker has failed")
    took_s, claims = time.perf_counter() - began_s, Claims(at / "claims")
    claims.refresh()
    assert len(claims.settled) == N_CELLS and not any(note.failed or note.cached for note in claims.notes)
    assert len(claims.notes) == N_CELLS, "a cell was measured twice"
    first_s = min(float(told["began"]) for told in claims.workers.values())
    print(json.dumps({number: sum(note.worker == number for note in claims.notes) for number in claims.workers}))
    return took_s, max(note.at for note in claims.notes) - first_s


def run(*arguments: str) -> None:
    if started(*arguments).wait():
        raise SystemExit("the plan could not be written")


def started(*arguments: str) -> "subprocess.Popen[bytes]":
    environment = {name: value for name, value in os.environ.items() if name != "HEADROOM_SHARED"}
    command = [sys.executable, "-m", "engine", *arguments]
    return subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()

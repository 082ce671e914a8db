"""Two workers on two cores against one, one thread each, on a plan of 60 cells of the embedded model.

    python -m tests.benchmarks.two_workers [--questions 200] [--shots 5] [--precision fp32] [--rounds 2]

Each run starts from the store as the plan's writing left it: questions rendered, nothing measured. What counts is the
time from the start of the first process to the end of the last, imports and loading included; beside it stands the same
from the first claim to the last cell. Nothing else should run meanwhile.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from engine.plans.cells import read_plan
from engine.plans.claims import Claims
from tests.benchmarks.measure import REPOSITORY, Comparison, in_turn, options

TASKS = "demo_outfit,demo_copy,demo_translation,demo_lookup"
LEVELS = ",".join(str(7 * n) for n in range(14))  # with the scores 15 cells a task
N_CELLS, BAR = 60, 1.7


def main() -> None:
    given = options(__doc__, questions="200", shots="5", precision="fp32", rounds=2)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plan, planned = folder / "plan.json", folder / "planned"
        words = ["--tasks", TASKS, "--shots", given.shots, "--head-levels", LEVELS, "--limit", given.questions]
        run("sweep", *words, "--precision", given.precision, "--plan", str(plan), "--cache", str(planned))
        n = len(read_plan(plan).cells)
        assert n == N_CELLS, f"{n} cells are planned, not {N_CELLS}"
        ways = [lambda n=n: timed(plan, planned, n) for n in (2, 1)]
        rounds = [in_turn(ways, 1) for _ in range(given.rounds)]
    for place, what in enumerate(("start to end", "first claim to last cell")):
        two, one = (tuple(each[side].found[place] for each in rounds) for side in (0, 1))
        print(Comparison("Workers", f"two against one, {what}", "s", two, one, "rounds", None if place else BAR).line())


def timed(plan: Path, planned: Path, n_workers: int) -> tuple[float, float]:
    """(seconds from start to end, from the first worker's joining to the last cell) of so many workers."""
    at = Path(tempfile.mkdtemp(dir=plan.parent))
    shutil.copytree(planned, at / "store")
    began_s = time.perf_counter()
    where = ["--cache", str(at / "store"), "--claims", str(at / "claims"), "--threads", "1", "--json"]
    workers = [started("work", str(plan), *where) for _ in range(n_workers)]
    if any([worker.wait() for worker in workers]):
        raise SystemExit("a worker has failed")
    took_s, claims = time.perf_counter() - began_s, Claims(at / "claims")
    claims.refresh()
    assert len(claims.settled) == N_CELLS and not any(note.failed or note.cached for note in claims.notes)
    assert len(claims.notes) == N_CELLS, "a cell was measured twice"
    at_work_s = max(note.at for note in claims.notes) - min(told.began for told in claims.workers.values())
    cells = [sum(note.worker == number for note in claims.notes) for number in claims.workers]
    print(f"{cells} cells at work: {took_s:.1f} s, {at_work_s:.1f} s of them on cells", flush=True)
    return took_s, at_work_s


def run(*arguments: str) -> None:
    if started(*arguments).wait():
        raise SystemExit("the plan could not be written")


def started(*arguments: str) -> "subprocess.Popen[bytes]":
    environment = {name: value for name, value in os.environ.items() if name != "HEADROOM_SHARED"}
    command = [sys.executable, "-m", "engine", *arguments]
    return subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()

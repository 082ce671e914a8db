"""What results that machines share cost: looking one up among 100,000, and pulling the 1,000 that are new.

    python -m tests.benchmarks.shared_results [--results 100000] [--new 1000] [--shared FOLDER]

Each figure is printed with the time of this process's own work beside it, which a busy machine does not change much.
The shared folder is a temporary one unless another is given (of an NFS disk, say): it is filled first, and kept then.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random

from cache import Store, behind
from cache.opening import ResultCache
from cache.remote import shared_folder
from cache.shared import SharedFolder, name_of
from tests.benchmarks.measure import REPOSITORY, options
from tests.store.sharing import key

N_BYTES = 4000  # of one result: log-likelihoods of a chunk, and the receipt
N_LOOK_UPS = 1000
LOOK_UP_MS, PULL_S = 2, 30  # what was asked for
SLOW_S = 0.05  # of a look-up in a store of objects


def main() -> None:
    given = options(__doc__, results=100_000, new=1000, shared=None)
    with tempfile.TemporaryDirectory() as folder:
        where = given.shared or f"{folder}/shared"
        shared = shared_folder(where, make=True)
        began = time.perf_counter()
        have = shared.names()
        for number in range(given.results):
            if name_of(key(number)) not in have:
                shared.put(key(number), content(number))
        print(f"{given.results:,} results of {N_BYTES:,} bytes in {time.perf_counter() - began:.0f} s: {where}")
        look_ups(Path(folder), where, given.results)
        pull(Path(folder), where, given.results, given.new)
        slow_misses(Path(folder), where)


def content(number: int) -> bytes:
    """What is stored under a number's key."""
    return Random(number).randbytes(N_BYTES)


def look_ups(folder: Path, where: str, n: int) -> None:
    """One result after the other, in a random order."""
    numbers = Random(1).sample(range(n), min(n, N_LOOK_UPS))
    shared, store = shared_folder(where), Store(folder / "fresh", where)
    store.get(key("the first opens it"))

    def found(get: Callable[[str], bytes | None]) -> Callable[[int], None]:
        def one(number: int) -> None:
            assert get(key(number)) == content(number)

        return one

    print(f"Look-ups, asked under {LOOK_UP_MS} ms (median / 95%, and of the process's own work)")
    tell("  in the shared folder itself", found(shared.get), numbers)
    tell("  through the store, which keeps it", found(store.get), numbers)
    tell("  once more, from the store", found(store.get), numbers)
    miss = partial(missed, store)
    before = behind.MISSES_S, behind.MISSES_SHARE
    behind.MISSES_S, behind.MISSES_SHARE = float("inf"), 1000.0  # of the time: as many as there are
    tell("  a miss that is asked for", miss, numbers)
    behind.MISSES_S = 0
    tell("  a miss by the list", miss, numbers)
    behind.MISSES_S, behind.MISSES_SHARE = before
    store.close()


def missed(store: Store, number: int) -> None:
    """Looks for what is not there."""
    assert store.get(key(f"none {number}")) is None


def tell(what: str, one: Callable[[int], object], numbers: Sequence[int]) -> None:
    """Prints what a call takes."""
    taken, worked = [], time.process_time()
    for number in numbers:
        began = time.perf_counter()
        one(number)
        taken.append(1000 * (time.perf_counter() - began))
    worked = 1000 * (time.process_time() - worked) / len(numbers)
    middle, high = statistics.median(taken), statistics.quantiles(taken, n=20)[-1]
    print(f"{what}: {middle:.3f} / {high:.3f} ms, {worked:.3f} ms", flush=True)


def pull(folder: Path, where: str, n: int, n_new: int) -> None:
    """`cache pull`, as a shell has it, into a store that has all but the new ones."""
    store = Store(folder / "laptop")
    cache = store._current()
    assert isinstance(cache, ResultCache)
    for first in range(n_new, n, 1000):
        with cache.transact():  # a thousand at a time
            for number in range(first, min(n, first + 1000)):
                cache.set(key(number), content(number), retry=False)
    store.close()
    began, before = time.perf_counter(), os.times()
    command = [sys.executable, "-m", "engine", "cache", "pull", where, "--cache", str(folder / "laptop"), "--json"]
    told = json.loads(subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.PIPE).stdout)
    seconds, after = time.perf_counter() - began, os.times()
    assert told["brought"] == n_new and told["in_both"] == n - n_new
    worked = after.children_user + after.children_system - before.children_user - before.children_system
    print(f"Pull of {n_new:,} new among {n:,}: {seconds:.1f} s ({worked:.1f} s of work), asked under {PULL_S} s")


def slow_misses(folder: Path, where: str) -> None:
    """What a screen pays for that asks for three thousand keys which are not there, of a store of objects."""
    n, asked, real = 3000, [], SharedFolder.frame

    def slow(self: SharedFolder, name: str) -> bytes | None:
        asked.append(name)
        time.sleep(SLOW_S)
        return real(self, name)

    store, SharedFolder.frame = Store(folder / "screen", where), slow
    began = time.perf_counter()
    for number in range(n):
        store.get(key(f"not there {number}"))
    seconds, SharedFolder.frame = time.perf_counter() - began, real
    print(f"{n:,} misses where a look-up takes {1000 * SLOW_S:.0f} ms: {seconds:.2f} s, {len(asked)} of them asked "
          f"(all of them: {n * SLOW_S:.0f} s; a list is made in {behind.LIST_S} s at most)")  # fmt: skip
    store.close()


if __name__ == "__main__":
    main()

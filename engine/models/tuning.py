"""How to compute on this machine's processor, measured once in under a second and kept in the store."""

import os
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache as once
from typing import Any

from cache import Store
from engine.records import Record, canonical_key, decode, encode, version

SMALL_PARAMETERS = 20_000_000
CLEARLY = 1.5  # times as fast, from which the other way is taken: noise must not decide
ENOUGH = 0.8  # of the best speed, for which fewer threads are taken
N_ROUNDS = 5


@dataclass(frozen=True)
class Tuning:
    """`fp32_products`: bf16 and int8 layers are faster by fp32 products (`engine.models.cpu_products`) than torch's and
    bitsandbytes' own. `small_threads`: threads for models under SMALL_PARAMETERS, whose passes are too short to share
    with many; one core is always left to the page, as two threads that wait for each other crawl beside anything else.
    """

    fp32_products: bool
    small_threads: int


def tuning(store: Store | None = None) -> Tuning:
    """The tuning of this machine, measured where neither this process nor the store has it."""
    key = canonical_key("tuning", {
        "torch": version("torch"), "processor": processor(), "cores": _all_threads(), "system": platform.platform(),
    })  # fmt: skip
    record = decode(store.get(key)) if store is not None else None
    if record is not None:
        with suppress(KeyError, TypeError):
            return Tuning(**record.receipt["tuning"])
    found = measured()
    if store is not None:
        store.put(key, encode(Record({}, {"kind": "tuning", "tuning": asdict(found)})))
    return found


def set_threads(n_params: int, found: Tuning) -> None:
    """Sets torch's threads for a model of this size; a user's own OMP_NUM_THREADS (or --threads) stands."""
    import torch

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(found.small_threads if n_params < SMALL_PARAMETERS else _all_threads())


@once
def measured() -> Tuning:
    """The tuning, measured now."""
    import torch

    _all_threads()
    before = torch.get_num_threads()
    try:
        seconds = {n: _pass_s(n) for n in _thread_counts(_all_threads() - 1)}
        best = min(seconds.values())
        small = min(n for n, taken in seconds.items() if best >= ENOUGH * taken)
        torch.set_num_threads(1)  # two that wait for each other would time the waiting
        slow = _product_s(torch.bfloat16) > CLEARLY * _product_s(torch.float32)
    finally:
        torch.set_num_threads(before)
    return Tuning(slow, small)


def _thread_counts(most: int) -> list[int]:
    return sorted({max(1, most), *(2**power for power in range(8) if 2**power <= most)})


def _product_s(dtype: Any) -> float:
    """Seconds of one matrix product in this dtype."""
    import torch

    x, weight = torch.ones(256, 512, dtype=dtype), torch.ones(512, 512, dtype=dtype)
    return _shortest_s(lambda: torch.nn.functional.linear(x, weight))


def _pass_s(threads: int) -> float:
    """Seconds of what a small model's FFN does to 512 tokens."""
    import torch

    torch.set_num_threads(threads)
    x, into, out = torch.ones(512, 256), torch.ones(1024, 256), torch.ones(256, 1024)
    linear = torch.nn.functional.linear
    return _shortest_s(lambda: torch.nn.functional.layer_norm(linear(linear(x, into).relu(), out), (256,)))


def _shortest_s(run: Callable[[], Any]) -> float:
    import torch

    taken = []
    with torch.inference_mode():
        run()
        for _ in range(N_ROUNDS):
            started = time.perf_counter()
            run()
            taken.append(time.perf_counter() - started)
    return min(taken)  # the rest is other work in between


@once
def _all_threads() -> int:
    """Threads torch takes by itself; asked before any are set."""
    import torch

    return torch.get_num_threads()


@once
def processor() -> str:
    """The processor's name, "" where the system does not say."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        return platform.processor()

"""How to compute on this machine's processor, measured once in about two seconds and kept in the store."""

import math
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache as once
from functools import lru_cache, partial
from statistics import geometric_mean
from typing import Any

from cache import Store
from engine.architecture.torch_internals import KNOWN_TORCH, has_onednn_product
from engine.errors import UsageError
from engine.kernels import bitsandbytes_internals
from engine.kernels import cpu_kernels as cpu_products
from engine.kernels.cpu_kernels import FP32, INTEGER, ONEDNN, OWN, Kernels
from engine.records import Record, canonical_key, decode, encode, version

SMALL_PARAMETERS = 20_000_000
# times as fast as the library's own, from which another way is taken: noise must not decide. bitsandbytes' own takes
# about twice as long as the same products in fewer passes
CLEARLY = {"bf16": 1.5, "int8": 1.1, "gradient": 1.5, "attention": 1.5, "fp32": 1.3}
ENOUGH = 0.8  # of the best speed, for which fewer threads are taken
N_ROUNDS = 5
SLOW = 3  # times as long as the shortest
EXACT_S = 1e-5
PINNED = "HEADROOM_PRODUCTS"  # the user's choice of a way
SHAPES = ((64, 768, 768), (384, 768, 768))  # rows, inputs, outputs: of a short text, and of questions packed together


PINS = {OWN: Kernels(), FP32: Kernels(FP32, FP32, FP32, FP32), INTEGER: Kernels(int8=INTEGER)}
WAYS = {
    "bf16": (OWN, FP32),
    "int8": (OWN, FP32, INTEGER),
    "gradient": (OWN, FP32),
    "attention": (OWN, FP32),
    "fp32": (OWN, ONEDNN),
}


@dataclass(frozen=True)
class Tuning:
    """`small_threads`: threads for models under SMALL_PARAMETERS, whose passes are too short to share with many; one
    core is always left to the page, since two threads that wait for each other are slow next to other work.
    """

    small_threads: int


def tuning(store: Store | None = None) -> Tuning:
    """The tuning of this machine, measured where neither this process nor the store has it."""
    key = canonical_key("tuning", {
        "torch": version("torch"), "processor": processor(), "cores": _all_threads(), "system": platform.platform(),
    })  # fmt: skip
    return _stored(store, key, Tuning) or _put(store, key, measured())


def products(store: Store | None = None, n_params: int = SMALL_PARAMETERS) -> Kernels:
    """The fastest ways of the products on this processor for a model of this size, measured where neither this process
    nor the store has them; a user's HEADROOM_PRODUCTS stands. UsageError if it names none."""
    found = known_products(store, n_params)
    return _put(store, _products_key(), measured_products()) if found is None else found


def known_products(store: Store | None = None, n_params: int = SMALL_PARAMETERS) -> Kernels | None:
    """`products` where they need not be measured: without torch. A small model's first figure is not made to wait for
    a measurement: what the processor says of itself is enough."""
    if pin := os.environ.get(PINNED):
        return pinned(pin)
    if n_params < SMALL_PARAMETERS and (found := named_products()) is not None:
        return found
    with suppress(LookupError):
        return _kept_products(store)
    return None


def pinned(text: str) -> Kernels:
    """The ways that a user pins: a name for all of them, or as `pinned_as` writes those of another machine; UsageError
    for anything else."""
    if text in PINS:
        return PINS[text]
    ways = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    if len(ways) != text.count(",") + 1 or any(way not in WAYS.get(name, ()) for name, way in ways.items()):
        each = f"ways such as {pinned_as({'int8': INTEGER})}"
        raise UsageError(f"{PINNED} is {text!r}; choose one of {', '.join(PINS)}, give {each}, or leave it empty")
    return Kernels(**ways)


def pinned_as(ways: Mapping[str, str] | None) -> str:
    """The text of `pinned` for these ways, those that are not named being the library's own."""
    known = {name: way for name, way in (ways or {}).items() if name in WAYS}
    return ",".join(f"{name}={way}" for name, way in asdict(Kernels(**known)).items())


@once
def named_products() -> Kernels | None:
    """The ways that go with what the processor says it can do; None where it does not say, or where the installed torch
    is none that is known to have its products."""
    able = abilities()
    if "avx2" not in able or not version("torch").startswith(KNOWN_TORCH):
        return None
    in_16_bits = OWN if able & {"avx512_bf16", "amx_bf16"} else FP32
    in_8_bits = INTEGER if able & {"avx512_vnni", "avx_vnni", "amx_int8"} else FP32
    return Kernels(in_16_bits, in_8_bits, gradient=in_16_bits, attention=FP32)


@lru_cache(maxsize=8)
def _kept_products(store: Store | None) -> Kernels:
    """Those in the store, read once: a deletion must not change the kernels of a running process. LookupError."""
    found = _stored(store, _products_key(), Kernels)
    if found is None or not all(way in WAYS[name] for name, way in asdict(found).items()):
        raise LookupError
    return found


def _products_key() -> str:
    """Without the number of threads: a way measured with one is kept for any, as numbers must not depend on it."""
    return canonical_key("tuning", {
        "of": "products", "ways": sorted(CLEARLY), "torch": version("torch"), "bitsandbytes": version("bitsandbytes"),
        "processor": processor(), "system": platform.platform(),
    })  # fmt: skip


def _stored(store: Store | None, key: str, form: type[Any]) -> Any:
    """The stored value in this form; None if it is missing or has another form, and is then measured again."""
    record = decode(store.get(key)) if store is not None else None
    with suppress(KeyError, TypeError):
        return form(**record.receipt["tuning"]) if record is not None else None
    return None


def _put(store: Store | None, key: str, found: Any) -> Any:
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
    finally:
        torch.set_num_threads(before)
    return Tuning(small)


@once
def measured_products() -> Kernels:
    """The products' ways, measured now: in turn, so that other work in between slows all of them alike."""
    import torch

    _all_threads()
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # two that wait for each other would time the waiting
    try:
        taken = [_ways(*shape) for shape in SHAPES]
    finally:
        torch.set_num_threads(before)
    return Kernels(**{of: fastest([each[of] for each in taken], CLEARLY[of]) for of in CLEARLY})


def fastest(taken: Sequence[Mapping[str, float]], clearly: float) -> str:
    """The way that is fastest against OWN in the geometric mean over shapes, each as seconds by way; OWN where none is
    `clearly` times as fast."""
    gains = {way: geometric_mean([each[OWN] / each[way] for each in taken]) for way in taken[0] if way != OWN}
    best = max(gains, key=gains.__getitem__, default=OWN)
    return best if gains.get(best, 0.0) > clearly else OWN


def _ways(rows: int, d_in: int, d_out: int) -> dict[str, dict[str, float]]:
    """Seconds of each way of each field of Kernels."""
    import torch

    x, weight = torch.randn(rows, d_in).bfloat16(), torch.randn(d_out, d_in).bfloat16()
    back, bias = torch.randn(rows, d_out).bfloat16(), torch.zeros(d_out).bfloat16()
    whole_x, whole_weight = x.float(), weight.float()
    plain = bitsandbytes_internals.new_layer(weight, bias)
    held, scales = bitsandbytes_internals.quantized(plain)
    ways: dict[str, dict[str, Callable[[], Any]]] = {
        "bf16": {
            OWN: lambda: torch.nn.functional.linear(x, weight, bias),
            FP32: lambda: cpu_products.bf16_product(x, weight, bias),
        },
        "int8": {OWN: lambda: plain(x)}
        | {
            way: lambda way=way: cpu_products.int8_product(
                cpu_products.quantize_input(x, bitsandbytes_internals.threshold(plain)),
                held,
                scales,
                bias,
                way == INTEGER,
            )
            for way in cpu_products.int8_ways()
        },
        "gradient": {
            OWN: lambda: cpu_products.own_gradient(back, held, scales),
            FP32: lambda: cpu_products.input_gradient(back, held, scales),
        },
        "attention": {
            OWN: partial(_attention_and_back, torch.bfloat16, rows),
            FP32: partial(_attention_and_back, torch.float32, rows),
        },
        "fp32": {OWN: lambda: torch.nn.functional.linear(whole_x, whole_weight)}
        | ({ONEDNN: lambda: cpu_products.onednn_product(whole_x, whole_weight)} if has_onednn_product() else {}),
    }
    exact = time.get_clock_info("thread_time").resolution < EXACT_S
    clock = time.thread_time if exact else time.perf_counter  # of one thread, which other work does not lengthen
    return {of: _shortest_each_s(runs, clock, 2 * N_ROUNDS) for of, runs in ways.items()}


def _attention_and_back(dtype: Any, n_tokens: int) -> None:
    """What a gradient pass does to a layer's attention over these tokens in rows of 32, of 8 heads in bf16."""
    import torch

    with torch.inference_mode(False), torch.enable_grad():
        parts = [torch.ones(n_tokens // 32 or 1, 8, 32, 64, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
        q, k, v = (each.to(dtype) for each in parts)
        z = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        torch.autograd.grad(z.sum(), parts)


def _thread_counts(most: int) -> list[int]:
    return sorted({max(1, most), *(2**power for power in range(8) if 2**power <= most)})


def _pass_s(threads: int) -> float:
    """Seconds of what a small model's FFN does to 512 tokens."""
    import torch

    torch.set_num_threads(threads)
    x, into, out = torch.ones(512, 256), torch.ones(1024, 256), torch.ones(256, 1024)
    linear = torch.nn.functional.linear
    return _shortest_s(lambda: torch.nn.functional.layer_norm(linear(linear(x, into).relu(), out), (256,)))


def _shortest_s(run: Callable[[], Any]) -> float:
    return _shortest_each_s({"": run})[""]


def _shortest_each_s(
    runs: Mapping[str, Callable[[], Any]], clock: Callable[[], float] = time.perf_counter, n_rounds: int = N_ROUNDS
) -> dict[str, float]:
    """Seconds of each, the shortest of some rounds: the rest is other work in between. One that is SLOW times the
    shortest sits out the rounds after its first, which on a processor without its instructions take seconds each."""
    import torch

    taken: dict[str, list[float]] = {name: [] for name in runs}
    with torch.inference_mode():
        for run in runs.values():
            run()
        for _ in range(n_rounds):
            shortest = min(min(seconds, default=math.inf) for seconds in taken.values())
            for name, run in runs.items():
                if taken[name] and min(taken[name]) > SLOW * shortest:
                    continue
                started = clock()
                run()
                taken[name].append(clock() - started)
    return {name: min(seconds) for name, seconds in taken.items()}


@once
def _all_threads() -> int:
    """Threads torch takes by itself; asked before any are set."""
    import torch

    return torch.get_num_threads()


@once
def processor() -> str:
    """The processor's name, "" where the system does not say."""
    found = _said_of_the_processor("model name")
    return platform.processor() if found is None else found


@once
def abilities() -> frozenset[str]:
    """What the processor says it can do, such as avx512_vnni; empty where the system does not say."""
    return frozenset((_said_of_the_processor("flags") or "").split())


def _said_of_the_processor(what: str) -> str | None:
    """A line of Linux' /proc/cpuinfo, "" where it has none of this name; None on other systems."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            return next((line.partition(":")[2].strip() for line in lines if line.startswith(what)), "")
    except OSError:
        return None

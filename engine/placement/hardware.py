"""GPUs by name: memory, and how fast they are at best, as their maker has published it; and what `--gpus` means.

Peaks are of dense products (data sheets like to give twice as much, of sparse ones) with fp32 sums. A chip without
16-bit products of bfloat16 takes them in fp32, as its rate says. Memory is what is sold as so many GB, at 10^9 bytes:
what a driver gives is as much or a little more.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.errors import UsageError

CONTEXT_BYTES = 600_000_000  # of a GPU's memory, for the driver and the libraries' code
MOST_GPUS = 1024
CPU = "cpu"


@dataclass(frozen=True)
class Device:
    """One device: its memory in bytes, and where they are known operations a second by precision (0 in int8: it has no
    8-bit products that bitsandbytes could use), bytes a second of its memory, and of the bus to main memory."""

    name: str
    n_bytes: int
    peaks: Mapping[str, float] = field(default_factory=dict)
    memory: float | None = None
    bus: float | None = None

    @property
    def is_cpu(self) -> bool:
        return self.name == CPU


@dataclass(frozen=True)
class Machine:
    """So many devices of one kind."""

    n: int
    device: Device

    def __str__(self) -> str:
        """As `--gpus` takes it."""
        return self.device.name if self.n == 1 else f"{self.n}x{self.device.name}"


PCIE3, PCIE4, PCIE5 = 15.75e9, 31.5e9, 63e9  # sixteen lanes, one direction


def _gpu(name: str, fp32: float, bf16: float, int8: float, memory: float, bus: float) -> Device:
    """From teraoperations and gigabytes a second; the gigabytes of memory are the end of the name."""
    peaks = {"fp32": fp32 * 1e12, "bf16": bf16 * 1e12, "int8": int8 * 1e12}
    return Device(name, int(name.rpartition("-")[2].removesuffix("GB")) * 10**9, peaks, memory * 1e9, bus)


GPUS = {
    gpu.name: gpu
    for gpu in (
        _gpu("T4-16GB", 8.1, 8.1, 130, 320, PCIE3),
        _gpu("V100-16GB", 15.7, 15.7, 0, 900, PCIE3),
        _gpu("V100-32GB", 15.7, 15.7, 0, 900, PCIE3),
        _gpu("A10-24GB", 31.2, 125, 250, 600, PCIE4),
        _gpu("A40-48GB", 37.4, 149.7, 299.3, 696, PCIE4),
        _gpu("A6000-48GB", 38.7, 154.8, 309.7, 768, PCIE4),
        _gpu("A100-40GB", 19.5, 312, 624, 1555, PCIE4),
        _gpu("A100-80GB", 19.5, 312, 624, 2039, PCIE4),
        _gpu("L4-24GB", 30.3, 121, 242, 300, PCIE4),
        _gpu("L40S-48GB", 91.6, 362, 733, 864, PCIE4),
        _gpu("H100-80GB", 67, 989.4, 1979, 3350, PCIE5),
        _gpu("H200-141GB", 67, 989.4, 1979, 4800, PCIE5),
        _gpu("RTX3090-24GB", 35.6, 71, 284, 936, PCIE4),
        _gpu("RTX4090-24GB", 82.6, 165.2, 660.6, 1008, PCIE4),
    )
}


def machine_of(text: str) -> Machine:
    """What `--gpus` names: `2xA100-80GB`, `A100-80GB`, a name without its GB where that is one GPU's alone, `2x80GB` of
    memory alone, or `cpu`, this machine. UsageError lists the known names."""
    plain = re.sub(r"[\s_-]", "", text).lower()
    if plain == CPU:
        return Machine(1, this_machine())
    found = re.fullmatch(r"(?:(\d{1,6})[x×])?(.+)", plain)
    device = _device(found[2]) if found else None
    if found is None or device is None:
        raise UsageError(f"--gpus is {text.strip()[:40]!r}; write 2xA100-80GB, 2x80GB or cpu; known are "
                         f"{', '.join(GPUS)}")  # fmt: skip
    n = int(found[1] or 1)
    if not 1 <= n <= MOST_GPUS:
        raise UsageError(f"--gpus is {text.strip()[:40]!r}; choose 1 to {MOST_GPUS:,} GPUs")
    return Machine(n, device)


def this_machine() -> Device:
    """This machine's processor, with the main memory that is free to this process."""
    from engine.placement.memory_needed import main_memory_bytes

    return Device(CPU, main_memory_bytes())


def known_gpu(told: str) -> str | None:
    """The name in GPUS of what a driver calls a GPU, such as NVIDIA A100-SXM4-80GB; None where it is none of them, or
    could be two."""
    words = re.findall(r"[a-z]*\d+[a-z]*", told.lower())
    same = [name for name in GPUS if _stem(name) in (*words, *(f"rtx{word}" for word in words))]
    sized = [name for name in same if name.lower().rpartition("-")[2] in words]
    found = sized or same
    return found[0] if len(found) == 1 else None


def _device(plain: str) -> Device | None:
    if memory := re.fullmatch(r"(\d{1,5})gb", plain):
        return Device(f"{int(memory[1])}GB", int(memory[1]) * 10**9) if int(memory[1]) else None
    same = [gpu for name, gpu in GPUS.items() if plain in (name.lower().replace("-", ""), _stem(name))]
    return same[0] if len(same) == 1 else None


def _stem(name: str) -> str:
    """The name without its memory."""
    return name.lower().rpartition("-")[0]

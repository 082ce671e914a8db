"""GPUs by name with their memory, and what `--gpus` means.

Memory is the nominal size in GB, at 10^9 bytes; drivers report the same or a little more.
"""

import re
from dataclasses import dataclass

from engine.errors import UsageError
from engine.placement.free_memory import CPU, main_memory_bytes

MOST_GPUS = 1024
GPUS = ("T4-16GB", "V100-16GB", "V100-32GB", "A10-24GB", "A40-48GB", "A6000-48GB", "A100-40GB", "A100-80GB", "L4-24GB",
        "L40S-48GB", "H100-80GB", "H200-141GB", "RTX3090-24GB", "RTX4090-24GB")  # fmt: skip
WITHOUT_INT8 = ("V100-16GB", "V100-32GB")  # bitsandbytes multiplies in int8 on Turing and later


@dataclass(frozen=True)
class Device:
    """One device: a name of `GPUS`, one such as "80GB" for any GPU of that memory, or "cpu"; and its memory."""

    name: str
    n_bytes: int

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
    return Device(CPU, main_memory_bytes())


def known_gpu(driver_name: str) -> str | None:
    """The name in GPUS of what a driver calls a GPU, such as NVIDIA A100-SXM4-80GB; None where it is none of them, or
    could be two."""
    words = re.findall(r"[a-z]*\d+[a-z]*", driver_name.lower())
    same = [name for name in GPUS if _stem(name) in (*words, *(f"rtx{word}" for word in words))]
    sized = [name for name in same if name.lower().rpartition("-")[2] in words]
    found = sized or same
    return found[0] if len(found) == 1 else None


def _device(plain: str) -> Device | None:
    if memory := re.fullmatch(r"(\d{1,5})gb", plain):
        return Device(f"{int(memory[1])}GB", int(memory[1]) * 10**9) if int(memory[1]) else None
    same = [name for name in GPUS if plain in (name.lower().replace("-", ""), _stem(name))]
    return _gpu(same[0]) if len(same) == 1 else None


def _gpu(name: str) -> Device:
    """A device of `GPUS`; its memory is the end of its name."""
    return Device(name, int(name.rpartition("-")[2].removesuffix("GB")) * 10**9)


def _stem(name: str) -> str:
    """The name without its memory."""
    return name.lower().rpartition("-")[0]

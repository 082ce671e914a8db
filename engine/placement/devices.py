"""Devices: the class of those that measure here and the one whose results a user asked for; free memory of GPUs, of
main memory within what a container may use, and of the disk; GPUs by name, and what `--gpus` means.

The memory of a GPU by name is the nominal size in GB, at 10^9 bytes; drivers report the same or a little more.
"""

import os
import re
import shutil
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path

from engine.errors import HeadroomError, UsageError
from engine.files import free_on_disk

DEVICES = ("cpu", "cuda")
LIBRARY_BYTES = 540_000_000  # python, torch, transformers, bitsandbytes and the harness in memory
CPU, DISK = "cpu", "disk"
MOST_GPUS = 1024
GPUS = ("T4-16GB", "V100-16GB", "V100-32GB", "A10-24GB", "A40-48GB", "A6000-48GB", "A100-40GB", "A100-80GB", "L4-24GB",
        "L40S-48GB", "H100-80GB", "H200-141GB", "RTX3090-24GB", "RTX4090-24GB")  # fmt: skip
WITHOUT_INT8 = ("V100-16GB", "V100-32GB")  # bitsandbytes multiplies in int8 on Turing and later


@once
def device_class() -> str:
    """`cuda` if torch can use an NVIDIA GPU, else `cpu`; asks torch only where a driver is installed."""
    if not any(Path("/dev").glob("nvidia[0-9]*")) and shutil.which("nvidia-smi") is None:
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def asked_device() -> str | None:
    """The device whose results a user wants to see, which this computer may not have: HEADROOM_DEVICE. None if it is
    not set; UsageError if it is not a device."""
    asked = os.environ.get("HEADROOM_DEVICE") or None
    if asked not in (None, *DEVICES):
        raise UsageError(f"HEADROOM_DEVICE is {asked!r}; choose one of {', '.join(DEVICES)}, or leave it empty")
    return asked


def refuse_other_device() -> None:
    """Raises HeadroomError if results of a device are wanted that this computer does not measure on: a number of one
    must never be stored as the other's."""
    if (asked := asked_device()) not in (None, device_class()):
        line = f"HEADROOM_DEVICE={asked} shows what such devices have measured, and this is not stored; unset it to "
        raise HeadroomError(f"{line}measure on this computer's {device_class()}, or measure it there")


def free_memory(folder: Path) -> dict[str, int]:
    """Free bytes of each place that this computer has, in the order in which layers fill them: "gpu0", "gpu1", ...,
    "cpu" (main memory) and "disk", where layers would lie in `folder`."""
    found = {}
    if device_class() == "cuda":
        import torch

        found = {f"gpu{index}": torch.cuda.mem_get_info(index)[0] for index in range(torch.cuda.device_count())}
    in_memory = main_memory_bytes() if found else free_bytes()
    return found | {CPU: in_memory, DISK: free_on_disk(folder)}


def free_bytes() -> int:
    """Free bytes of the device, or of main memory as `main_memory_bytes` counts them."""
    if device_class() == "cuda":
        import torch

        return sum(torch.cuda.mem_get_info(index)[0] for index in range(torch.cuda.device_count()))
    return main_memory_bytes()


def main_memory_bytes() -> int:
    """Free bytes of main memory. Libraries of this process count as free, since the needs of a model include them. The
    pages of their files are not added, as they count as free already."""
    import psutil

    free, left, held = psutil.virtual_memory().available, left_in_container(), psutil.Process().memory_info()
    own = held.rss - getattr(held, "shared", 0)  # Linux alone tells the two apart
    return min(free, free if left is None else left) + max(0, min(LIBRARY_BYTES, own))


def left_in_container(root: Path = Path("/")) -> int | None:
    """Bytes that the control groups of this process (cgroup v1 or v2) leave it, the least of them and their parents;
    None where none sets a limit. A process that goes beyond is killed without a word. Pages of files that can be
    dropped at once count as free."""
    left = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / ("memory" if controllers else "")
        at = top / path.lstrip("/")
        at = at if at.is_dir() else top  # a container may see its own group as the topmost
        for group in (at, *(parent for parent in at.parents if parent.is_relative_to(top))):
            left += _left_in(group, is_v1=bool(controllers))
    return min(left, default=None)


def _left_in(group: Path, is_v1: bool) -> list[int]:
    """What a group's limits leave, an entry for each that is set."""
    limits = ("memory.limit_in_bytes",) if is_v1 else ("memory.max", "memory.high")
    used = _text(group / ("memory.usage_in_bytes" if is_v1 else "memory.current"))
    if not used.isdecimal():
        return []
    cached = dict(line.split(" ", 1) for line in _text(group / "memory.stat").splitlines() if " " in line)
    cached_bytes = cached.get("total_inactive_file" if is_v1 else "inactive_file", "0")
    held = int(used) - (int(cached_bytes) if cached_bytes.isdecimal() else 0)
    found = [_text(group / limit) for limit in limits]
    return [max(0, int(limit) - held) for limit in found if limit.isdecimal()]  # v2 says `max` for none


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except (OSError, ValueError):
        return ""


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

"""Devices: the class of those that measure here and the one whose results a user asked for; free memory of GPUs, of
main memory within what a container may use, and of the disk.
"""

import os
import shutil
from functools import cache as once
from pathlib import Path

from engine.errors import HeadroomError, UsageError
from engine.files import free_on_disk

DEVICES = ("cpu", "cuda")
LIBRARY_BYTES = 540_000_000  # python, torch, transformers, bitsandbytes and the harness in memory
CPU, DISK = "cpu", "disk"


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

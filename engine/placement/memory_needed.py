"""What a load needs of the memory that there is: on the GPUs, or in main memory within what a container may use."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path
from typing import Any

from engine.architecture.family import family_of, shape_of
from engine.architecture.opt_sizes import LAYERS_HEADS_WIDTH, REPO, opt_config, opt_parts
from engine.architecture.sizes import n_parameters_of
from engine.checkpoints.compact_checkpoint import stock_config
from engine.checkpoints.hub import Offer
from engine.checkpoints.identity import PRECISIONS, Identity
from engine.errors import HeadroomError, UsageError
from engine.shapes import ModelShape

DEVICES = ("cpu", "cuda")
LIBRARY_BYTES = 540_000_000  # python, torch, transformers, bitsandbytes and the harness in memory
WORKSPACE_BYTES = 300_000_000  # activations, attention masks and logits of one batch of questions


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes a load needs and bytes free on the device; `smaller` names what would fit when it does not."""

    needed_bytes: int
    free_bytes: int
    device: str
    smaller: str

    @property
    def fits(self) -> bool:
        return self.needed_bytes <= self.free_bytes


def memory_estimate(identity: Identity, precision: str) -> MemoryEstimate:
    """The most that a load and passes under masks need in bytes, against what there is: of the GPUs' free memory, or,
    without one, of main memory with all that this process holds by then, the libraries included."""
    device, free = device_class(), free_bytes()
    return MemoryEstimate(needed_bytes(identity, precision), free, device, _smaller(identity, precision, free))


def too_large(name: str, precision: str, estimate: MemoryEstimate) -> str:
    """What a refusal says of a model that does not fit."""
    return (
        f"{name} in {precision} needs about {in_gb(estimate.needed_bytes)} and {in_gb(estimate.free_bytes)} "
        f"is free on {estimate.device}; {estimate.smaller}"
    )


def offered(offer: Offer) -> Identity:
    """A model of the hub as far as its config.json says it. HeadroomError: its architecture is not supported, or its
    weights are quantized."""
    name, config = str(offer.name), stock_config(offer.config, str(offer.name))
    shape, family = shape_of(config), family_of(config).name
    counts = n_parameters_of(config, shape)
    return Identity(name, Path(), config, family, shape, "", "", *counts, 0, "bfloat16", False)


def needed_bytes(identity: Identity, precision: str) -> int:
    """Weights, those of a smaller model beside them (half the heads' is usual, see `engine.models.slicing`), one tensor
    as it is stored, and workspace; on a CPU the libraries too."""
    libraries = LIBRARY_BYTES if device_class() == "cpu" else 0
    weights = identity.weight_bytes(precision) + identity.bytes_beside(precision)
    smaller = identity.shape.n_layers * sliced_bytes(identity.config, identity.shape, precision)
    return weights + smaller + WORKSPACE_BYTES + libraries


def sliced_bytes(config: Mapping[str, Any], shape: ModelShape, precision: str) -> int:
    """Bytes that a layer without half of its heads holds beside the whole one; 0 where nothing can be cut out."""
    if len(family_of(config).qkv) < 3:
        return 0
    heads = shape.d_model * shape.d_head * 2 * (shape.n_heads + shape.n_key_value_heads)
    return heads * {"int8": 1, "bf16": 2, "fp32": 4}[precision] // 2


def free_bytes() -> int:
    """What is free on the device, or in main memory as `main_memory_bytes` counts it."""
    if device_class() == "cuda":
        import torch

        return sum(torch.cuda.mem_get_info(index)[0] for index in range(torch.cuda.device_count()))
    return main_memory_bytes()


def main_memory_bytes() -> int:
    """What is free in main memory, the libraries of this process counted as free: `needed_bytes` includes them. The
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


def asked_device() -> str | None:
    """The device whose results a user wants to see, though this computer may have none such: HEADROOM_DEVICE. None
    where it is not set; UsageError where it is no device."""
    asked = os.environ.get("HEADROOM_DEVICE") or None
    if asked not in (None, *DEVICES):
        raise UsageError(f"HEADROOM_DEVICE is {asked!r}; choose one of {', '.join(DEVICES)}, or leave it empty")
    return asked


def refuse_other_device() -> None:
    """HeadroomError where results of a device are wanted that this computer does not measure on: a number of one must
    never be kept as the other's."""
    if (asked := asked_device()) not in (None, device_class()):
        line = f"HEADROOM_DEVICE={asked} shows what such devices have measured, and this is not stored; unset it to "
        raise HeadroomError(f"{line}measure on this computer's {device_class()}, or measure it there")


@once
def device_class() -> str:
    """`cuda` where torch can use an NVIDIA GPU, else `cpu`; asks torch only where a driver is installed."""
    if not any(Path("/dev").glob("nvidia[0-9]*")) and shutil.which("nvidia-smi") is None:
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _smaller(identity: Identity, precision: str, free: int) -> str:
    """What a refusal advises: the largest precision of this model that fits, else the largest OPT that fits in int8."""
    for choice in PRECISIONS[::-1]:
        needed = needed_bytes(identity, choice)
        if needed <= free and needed < needed_bytes(identity, precision):
            return f"{choice} needs {in_gb(needed)} and would fit"
    fitting = [size for size in LAYERS_HEADS_WIDTH if _needed_by_opt(size) <= free]
    return f"{REPO}{fitting[-1]} in int8 would fit" if fitting else "use the model `demo`, or free some memory"


def _needed_by_opt(size: str) -> int:
    """`needed_bytes` in int8 of a published OPT, on a CPU; its files are in 16 bits."""
    config, parts = opt_config(size), opt_parts(size)
    smaller = parts.n_layers * sliced_bytes(config, shape_of(config), "int8")
    return parts.n_bytes("int8") + smaller + WORKSPACE_BYTES + LIBRARY_BYTES


def in_gb(n_bytes: int) -> str:
    """Such as 1.3 GB."""
    return f"{n_bytes / 1e9:,.1f} GB"

"""Where the parts of a model would lie on a machine's devices, and what each of them would hold, before it is there.

As layers are placed when they are loaded: whole layers alone are moved, all else lies on the first device. They stand
on GPUs in their order, as evenly as their bytes allow. What no GPU has room for lies in main memory, and what that has
none for on the disk: each pass brings it to the first GPU. In int8 it cannot: bitsandbytes multiplies where it lies.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.checkpoints.model_config import ModelConfig
from engine.placement.hardware import CONTEXT_BYTES, MOST_GPUS, Machine
from engine.placement.memory_needed import LIBRARY_BYTES, WORKSPACE_BYTES, sliced_bytes
from engine.placement.pass_memory import TokenCounts, gradient_bytes, kept_bytes, workspace_bytes

MAIN, DISK, NOWHERE = "main memory", "disk", "nowhere"
Counts = Sequence[int]  # layers on each device
Bytes = dict[str, int]  # by what they are for


@dataclass(frozen=True)
class DeviceShare:
    """What one device holds: layers from `first` up to, not with, `stop`, with `ends` also embeddings, last norm and
    unembedding; bytes by what they are for, and the `room` that there is, None where that is not known."""

    device: str
    first: int
    stop: int
    ends: bool
    n_bytes: Bytes
    room: int | None

    @property
    def n_layers(self) -> int:
        return self.stop - self.first

    @property
    def total(self) -> int:
        return sum(self.n_bytes.values())


@dataclass(frozen=True)
class Allotment:
    """`shares` of the `n_used` devices that one worker takes, and of what else holds layers. `n_needed`: devices of
    this kind that would hold all of them (None: no number would). A pass fetches `from_main` and `from_disk` bytes."""

    shares: tuple[DeviceShare, ...]
    n_used: int
    n_needed: int | None
    from_main: int = 0
    from_disk: int = 0

    @property
    def fits(self) -> bool:
        """Whether all of it lies on the devices."""
        return self.n_needed is not None and self.n_needed <= self.n_used

    @property
    def runs(self) -> bool:
        """Whether there is room for everything somewhere."""
        placed = all(share.device != NOWHERE for share in self.shares)
        return placed and all(share.room is None or share.total <= share.room for share in self.shares)

    @property
    def place(self) -> str:
        """Where layers lie as HEADROOM_PLACE takes it; "" where that is one device, or nowhere."""
        if not self.runs or len(self.shares) == 1:
            return ""
        names = {MAIN: "cpu", DISK: "disk"}
        placed = [(names.get(each.device, f"gpu{at}"), each.n_layers) for at, each in enumerate(self.shares)]
        return ",".join(f"{name}:{n}" for name, n in placed if n)


@dataclass(frozen=True)
class Passes:
    """The largest passes that memory is for: one that scores questions, and one that gradients pass back through."""

    scoring: TokenCounts
    gradient: TokenCounts


@dataclass(frozen=True)
class _Needs:
    """Bytes of a device whatever it holds, of a layer on it, of all that is no layer, and of a layer elsewhere."""

    always: Bytes
    layer: Bytes
    rest: int
    away: int

    def room_for(self, room: int, is_first: bool) -> int:
        """How many layers a device has room for; below 0 where it has none for what lies there whatever it holds."""
        return (room - sum(self.always.values()) - self.rest * is_first) // sum(self.layer.values())


def allotted(model: ModelConfig, precision: str, machine: Machine, passes: Passes, main_memory: int = 0) -> Allotment:
    """Where the model would lie, with what passes under masks take; `main_memory` bytes are free beside the GPUs."""
    needs, n_layers, device = _needs(model, precision, machine, passes), model.shape.n_layers, machine.device
    most = 1 if device.is_cpu else min(n_layers, MOST_GPUS)
    n_needed = next((n for n in range(1, most + 1) if _fill(needs, n_layers, n, device.n_bytes) is not None), None)
    if n_needed is not None and n_needed <= machine.n:
        held = _evenly(needs, n_layers, n_needed, device.n_bytes)
        return Allotment(_shares(needs, machine, held), n_needed, n_needed)
    held = _as_many_as_fit(needs, n_layers, machine)
    left = n_layers - sum(held)
    rooms: list[tuple[str, int, int | None]] = []
    if precision == "int8" and not device.is_cpu:
        rooms.append((NOWHERE, left, None))
    else:
        room = 0 if device.is_cpu else max(0, main_memory - LIBRARY_BYTES)
        n_main = min(left, room // needs.away)
        rooms += [(MAIN, n_main, room), (DISK, left - n_main, None)]
    shares, at = list(_shares(needs, machine, held)), n_layers - left
    for name, n, free in rooms:
        if n:
            shares.append(DeviceShare(name, at, at + n, False, {"weights": n * needs.away}, free))
        at += n
    bytes_in = {share.device: share.total for share in shares}
    return Allotment(tuple(shares), machine.n, n_needed, bytes_in.get(MAIN, 0), bytes_in.get(DISK, 0))


def _needs(model: ModelConfig, precision: str, machine: Machine, passes: Passes) -> _Needs:
    parts, is_cpu = model.parts, machine.device.is_cpu
    back = gradient_bytes(model) if precision == "int8" else 0
    workspace = max(WORKSPACE_BYTES, workspace_bytes(model, precision, passes.scoring), back)
    weights = parts.layer.n_bytes(precision)
    of_layer = {"weights": weights, "smaller weights": sliced_bytes(model.config, model.shape, precision),
                "gradients": kept_bytes(model, precision, passes.gradient, is_cpu)}  # fmt: skip
    always = {"libraries": LIBRARY_BYTES if is_cpu else CONTEXT_BYTES, "workspace": workspace}
    always["loading"] = _loading_bytes(model, precision)
    rest = sum(part.n_bytes(precision) for part in (parts.embeddings, parts.end, parts.head))
    return _Needs(always, of_layer, rest, weights)


def _loading_bytes(model: ModelConfig, precision: str) -> int:
    """The largest tensor as it is stored, where that is in another type: it lies beside the weights for a moment."""
    stored = model.config.get("dtype") or model.config.get("torch_dtype") or "float16"
    if stored == ("float32" if precision == "fp32" else "bfloat16"):
        return 0
    shape = model.shape
    largest = max(shape.n_vocab * model.d_embedding, shape.d_model * max(shape.d_mlp, model.d_heads))
    return largest * (4 if stored == "float32" else 2)


def _fill(needs: _Needs, n_layers: int, n: int, room: int) -> Counts | None:
    """Layers on each of n devices, the first ones filled up to `room`; None where that is not enough."""
    counts: list[int] = []
    for number in range(n):
        count = needs.room_for(room, is_first=number == 0)
        if count < 0:
            return None
        counts.append(min(n_layers - sum(counts), count))
    return counts if sum(counts) == n_layers else None


def _evenly(needs: _Needs, n_layers: int, n: int, room: int) -> Counts:
    """The same with as little on the fullest device as will do."""
    low, high = 0, room
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _fill(needs, n_layers, n, middle) is not None else (middle + 1, high)
    found = _fill(needs, n_layers, n, low)
    assert found is not None  # as it is with `room`
    return found


def _as_many_as_fit(needs: _Needs, n_layers: int, machine: Machine) -> Counts:
    """Layers on each device of a machine that is too small for all: the first keeps room for one that is fetched."""
    counts: list[int] = []
    for number in range(machine.n):
        room = machine.device.n_bytes - (needs.away if number == 0 else 0)
        counts.append(min(n_layers - sum(counts), max(0, needs.room_for(room, is_first=number == 0))))
    return counts


def _shares(needs: _Needs, machine: Machine, held: Counts) -> tuple[DeviceShare, ...]:
    shares, first = [], 0
    for number, n in enumerate(held):
        n_bytes = {name: n * each for name, each in needs.layer.items()} | needs.always
        n_bytes["weights"] += needs.rest if number == 0 else 0
        name = machine.device.name if machine.device.is_cpu else f"GPU {number}"
        shares.append(DeviceShare(name, first, first + n, number == 0, n_bytes, machine.device.n_bytes))
        first += n
    return tuple(shares)

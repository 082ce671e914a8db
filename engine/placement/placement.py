"""Where the layers of a model larger than one device lie: on GPUs one behind the other, in main memory, on disk.

Whole layers alone are moved; embeddings, final norm and unembedding lie on the first device. A layer that lies in main
memory beside a GPU, or on disk, is brought to the first device in every pass and runs there. So all layers run on
devices of one class, and numbers and their keys are those of the model in one piece.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from cache import Store
from engine.architecture.family import FAMILIES
from engine.architecture.sizes import parts_of
from engine.checkpoints.hub import Offer
from engine.checkpoints.identity import Identity
from engine.errors import HeadroomError, UsageError
from engine.kernels.kernel_choice import processor
from engine.placement import memory_needed
from engine.placement.disk_offload import free_on_disk
from engine.placement.memory_needed import (
    LIBRARY_BYTES,
    WORKSPACE_BYTES,
    MemoryEstimate,
    device_class,
    in_gb,
    main_memory_bytes,
    memory_estimate,
    needed_bytes,
    offered,
    sliced_bytes,
    too_large,
)
from engine.records import Record, canonical_key, decode, encode

PLACE = "HEADROOM_PLACE"  # the user's choice of places
PLACE_HELP = (
    "where a model's layers lie: places in order, each with how many, such as gpu0:20,gpu1:20,cpu:4,disk; the last one "
    f"may go without a number and takes the rest (or {PLACE}; default: on one device, and on what else there is where "
    "that is too small)"
)
TERM = re.compile(r"(gpu\d{1,3}|cpu|disk)(?::(\d{1,4}))?")
CPU, DISK = "cpu", "disk"
SPARE_ON_DISK = 1_000_000_000  # left free there, for results
ABOUT = 100_000_000  # two disks are taken for one where they have as much free, within this


@dataclass(frozen=True)
class Placement:
    """Where each layer lies ("gpu0", "cpu" or "disk"), and on which device all else, `main`: the first GPU, else "cpu".
    `layer_bytes` is what one layer takes; `is_asked`: the user has said so."""

    layers: tuple[str, ...]
    main: str
    layer_bytes: int
    is_asked: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether all of the model lies on one device."""
        return set(self.layers) == {self.main}

    @property
    def on_disk(self) -> tuple[int, ...]:
        """The layers that lie there."""
        return tuple(layer for layer, place in enumerate(self.layers) if place == DISK)

    @property
    def moved(self) -> frozenset[int]:
        """The layers that do not lie where they run."""
        return frozenset(at for at, place in enumerate(self.layers) if place == DISK or place == CPU != self.main)

    @property
    def disk_bytes(self) -> int:
        """What these take."""
        return len(self.on_disk) * self.layer_bytes

    def moved_bytes(self) -> dict[str, int]:
        """Bytes that each pass moves: read from "disk", and brought to a "gpu"."""
        brought = 0 if self.main == CPU else len(self.moved) * self.layer_bytes
        return {kind: n for kind, n in ((DISK, self.disk_bytes), ("gpu", brought)) if n}

    def in_words(self) -> str:
        """Such as "layers 0-19 on GPU 0, 20-23 in main memory, 24-31 on disk"."""
        spans, at = [], 0
        for place, group in groupby(self.layers):
            n = len(list(group))
            spans.append(f"{at}{f'-{at + n - 1}' if n > 1 else ''} {_place_in_words(place)}")
            at += n
        return f"layer{'s' if len(self.layers) > 1 else ''} {', '.join(spans)}"

    def cost_in_words(self, rates: Mapping[str, float]) -> str:
        """What that costs a pass, such as "each pass reads 0.5 GB from disk, about 0.4 s at the 1.2 GB/s measured
        here": at `rates` in bytes a second. "" where nothing is moved."""
        said = []
        for kind, n in self.moved_bytes().items():
            what = f"reads {_size(n)} from disk" if kind == DISK else f"brings {_size(n)} to {_gpu(self.main)}"
            if rate := rates.get(kind):
                what += f", about {n / rate:,.2g} s at the {_size(rate)}/s measured here"
            said.append(what)
        cached = ", less where the system still holds them in memory" if self.on_disk and said else ""
        return f"each pass {' and '.join(said)}{cached}" if said else ""

    def with_cost(self, rates: Mapping[str, float]) -> str:
        """Where the layers lie, and what that costs a pass."""
        return "; ".join(filter(None, (self.in_words(), self.cost_in_words(rates))))


def asked_places() -> tuple[tuple[str, int | None], ...] | None:
    """(place, how many layers) in order as HEADROOM_PLACE has it, None in place of the rest; None where it is not set.
    UsageError: it makes no sense."""
    text = os.environ.get(PLACE, "").strip()
    return places(text) if text else None


def places(text: str) -> tuple[tuple[str, int | None], ...]:
    """The same of any text."""
    found: list[tuple[str, int | None]] = []
    for term in text.lower().split(","):
        match = TERM.fullmatch(term.strip())
        if match is None:
            raise UsageError(f"{PLACE}: {term.strip()[:40]!r} is no place; write cpu, disk or gpu0 with how many "
                             "layers, such as cpu:4,disk")  # fmt: skip
        found.append((match[1], None if match[2] is None else int(match[2])))
    names = [name for name, _ in found]
    if len(set(names)) < len(names):
        raise UsageError(f"{PLACE} is {text[:60]!r} and names a place twice; each holds layers one behind the other")
    if any(count is None for _, count in found[:-1]):
        raise UsageError(f"{PLACE} is {text[:60]!r}; only the last place may go without a number of layers")
    return tuple(found)


def plan_placement(identity: Identity, precision: str, estimate: MemoryEstimate, folder: Path) -> Placement:
    """Where the layers of this model go: as the user has it, on one device where it fits (`estimate`), else on as many
    devices as it takes. `folder`: where layers would be set aside on disk. HeadroomError: there is no room."""
    asked, main = asked_places(), _main()
    whole = Placement((main,) * identity.shape.n_layers, main, layer_bytes(identity, precision))
    if asked is None and estimate.fits and (main == CPU or estimate.needed_bytes <= rooms(folder)[main]):
        return whole
    free = rooms(folder)
    order = [name for name in free if precision != "int8" or main == CPU or name.startswith("gpu")]
    layers = _asked(asked, identity, free) if asked else _filled(identity, precision, free, order)
    found = replace(whole, layers=layers, is_asked=asked is not None)
    if precision == "int8" and main != CPU and found.moved_bytes():
        raise HeadroomError(f"{PLACE} sets layers beside a GPU, and int8 layers run where they lie (bitsandbytes); "
                            "name GPUs alone, or choose bf16 or fp32")  # fmt: skip
    if len(layers) < identity.shape.n_layers or (asked and not _have_room(found, identity, precision, free)):
        raise HeadroomError(_no_room(identity, precision, estimate, free, folder, found))
    return found


def refusal(offer: Offer, precision: str, folder: Path) -> str | None:
    """Why a model of the hub cannot be had here in that precision, for its disk space or memory; None where it can.
    HeadroomError: its architecture is not supported."""
    identity = offered(offer)
    try:
        placing = plan_placement(identity, precision, memory_estimate(identity, precision), folder)
    except HeadroomError as error:
        return str(error)
    if offer.disk_refusal or not placing.on_disk:
        return offer.disk_refusal
    free, due = free_on_disk(folder), offer.missing_bytes + placing.disk_bytes + SPARE_ON_DISK
    if abs(free - offer.free_bytes) < ABOUT and free < due:  # one disk for both
        return (f"{offer.name} in {precision} needs {in_gb(due)} on the disk, for its files and {placing.in_words()}, "
                f"and {in_gb(free)} is free; free some, or choose a smaller model")  # fmt: skip
    return None


def refuse_gradients(placing: Placement, name: str) -> None:
    """HeadroomError where passing gradients back would hold more on the first GPU than it has room for: every layer
    that is brought there stays until they are through."""
    due = placing.moved_bytes().get("gpu", 0)
    if due and due > (free := rooms(Path())[placing.main]):
        raise HeadroomError(f"gradients through {name} need all of its layers on GPUs at once, {in_gb(due)} more than "
                            f"lie there, and {in_gb(free)} is free; choose a criterion without gradients")  # fmt: skip


def layer_bytes(identity: Identity, precision: str) -> int:
    """What one layer's weights take."""
    layer = parts_of(identity.config, identity.shape).layer
    return replace(identity, n_params=layer.n_params, n_quantised=layer.n_quantised).weight_bytes(precision)


def rooms(folder: Path) -> dict[str, int]:
    """Bytes free at each place there is here, in the order in which they are filled."""
    found = {}
    if device_class() == "cuda":
        import torch

        found = {f"gpu{index}": torch.cuda.mem_get_info(index)[0] for index in range(torch.cuda.device_count())}
    in_memory = main_memory_bytes() if found else memory_needed.free_bytes()
    return found | {CPU: in_memory, DISK: free_on_disk(folder)}


def device_map(placing: Placement, model_class: Any, config: Any) -> dict[str, int | str]:
    """What transformers and accelerate are told: each module's GPU, or "cpu". Layers on disk are main memory's to them:
    their tensors are mapped files (`engine.placement.disk_offload`)."""
    import copy

    import torch

    main = _as_told(placing.main)
    if all(_as_told(place) == main for place in placing.layers):
        return {"": main}
    with torch.device("meta"):
        skeleton = model_class(copy.deepcopy(config))
    found, at = {}, ""
    for part in FAMILIES[config.model_type].layers.split("."):  # all that lies beside the path to the layers
        inside = skeleton.get_submodule(at)
        found |= {f"{at}.{name}".lstrip("."): main for name, _ in inside.named_children() if name != part}
        at = f"{at}.{part}".lstrip(".")
    return found | {f"{at}.{layer}": _as_told(place) for layer, place in enumerate(placing.layers)}


def known_rates(store: Store | None, folder: Path) -> dict[str, float]:
    """Bytes a second that were measured here when layers were last set there, by kind of `Placement.moved_bytes`."""
    record = decode(store.get(_rates_key(folder))) if store is not None else None
    found = record.receipt.get("bytes_per_s") if record is not None else None
    said = found if isinstance(found, dict) else {}
    return {kind: float(rate) for kind, rate in said.items() if isinstance(rate, int | float) and rate > 0}


def remember_rates(store: Store | None, folder: Path, rates: Mapping[str, float]) -> None:
    if store is not None and rates:
        known = known_rates(store, folder) | dict(rates)
        store.put(_rates_key(folder), encode(Record({}, {"kind": "rates", "bytes_per_s": known})))


def _rates_key(folder: Path) -> str:
    return canonical_key("rates", {"of": "layers", "folder": str(folder), "processor": processor()})


def _main() -> str:
    return "gpu0" if device_class() == "cuda" else CPU


def _filled(identity: Identity, precision: str, free: Mapping[str, int], order: Sequence[str]) -> tuple[str, ...]:
    """The layers in order, in each place as many as have room; fewer than there are where they have none."""
    found: list[str] = []
    for place in order:
        count = max(0, free[place] - _beside(place, identity, precision)) // _each(place, identity, precision)
        found += [place] * min(count, identity.shape.n_layers - len(found))
    return tuple(found) if free[_main()] >= _beside(_main(), identity, precision) else ()


def _asked(
    asked: Sequence[tuple[str, int | None]], identity: Identity, free: Mapping[str, int]
) -> tuple[str, ...]:  # fmt: skip
    found: list[str] = []
    n = identity.shape.n_layers
    for place, count in asked:
        if place not in free:
            raise UsageError(f"{PLACE} names {place}, and this computer has {', '.join(free)}; choose among these")
        found += [place] * (n - len(found) if count is None else min(count, n - len(found)))
    if len(found) < n:
        raise UsageError(f"{PLACE} has places for {len(found)} layers, and {identity.name} has {n}; leave the number "
                         "of the last place out, and it takes the rest")  # fmt: skip
    return tuple(found)


def _have_room(placing: Placement, identity: Identity, precision: str, free: Mapping[str, int]) -> bool:
    def needed(place: str) -> int:
        count = placing.layers.count(place)
        is_used = count or place == placing.main
        return count * _each(place, identity, precision) + _beside(place, identity, precision) if is_used else 0

    return all(needed(place) <= free[place] for place in free)


def _each(place: str, identity: Identity, precision: str) -> int:
    """Bytes that one layer takes at a place: where it runs from, with its share of a smaller model beside it."""
    is_away = place == DISK or (place == CPU != _main())
    beside = 0 if is_away else sliced_bytes(identity.config, identity.shape, precision)
    return layer_bytes(identity, precision) + beside


def _beside(place: str, identity: Identity, precision: str) -> int:
    """Bytes that are needed at a place beside layers: on the first device for all that is no layer, and for one that is
    brought there."""
    if place == DISK:
        return SPARE_ON_DISK
    if place != _main():
        return WORKSPACE_BYTES + (LIBRARY_BYTES if place == CPU else 0)
    each = layer_bytes(identity, precision) + sliced_bytes(identity.config, identity.shape, precision)
    layers = identity.shape.n_layers * each
    return needed_bytes(identity, precision) - layers + layer_bytes(identity, precision)


def _no_room(
    identity: Identity, precision: str, estimate: MemoryEstimate, free: Mapping[str, int], folder: Path,
    found: Placement,
) -> str:  # fmt: skip
    """What a refusal says: of the model on one device as ever, and why other places do not help."""
    line, main = too_large(identity.name, precision, estimate), _main()
    if found.is_asked:
        return (f"{PLACE} sets {found.in_words()} of {identity.name} in {precision}, for which there is no room: "
                f"{_free_in_words(free)}; set fewer there, or leave it empty")  # fmt: skip
    if free[main] < (beside := _beside(main, identity, precision)):
        return f"{line}; without its layers it needs {in_gb(beside)} there, so that layers on disk do not help"
    if precision == "int8" and main != CPU:
        return f"{line}; in bf16 or fp32 layers may lie in main memory and on disk too"
    n = identity.shape.n_layers
    room = _filled(identity, precision, free, [place for place in free if place != DISK])
    due = (n - len(room)) * layer_bytes(identity, precision) + SPARE_ON_DISK
    return f"{line}; or free {in_gb(due - free[DISK])} more in {folder}, where {n - len(room)} of its layers would lie"


def _free_in_words(free: Mapping[str, int]) -> str:
    return ", ".join(f"{in_gb(n)} free {_place_in_words(place)}" for place, n in free.items())


def _place_in_words(place: str) -> str:
    return {CPU: "in main memory", DISK: "on disk"}.get(place) or f"on {_gpu(place)}"


def _gpu(place: str) -> str:
    return f"GPU {place.removeprefix('gpu')}"


def _as_told(place: str) -> int | str:
    return int(place.removeprefix("gpu")) if place.startswith("gpu") else CPU


def _size(n_bytes: float) -> str:
    return in_gb(round(n_bytes)) if n_bytes >= 1e8 else f"{n_bytes / 1e6:,.2g} MB"

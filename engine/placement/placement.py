"""Where the layers of a model larger than one device lie: on GPUs in order, in main memory, on disk.

Whole layers alone are moved; embeddings, final norm and unembedding lie on the first device. A layer that lies in main
memory next to a GPU, or on disk, is moved to the first device in every pass and runs there. So all layers run on
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
from engine.architecture.family import Family, shape_of
from engine.architecture.model_config import ModelConfig
from engine.checkpoints.compact_checkpoint import stock_config
from engine.checkpoints.hub import Offer
from engine.errors import HeadroomError, UsageError
from engine.kernels.kernel_choice import processor
from engine.placement.devices import CPU, DISK, device_class, free_memory, free_on_disk
from engine.placement.needs import SPARE_ON_DISK, MemoryEstimate, Needs, in_gb, load_needs, memory_estimate, too_large
from engine.records import Record, canonical_key, decode, encode

PLACE = "HEADROOM_PLACE"  # the user's choice of places
PLACE_HELP = (
    "where layers go: comma-separated devices, each with its number of layers, such as gpu0:20,gpu1:20,cpu:4,disk; "
    f"without a number, the last device takes the remaining layers (default: ${PLACE}; otherwise one device, or more "
    "if the model does not fit)"
)
TERM = re.compile(r"(gpu\d{1,3}|cpu|disk)(?::(\d{1,4}))?")
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
            raise UsageError(f"{PLACE}: {term.strip()[:40]!r} is not a device; write cpu, disk or gpu0 with how many "
                             "layers, such as cpu:4,disk")  # fmt: skip
        found.append((match[1], None if match[2] is None else int(match[2])))
    names = [name for name, _ in found]
    if len(set(names)) < len(names):
        raise UsageError(f"{PLACE} is {text[:60]!r} and lists a device twice; each may appear only once")
    if any(count is None for _, count in found[:-1]):
        raise UsageError(f"{PLACE} is {text[:60]!r}; only the last place may go without a number of layers")
    return tuple(found)


def place(needs: Needs, free: Mapping[str, int]) -> tuple[str, ...]:
    """The place of each layer, in order; fewer than the layers if they do not fit, and none at all if the first place,
    on which the rest of the model lies, has no room for that.

    `free` has the free bytes of each place in the order in which they are filled.
    """
    main = next(iter(free))
    running = {name: room for name, room in free.items() if name not in (CPU, DISK) or name == main}
    found = _fill(needs, running, main)
    return found if len(found) == needs.n_layers else _fill(needs, free, main, is_fetching=len(running) < len(free))


def _fill(needs: Needs, free: Mapping[str, int], main: str, is_fetching: bool = False) -> tuple[str, ...]:
    found: list[str] = []
    for name, room in free.items():
        n = needs.n_that_fit(room, name, main, is_fetching)
        if name == main and n < 0:
            return ()
        found += [name] * max(0, min(n, needs.n_layers - len(found)))
    return tuple(found)


def plan_placement(model: ModelConfig, precision: str, folder: Path) -> Placement:
    """Where the layers of this model go: where the user wants them (HEADROOM_PLACE), on one device if it fits there,
    else on as many places as it takes. `folder`: where layers would lie on disk. HeadroomError: the model does not
    fit."""
    wanted, main, needs = asked_places(), _main(), load_needs(model, precision)
    whole = Placement((main,) * needs.n_layers, main, needs.layer["weights"])
    estimate = memory_estimate(model, precision)
    if wanted is None and estimate.fits and (main == CPU or estimate.needed_bytes <= free_memory(folder)[main]):
        return whole
    free = free_memory(folder)
    usable = {name: room for name, room in free.items() if not (_is_int8_on_gpu(precision) and name in (CPU, DISK))}
    layers = _asked(wanted, model.name, needs.n_layers, free) if wanted else place(needs, usable)
    placement = replace(whole, layers=layers, is_asked=wanted is not None)
    if _is_int8_on_gpu(precision) and placement.moved_bytes():
        raise HeadroomError(f"{PLACE} places layers off the GPU, but int8 layers cannot be moved (bitsandbytes); "
                            "name GPUs alone, or choose bf16 or fp32")  # fmt: skip
    if len(layers) < needs.n_layers or (wanted and not _has_room(placement, needs, free)):
        raise HeadroomError(_no_room(model.name, precision, needs, estimate, free, folder, placement))
    return placement


def refusal(offer: Offer, precision: str, folder: Path) -> str | None:
    """Why a model of the hub cannot be loaded here in that precision, for its disk space or memory; None if it can.
    HeadroomError: its architecture is not supported."""
    model = offered_config(offer)
    try:
        placement = plan_placement(model, precision, folder)
    except HeadroomError as error:
        return str(error)
    if offer.disk_refusal or not placement.on_disk:
        return offer.disk_refusal
    free, due = free_on_disk(folder), offer.missing_bytes + placement.disk_bytes + SPARE_ON_DISK
    if abs(free - offer.free_bytes) < ABOUT and free < due:  # one disk for both
        what = f"its files and {placement.in_words()}"
        return (f"{offer.name} in {precision} needs {in_gb(due)} on the disk, for {what}, and {in_gb(free)} is free; "
                "free some, or choose a smaller model")  # fmt: skip
    return None


def offered_config(offer: Offer) -> ModelConfig:
    """The config of a model of the hub that is not here yet. HeadroomError: its architecture is not supported, or its
    weights are quantized."""
    name = str(offer.name)
    model = ModelConfig(name, stock_config(offer.config, name), "its config.json")
    shape_of(model.config)
    return model


def refuse_gradients(placement: Placement, name: str) -> None:
    """Raises HeadroomError if passing gradients back would hold more on the first GPU than it has room for: every layer
    that is moved there stays until they are through."""
    due = placement.moved_bytes().get("gpu", 0)
    if due and due > (free := free_memory(Path())[placement.main]):
        raise HeadroomError(f"gradients through {name} need all of its layers on GPUs at once, {in_gb(due)} more than "
                            f"lie there, and {in_gb(free)} is free; choose a criterion without gradients")  # fmt: skip


def device_map(placing: Placement, model_class: Any, config: Any, family: Family) -> dict[str, int | str]:
    """The device map for transformers and accelerate: each module's GPU, or "cpu". Layers on disk are main memory's to
    them: their tensors are mapped files (`engine.placement.disk_offload`)."""
    import copy

    import torch

    main = _as_told(placing.main)
    if all(_as_told(place) == main for place in placing.layers):
        return {"": main}
    with torch.device("meta"):
        skeleton = model_class(copy.deepcopy(config))
    found, at = {}, ""
    for part in family.layers.split("."):  # all modules next to the path to the layers
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


def _is_int8_on_gpu(precision: str) -> bool:
    """Whether bitsandbytes multiplies on a GPU, which it does where a layer lies."""
    return precision == "int8" and _main() != CPU


def _asked(
    places: Sequence[tuple[str, int | None]], name: str, n_layers: int, free: Mapping[str, int]
) -> tuple[str, ...]:
    layers: list[str] = []
    for place, count in places:
        if place not in free:
            raise UsageError(f"{PLACE} names {place}, and this computer has {', '.join(free)}; choose among these")
        left = n_layers - len(layers)
        layers += [place] * (left if count is None else min(count, left))
    if len(layers) < n_layers:
        raise UsageError(f"{PLACE} has places for {len(layers)} layers, and {name} has {n_layers}; leave the number "
                         "of the last place out, and it takes the rest")  # fmt: skip
    return tuple(layers)


def _has_room(placement: Placement, needs: Needs, free: Mapping[str, int]) -> bool:
    main, is_fetching = placement.main, bool(placement.moved)
    used = {*placement.layers, main}
    return all(
        sum(needs.at(place, placement.layers.count(place), main, is_fetching).values()) <= free[place] for place in used
    )


def _no_room(
    name: str, precision: str, needs: Needs, estimate: MemoryEstimate, free: Mapping[str, int], folder: Path,
    found: Placement,
) -> str:  # fmt: skip
    """What a refusal says: of the model on one device as ever, and why other places do not help."""
    line, main = too_large(name, precision, estimate), _main()
    if found.is_asked:
        return (f"{PLACE} sets {found.in_words()} of {name} in {precision}, which do not fit: "
                f"{describe_free(free)}; set fewer there, or leave it empty")  # fmt: skip
    without = sum(needs.at(main, 0, main, is_fetching=True).values())
    if free[main] < without:
        return f"{line}; without its layers it needs {in_gb(without)} there, so that layers on disk do not help"
    if _is_int8_on_gpu(precision):
        return f"{line}; in bf16 or fp32 layers may lie in main memory and on disk too"
    left = needs.n_layers - len([where for where in place(needs, free) if where != DISK])
    due = sum(needs.at(DISK, left, main).values()) - free[DISK]
    return f"{line}; or free {in_gb(due)} more in {folder}, where {left} of its layers would lie"


def describe_free(free: Mapping[str, int]) -> str:
    """Such as "10.3 GB free in main memory, 80.1 GB free on disk"."""
    return ", ".join(f"{in_gb(n)} free {_place_in_words(place)}" for place, n in free.items())


def _place_in_words(place: str) -> str:
    return {CPU: "in main memory", DISK: "on disk"}.get(place) or f"on {_gpu(place)}"


def _gpu(place: str) -> str:
    return f"GPU {place.removeprefix('gpu')}"


def _as_told(place: str) -> int | str:
    return int(place.removeprefix("gpu")) if place.startswith("gpu") else CPU


def _size(n_bytes: float) -> str:
    return in_gb(round(n_bytes)) if n_bytes >= 1e8 else f"{n_bytes / 1e6:,.2g} MB"

"""What a model needs of memory: on the device that runs it, and where layers lie that are moved there for each pass."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from engine.architecture.family import family_of
from engine.architecture.model_config import ModelConfig
from engine.architecture.opt_sizes import LAYERS_HEADS_WIDTH, REPO, opt_config
from engine.checkpoints.identity import PRECISIONS
from engine.placement.devices import device_class
from engine.placement.free_memory import CPU, DISK, LIBRARY_BYTES, free_bytes

WORKSPACE_BYTES = 300_000_000  # activations, attention masks and logits of one batch of questions
SPARE_ON_DISK = 1_000_000_000  # left free there, for results


@dataclass(frozen=True)
class Needs:
    """Bytes that a model of `n_layers` layers needs, by purpose.

    `layer`: of each layer on the device that runs it. Its "weights" are what the layer takes anywhere else.
    `ends`: of embeddings, final norm and unembedding, on the first device.
    `running`: of each device that runs layers, however many.
    """

    n_layers: int
    layer: Mapping[str, int]
    ends: int
    running: Mapping[str, int]

    @cached_property
    def total(self) -> int:
        """Bytes of the whole model on one device."""
        return sum(self.at("first", self.n_layers, "first").values())

    def at(self, place: str, n_layers: int, main: str, is_fetching: bool = False) -> dict[str, int]:
        """Bytes by purpose that so many layers need at a place ("gpu0", "cpu", "disk"), the first device (`main`)
        holding `ends`, too. `is_fetching`: layers from elsewhere are moved to `main`, which needs room for one."""
        weights = n_layers * self.layer["weights"]
        if place == DISK:
            return {"weights": weights, "left free": SPARE_ON_DISK}
        if place == CPU != main:
            return {"weights": weights, "libraries": LIBRARY_BYTES}
        found = {purpose: n_layers * each for purpose, each in self.layer.items()} | dict(self.running)
        if place == main:
            found["weights"] += self.ends
            if is_fetching:
                found["fetched layer"] = self.layer["weights"]
        return found

    def n_that_fit(self, free: int, place: str, main: str, is_fetching: bool = False) -> int:
        """How many layers a place with so many free bytes has room for; negative if not even for what it needs without
        layers."""
        without = sum(self.at(place, 0, main, is_fetching).values())
        each = sum(self.at(place, 1, main, is_fetching).values()) - without
        return (free - without) // each


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes that a load needs and bytes free on the device; `smaller` names what would fit if it does not."""

    needed_bytes: int
    free_bytes: int
    device: str
    smaller: str

    @property
    def fits(self) -> bool:
        return self.needed_bytes <= self.free_bytes


def no_loading_bytes(precision: str) -> int:
    """0: of a checkpoint whose tensors are not known yet."""
    return 0


def load_needs(
    model: ModelConfig, precision: str, loading_bytes: Callable[[str], int] = no_loading_bytes, device: str = ""
) -> Needs:
    """What loading a model and running it under masks needs. `loading_bytes` are, by precision, the bytes held next to
    the weights while they are loaded (`Identity.loading_bytes`); `device` is this computer's unless given."""
    running = {"workspace": WORKSPACE_BYTES, "loading": loading_bytes(precision)}
    if (device or device_class()) == CPU:
        running = {"libraries": LIBRARY_BYTES} | running
    parts = model.parts
    layer = {"weights": parts.layer.n_bytes(precision), "smaller weights": sliced_bytes(model, precision)}
    ends = sum(part.n_bytes(precision) for part in (parts.embeddings, parts.end, parts.head))
    return Needs(model.shape.n_layers, layer, ends, running)


def sliced_bytes(model: ModelConfig, precision: str) -> int:
    """Bytes of a layer's copy without half of its heads, which is held next to it (see `engine.models.slicing`); 0 if
    nothing can be cut out."""
    if len(family_of(model.config).qkv) < 3:
        return 0
    shape = model.shape
    heads = shape.d_model * shape.d_head * 2 * (shape.n_heads + shape.n_key_value_heads)
    return heads * {"int8": 1, "bf16": 2, "fp32": 4}[precision] // 2


def memory_estimate(
    model: ModelConfig, precision: str, loading_bytes: Callable[[str], int] = no_loading_bytes
) -> MemoryEstimate:
    """What `load_needs` says, against the free memory of the GPUs, or without one against main memory with all that
    this process will hold by then, the libraries included."""
    needed, free = {each: load_needs(model, each, loading_bytes).total for each in PRECISIONS}, free_bytes()
    return MemoryEstimate(needed[precision], free, device_class(), _smaller(needed, precision, free))


def too_large(name: str, precision: str, estimate: MemoryEstimate) -> str:
    """What a refusal says of a model that does not fit."""
    return (
        f"{name} in {precision} needs about {in_gb(estimate.needed_bytes)} and {in_gb(estimate.free_bytes)} "
        f"is free on {estimate.device}; {estimate.smaller}"
    )


def _smaller(needed: Mapping[str, int], precision: str, free: int) -> str:
    """What a refusal advises: the largest precision of this model that fits, else the largest OPT that fits in int8."""
    for choice in PRECISIONS[::-1]:
        if needed[choice] <= free and needed[choice] < needed[precision]:
            return f"{choice} needs {in_gb(needed[choice])} and would fit"
    opts = {size: ModelConfig(REPO + size, opt_config(size)) for size in LAYERS_HEADS_WIDTH}
    fitting = [size for size, model in opts.items() if load_needs(model, "int8", device=CPU).total <= free]
    return f"{REPO}{fitting[-1]} in int8 would fit" if fitting else "use the model `demo`, or free some memory"


def in_gb(n_bytes: int) -> str:
    """Such as 1.3 GB."""
    return f"{n_bytes / 1e9:,.1f} GB"

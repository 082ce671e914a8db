"""What a model needs of memory: on the device that runs it, and where layers lie that are moved there for each pass."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from engine.architecture.family import family_of
from engine.architecture.model_config import LAYERS_HEADS_WIDTH, REPO, ModelConfig, opt_config
from engine.checkpoints.identity import PRECISIONS
from engine.placement.devices import CPU, DISK, LIBRARY_BYTES, device_class, free_bytes

WORKSPACE_BYTES = 300_000_000  # activations, attention masks and logits of one batch of questions
SPARE_ON_DISK = 1_000_000_000  # left free there, for results
READ_POSITIONS = 128  # positions whose logits scoring computes at once: 128 x 50,272 x 4 bytes = 26 MB
USUAL_TOKENS = 1024  # of a row: a question with a few examples, or a text
CACHED_POSITIONS = 8  # positions whose logits it converts to fp32 at once: 1.6 MB, which fit in the processor's cache
CONTEXT_BYTES = 600_000_000  # of a GPU's memory, for the driver and the libraries' code
STORED_BYTES = {"float32": 4}  # of a value in a checkpoint; two in any other type


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


def load_needs(model: ModelConfig, precision: str) -> Needs:
    """What loading a model here and running it under masks needs."""
    running = {"workspace": WORKSPACE_BYTES, "loading": model.loading_bytes(precision)}
    if device_class() == CPU:
        running = {"libraries": LIBRARY_BYTES} | running
    parts = model.parts
    layer = {"weights": parts.layer.n_bytes(precision), "pruned copy": sliced_bytes(model, precision)}
    ends = sum(part.n_bytes(precision) for part in parts.ends)
    return Needs(model.shape.n_layers, layer, ends, running)


def sliced_bytes(model: ModelConfig, precision: str) -> int:
    """Bytes of a layer's copy without half of its heads, which is held next to it (see `engine.models.slicing`); 0 if
    nothing can be cut out."""
    family = family_of(model.config)
    if family.attention.is_one_matrix or family.norms_all_heads:
        return 0
    shape = model.shape
    heads = shape.d_model * shape.d_head * 2 * (shape.n_heads + shape.n_key_value_heads)
    return heads * {"int8": 1, "bf16": 2, "fp32": 4}[precision] // 2


def memory_estimate(model: ModelConfig, precision: str) -> MemoryEstimate:
    """What `load_needs` says, against the free memory of the GPUs, or without one against main memory with all that
    this process will hold by then, the libraries included."""
    needed, free = {each: load_needs(model, each).total for each in PRECISIONS}, free_bytes()
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
    fitting = [size for size, model in opts.items() if load_needs(model, "int8").total <= free]
    return f"{REPO}{fitting[-1]} in int8 would fit" if fitting else "use the model `demo`, or free some memory"


def in_gb(n_bytes: int) -> str:
    """Such as 1.3 GB."""
    return f"{n_bytes / 1e9:,.1f} GB"


def measuring_needs(model: ModelConfig, precision: str) -> Needs:
    """What loading a model here and measuring it needs: passes over rows of USUAL_TOKENS, some of which keep what
    gradients need."""
    needs = load_needs(as_stored(model), precision)
    on_cpu, n_tokens = device_class() == CPU, min(model.shape.n_ctx, USUAL_TOKENS)
    workspace = [WORKSPACE_BYTES, workspace_bytes(model, precision, n_tokens)]
    if precision == "int8":
        workspace.append(gradient_bytes(model))
    running = dict(needs.running) | {"workspace": max(workspace)}
    if not on_cpu:
        running["libraries"] = CONTEXT_BYTES
    gradients = kept_bytes(model, precision, n_tokens, on_cpu)
    return replace(needs, layer=dict(needs.layer) | {"gradients": gradients}, running=running)


def passing_bytes(model: ModelConfig, precision: str) -> int:
    """Bytes that must be free, as `free_bytes` counts them, to measure a model that is loaded."""
    needs = measuring_needs(model, precision)
    loaded = needs.n_layers * needs.layer["weights"] + needs.ends + needs.running["loading"]
    return needs.total - loaded


def workspace_bytes(model: ModelConfig, precision: str, n_tokens: int) -> int:
    """Peak bytes of a forward pass over one row of so many tokens, weights excluded: the residual stream and the inside
    of an FFN, the masks of attention, and the logits of positions that are read together."""
    size, shape = _size(precision), model.shape
    inside = 2 * size + (1 + 4 if precision == "int8" else 0)  # before and after the activation; int8 in, int32 out
    stream = n_tokens * (3 * size * shape.d_model + inside * shape.d_mlp)
    logits = shape.n_vocab * (min(n_tokens, READ_POSITIONS) * size + CACHED_POSITIONS * 4)
    return stream + n_tokens**2 * (size + 2) + logits


def kept_bytes(model: ModelConfig, precision: str, n_tokens: int, on_cpu: bool) -> int:
    """Bytes that a layer keeps of a forward pass until gradients pass back through it: what its norms and activations
    read, queries, keys, values and z, and what its FFN gives. On a CPU attention is in fp32 then; on a GPU int8 keeps
    what its matrices read, too."""
    d, size = model.shape.d_model, _size(precision)
    widths = 3 * d + (3 if model.is_gated else 1) * model.shape.d_mlp + model.d_heads
    widths += 2 * d if precision == "int8" and not on_cpu else 0
    heads = 2 * model.d_heads + 2 * model.d_key_values
    return n_tokens * (widths * size + heads * (4 if on_cpu else size))


def gradient_bytes(model: ModelConfig) -> int:
    """Bytes of a layer's largest matrix when int8 is made 16 bits for a gradient to pass through it, with the one that
    it is made of in between."""
    shape = model.shape
    return 2 * 2 * shape.d_model * max(shape.d_mlp, model.d_heads)


def as_stored(model: ModelConfig) -> ModelConfig:
    """The model with its largest tensor as the config says that it is stored."""
    stored, shape = str(model.config.get("dtype") or model.config.get("torch_dtype") or "float16"), model.shape
    largest = max(shape.n_vocab * model.d_embedding, shape.d_model * max(shape.d_mlp, model.d_heads))
    return replace(model, largest_bytes=largest * STORED_BYTES.get(stored, 2), stored_as=stored)


def _size(precision: str) -> int:
    return 4 if precision == "fp32" else 2

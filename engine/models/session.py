"""Who is measured, and where: `Target` is what a key says of a model, `Session` one store and the models in memory."""

import os
import platform
import time
from collections.abc import Generator
from dataclasses import asdict, dataclass, replace
from typing import Any

from cache import Store
from engine.architecture.family import family_of
from engine.architecture.model_config import ModelConfig
from engine.checkpoints.identity import Identity
from engine.errors import HeadroomError
from engine.kernels.cpu_kernels import Kernels
from engine.kernels.kernel_choice import processor
from engine.memory import Trimming
from engine.models.in_memory import Models
from engine.models.loading import Loaded, LoadSpec, aside_folder, device_class, identify, message_of, ways_of
from engine.placement.devices import asked_device, free_memory
from engine.placement.needs import as_stored
from engine.placement.placement import Placement, asked_places, known_rates, plan_placement
from engine.placement.summary import ModelSummary
from engine.progress import Progress
from engine.records import Record, decode, public, version
from engine.shapes import ModelShape
from engine.shipped import ShippedRecords


@dataclass(frozen=True)
class Target:
    """A model in one precision, with or without the beginning-of-sequence token in front; `products` are the ways in
    which its matrix products are computed here."""

    spec: LoadSpec
    identity: Identity
    bos: bool
    products: Kernels = Kernels()

    @property
    def shape(self) -> ModelShape:
        return self.identity.shape

    @property
    def as_usual(self) -> "Target":
        """The same with BOS as its own tokenizer has it."""
        return replace(self, bos=self.identity.default_bos)

    def __str__(self) -> str:
        """Identifies the target within one process: changes with anything that changes a number."""
        return f"{self.spec} {self.identity.digest} bos={self.bos} {self.products}"

    def key(self, gradients: bool = False) -> dict[str, Any]:
        """The fields that change the numbers of any measurement on this model; part of every key and receipt.

        `gradients`: of one that passes gradients back. "products" names the ways of matrix products, where they are
        not the library's own: results that those made are found as before, on every machine. Of torch the public
        version counts: builds for a CPU and for a GPU compute the same on a CPU.
        """
        is_int8 = self.spec.precision == "int8"
        versions = self.versions()
        versions["torch"] = public(versions["torch"])
        ways = self.products.not_own(gradients)
        return {
            "model": self.identity.digest,
            "tokenizer": self.identity.tokenizer_digest,
            "precision": self.spec.precision,
            "int8_threshold_milli": round(self.spec.int8_threshold * 1000) if is_int8 else None,
            "device": asked_device() or device_class(),
            "attention": family_of(self.identity.config).attends_by,
            "bos": self.bos,
            "versions": versions,
            **({"products": ways} if ways else {}),
        }

    def key_of_patterns(self) -> dict[str, Any]:
        """The fields of `key` for a measurement by attention of our own (`engine.models.patterns`), whose products are
        fp32: in a model of another precision they once were not, which changes the third digit."""
        return self.key() | ({} if self.spec.precision == "fp32" else {"patterns": "fp32"})

    def versions(self) -> dict[str, str]:
        """The installed versions of the libraries that change numbers, by name, with their builds."""
        names = ["torch", "transformers", "lm_eval"] + ["bitsandbytes"] * (self.spec.precision == "int8")
        return {name: version(name) for name in names}

    def receipt(self, seconds: float, **more: Any) -> dict[str, Any]:
        """What travels with every stored measurement: which model, when, how long, with which versions, and `more`."""
        measured_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        how = {"python": platform.python_version(), "machine": platform.machine(), "seconds": round(seconds, 4)}
        how |= {"processor": processor(), "cores": os.cpu_count()}
        about = {"name": self.identity.name, "measured_at": measured_at, "products": asdict(self.products)}
        return self.key() | {"versions": self.versions()} | about | how | more


class Session:
    """Where things are measured: a result store, and the models that are held in memory. `shipped`: records that are
    read where the store has none. `trimming` returns the memory that long work frees. `failures`: by key, why records
    could not be measured in another process; they are not measured here either."""

    def __init__(self, store: Store, models: Models | None = None, shipped: ShippedRecords | None = None) -> None:
        self.store, self.shipped = store, shipped
        self.models = models or Models(store)
        self.trimming = Trimming()
        self.failures: dict[str, str] = {}

    def record(self, key: str) -> Record | None:
        """The stored record under a key, or else the shipped one; None if there is none or it is malformed."""
        if (found := decode(self.store.get(key))) is not None:
            return found
        return self.shipped.record(key) if self.shipped is not None else None

    def own(self) -> "Session":
        """The same store and models without shipped records: what it measures replaces them."""
        return Session(self.store, self.models)

    def target(self, spec: LoadSpec, bos: bool | None = None) -> Target:
        """The Target of a model, from its files alone; `bos` None = as the model's own tokenizer does."""
        identity = identify(spec, self.store)
        return target_of(spec, identity, bos, ways_of(spec, identity, self.store))

    def loaded(self, target: Target, done: int = 0, total: int = 1) -> Generator[Progress[Any], None, Loaded]:
        """Gives the model, after a Progress that says so where it has to be loaded first.

        HeadroomError if its files are no longer those of the target: results would be stored under a wrong key.
        """
        spec = target.spec
        if not self.models.holds(spec):
            self.places(spec, target.identity)  # refuses a model that does not fit before anything says it is loading
            yield Progress(done, total, message=message_of(spec), is_loading=True)
        loaded = self.models.get(spec)
        if loaded.identity.digest != target.identity.digest:
            raise HeadroomError(f"the files of {spec.model} have changed since they were read; start it once more")
        if loaded.products != target.products:
            raise HeadroomError(f"the ways of matrix products have changed since {spec.model} was named; load it again")
        return loaded

    def placement(self, spec: LoadSpec, model: ModelConfig | None = None, asks_gpus: bool = False) -> Placement | None:
        """Where a model's layers lie.

        Of one that is not in memory: where the layers of `model` would lie. That is None while another one takes its
        room, and with GPUs unless they may be queried, which needs torch. HeadroomError: it does not fit.
        """
        held = [each for each in self.models.held if each.spec == spec]
        if held:
            return held[0].placing
        is_known = asked_places() is not None or self.models.loaded is None
        if model is not None and is_known and (asks_gpus or device_class() == "cpu"):
            return plan_placement(model, spec.precision, aside_folder(self.store))
        return None

    def places(self, spec: LoadSpec, identity: Identity | None = None, asks_gpus: bool = False) -> str:
        """Where a model's layers lie and what that costs a pass; "" where all of it is on one device, or unknown.
        HeadroomError: it does not fit."""
        placing = self.placement(spec, identity and identity.model_config, asks_gpus)
        folder = aside_folder(self.store)
        return "" if placing is None or placing.is_whole else placing.with_cost(known_rates(self.store, folder))

    def summary(self, spec: LoadSpec, model: ModelConfig, asks_gpus: bool = False) -> ModelSummary:
        """What a model takes on this computer, as far as that is known without loading it (`placement`)."""
        folder, placing, refusal = aside_folder(self.store), None, ""
        model = model if model.largest_bytes else as_stored(model)
        try:
            placing = self.placement(spec, model, asks_gpus)
        except HeadroomError as error:
            refusal = str(error)
        free = free_memory(folder) if asks_gpus or device_class() == "cpu" else {}
        return ModelSummary(model, spec.precision, free, placing, refusal, known_rates(self.store, folder))


def target_of(spec: LoadSpec, identity: Identity, bos: bool | None = None, products: Kernels | None = None) -> Target:
    """The Target of a model whose identity is known, and the ways of its products (None: the libraries' own)."""
    return Target(spec, identity, identity.default_bos if bos is None else bos, products or Kernels())
